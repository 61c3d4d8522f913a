package learn

import (
	"bytes"
	_ "embed" // the shipped weights
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Weights are the agents in a file.
type Weights struct {
	Version string            `json:"version"`
	System  string            `json:"system"`  // sched2 or meta-rl
	Trained string            `json:"trained"` // the command that trained them
	Nets    map[string]Layers `json:"nets"`
}

// Layers are the layers of a network, each with its numbers of inputs and outputs.
type Layers []Layer

// Layer is one layer: a row of weights for each output.
type Layer struct {
	In, Out int
	W, B    []float64
}

const version = "muster.weights/v1"

// The systems that have weights.
const (
	SystemSched2 = "sched2"
	SystemMetaRL = "meta-rl"
)

// Systems lists them all.
var Systems = []string{SystemSched2, SystemMetaRL}

var (
	//go:embed sched2.json
	shippedSched2 []byte
	//go:embed metarl.json
	shippedMetaRL []byte
)

// Shipped are the weights that are part of this program.
func Shipped(system string) []byte {
	if system == SystemMetaRL {
		return shippedMetaRL
	}
	return shippedSched2
}

// digits is how many binary digits of a weight are stored: further digits are noise, and double the size of the
// file.
const digits = 20

// rounded is a number with that many binary digits.
func rounded(x float64) float64 {
	f, e := math.Frexp(x)
	return math.Ldexp(math.Round(math.Ldexp(f, digits)), e-digits)
}

// MarshalJSON writes a layer in one line.
func (l Layer) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"in":%d,"out":%d`, l.In, l.Out)
	for i, list := range [][]float64{l.W, l.B} {
		fmt.Fprintf(&b, `,"%c":[`, "wb"[i])
		for k, v := range list {
			if k > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.FormatFloat(v, 'g', 7, 64))
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Write encodes an agent as a file. trained is the command that made it.
func (a *Agent) Write(system, trained string) ([]byte, error) {
	list, names := a.nets()
	nets := map[string]*Net{}
	for i, n := range list {
		nets[names[i]] = n
	}
	return WriteNets(system, trained, nets)
}

// WriteNets encodes networks as a file. trained is the command that made them.
func WriteNets(system, trained string, nets map[string]*Net) ([]byte, error) {
	w := Weights{Version: version, System: system, Trained: trained, Nets: map[string]Layers{}}
	for _, name := range slices.Sorted(maps.Keys(nets)) {
		n := nets[name]
		var list Layers
		for l := range n.W {
			layer := Layer{In: n.Sizes[l], Out: n.Sizes[l+1], W: slices.Clone(n.W[l]), B: slices.Clone(n.B[l])}
			for _, v := range [][]float64{layer.W, layer.B} {
				for k := range v {
					v[k] = rounded(v[k])
				}
			}
			list = append(list, layer)
		}
		w.Nets[name] = list
	}
	text, err := json.Marshal(&w)
	for _, mark := range []string{`"nets":`, `{"in":`} {
		text = bytes.ReplaceAll(text, []byte(mark), []byte("\n"+mark))
	}
	return append(text, '\n'), err
}

// Read decodes the agent in a file. Its errors name what is wrong.
func Read(system string, text []byte) (*Agent, error) {
	a := NewAgent(NewRand(0), shapeOf(system))
	list, names := a.nets()
	nets := map[string]*Net{}
	for i, n := range list {
		nets[names[i]] = n
	}
	return a, readNets(system, text, nets)
}

// ReadNets decodes networks of these shapes from a file. Its errors name what is wrong.
func ReadNets(system string, text []byte, shapes map[string][]int) (map[string]*Net, error) {
	nets := map[string]*Net{}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		nets[name] = NewNet(NewRand(0), shapes[name]...)
	}
	return nets, readNets(system, text, nets)
}

func readNets(system string, text []byte, nets map[string]*Net) error {
	var w Weights
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return fmt.Errorf("not weights: %w", err)
	}
	if w.Version != version {
		return fmt.Errorf("version: %q, want %q: train again with muster learn", w.Version, version)
	}
	if w.System != system {
		return fmt.Errorf("system: the weights are of %q, want %q", w.System, system)
	}
	names := slices.Sorted(maps.Keys(nets))
	if len(w.Nets) != len(names) {
		return fmt.Errorf("nets: there are %d, want %v", len(w.Nets), names)
	}
	for _, name := range names {
		if err := nets[name].read(w.Nets[name]); err != nil {
			return fmt.Errorf("nets: %s: %w", name, err)
		}
	}
	return nil
}

func shapeOf(system string) Shape {
	if system == SystemMetaRL {
		return placeShape
	}
	return schedShape
}

func (n *Net) read(list Layers) error {
	if len(list) != len(n.W) {
		return fmt.Errorf("%d layers, want %d", len(list), len(n.W))
	}
	for l := range list {
		in, out := n.Sizes[l], n.Sizes[l+1]
		if list[l].In != in || list[l].Out != out {
			return fmt.Errorf("layer %d: %d inputs and %d outputs, want %d and %d", l, list[l].In, list[l].Out, in, out)
		}
		for i, p := range []struct{ from, to []float64 }{{list[l].W, n.W[l]}, {list[l].B, n.B[l]}} {
			if len(p.from) != len(p.to) {
				return fmt.Errorf("layer %d: %c has %d numbers, want %d", l, "wb"[i], len(p.from), len(p.to))
			}
			for k, v := range p.from {
				if math.Abs(v) > 1e6 {
					return fmt.Errorf("layer %d: %c: number %d is %g; weights are between -1e6 and 1e6", l, "wb"[i], k,
						v)
				}
			}
			copy(p.to, p.from)
		}
	}
	return nil
}

// Digest identifies weights: eight hexadecimal digits of the networks' contents, whatever the file's layout
// (FNV-1a).
func (a *Agent) Digest() string {
	h := uint64(14695981039346656037)
	var buf [8]byte
	for _, list := range a.params() {
		for _, v := range list {
			binary.LittleEndian.PutUint64(buf[:], math.Float64bits(v))
			for _, b := range buf {
				h = (h ^ uint64(b)) * 1099511628211
			}
		}
	}
	return fmt.Sprintf("%08x", uint32(h^h>>32))
}

// Load reads the agent of a file of weights, or the shipped one if it is "". Weights with another digest than
// the given one are refused.
func Load(system, file, digest string, read func(name string) ([]byte, error)) (*Agent, error) {
	text, name := Shipped(system), "the weights that come with Muster"
	if file != "" {
		if read == nil {
			return nil, fmt.Errorf("weights=%s: this program reads no files for policies", file)
		}
		var err error
		if text, err = read(file); err != nil {
			return nil, fmt.Errorf("weights: %w", err)
		}
		name = "weights=" + file
	}
	a, err := Read(system, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if have := a.Digest(); digest != "" && digest != have {
		return nil, fmt.Errorf(
			"%s: their digest is %s, want %s: they are not those named in the journal or the configuration", name, have,
			digest)
	}
	return a, nil
}
