package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Network is what carries traffic between the nodes of a cluster: links between nodes and switches, and between
// switches. Nodes of one NVLink domain (Node.NVLink) need none of it among each other.
type Network struct {
	Links []Link `json:"links,omitempty"`
	// Hosts are ends of links besides the nodes: machines to which jobs transmit (Job.Hosts). One machine has them,
	// whose nodes stay the same.
	Hosts []string `json:"hosts,omitempty"`
	// Rates describe a tree instead of Links, or beside them: that of the link between a node and its rack's switch,
	// between that and its fabric's, and between that and the core; fewer levels where there are fewer. Bits per second
	Rates []int64 `json:"rates,omitempty"`
	// Classes is how many classes of traffic the switches keep apart by strict priority; 0 or 1: none. Ethernet
	// and InfiniBand have at most 8.
	Classes int `json:"classes,omitempty"`
	// Models has the traffic of jobs by what they compute (Job.Model), for those that do not state it.
	Models []ModelTraffic `json:"models,omitempty"`
	// Unknown are names of Models that jobs on several nodes are taken for, in turn by their number, if nothing is
	// known of them. A simulation only: a driver of real machines does not guess.
	Unknown []string `json:"unknown,omitempty"`
	Uneven  Uneven   `json:"uneven,omitzero"`
	// Real: jobs are real ones. They begin their iterations in slots only as far as they say so (SlotsReport), and the
	// switches choose paths: no library lets a job choose. In a simulation jobs keep slots and take the paths they are
	// given.
	Real bool `json:"real,omitempty"`
}

// SlotsReport is what a job was heard to say of slots in its present run.
type SlotsReport string

// What is heard of slots.
const (
	SlotsUnheard  SlotsReport = ""          // nothing: it may not call muster.iteration() at all
	SlotsCalled   SlotsReport = "called"    // it tells of its iterations, so it can be told when to begin them
	SlotsHeld     SlotsReport = "held"      // they begin in their slots
	SlotsTooShort SlotsReport = "too-short" // they take longer than the period, so they do not
)

// After is what is known of a job's slots after another report. That it calls muster.iteration() is no news of a job
// that said more.
func (s SlotsReport) After(next SlotsReport) SlotsReport {
	if next == SlotsUnheard || next == SlotsCalled && s != SlotsUnheard {
		return s
	}
	return next
}

// Uneven is how far links are from giving all transmissions of a class the same rate, in percent. The zero value: they
// do.
type Uneven struct {
	// Later is by how much the rate of a transmission is larger than that of one which began before it.
	Later int `json:"later,omitempty"`
	// Varies is by how much, at most, a transmission's rate is larger or smaller than another's by chance.
	Varies int `json:"varies,omitempty"`
}

// Link joins two nodes or switches. It carries Rate in each direction at the same time. A node has as many links
// as it has network cards; those of the same position among a node's links are one rail.
type Link struct {
	A    string `json:"a"`    // a node or a switch
	B    string `json:"b"`    // a switch
	Rate int64  `json:"rate"` // bits per second
}

// ModelTraffic is the traffic of jobs that compute a model.
type ModelTraffic struct {
	Model   string  `json:"model"`
	Traffic Traffic `json:"traffic"`
}

// Pattern is who sends what to which other rank in an iteration.
type Pattern uint8

// The patterns. Ring, Tree and Hierarchical are ways to reduce data over all ranks.
const (
	NoTraffic Pattern = iota
	Ring
	Tree
	Hierarchical // reduced inside each node first, then in rings over the nodes, one for each rail
	AllToAll
	Pipeline        // each stage sends to the next, and back
	ParameterServer // the first node collects and distributes
)

// Patterns are the names of the patterns.
var Patterns = []string{"none", "ring", "tree", "hierarchical", "all-to-all", "pipeline", "parameter-server"}

// Traffic is what a job does in one iteration: it computes, and it transmits.
type Traffic struct {
	Pattern Pattern `json:"pattern,omitempty"`
	// bytes that each rank has to reduce, to send to all others together (AllToAll), or to hand to the next stage
	// (Pipeline)
	Bytes   int64         `json:"bytes,omitempty"`
	Compute time.Duration `json:"compute,omitempty"` // computing time
	// part of the computing time during which it already transmits, in thousandths
	Overlap Milli `json:"overlap,omitempty"`
}

// ComputingIn is the computing time of a job whose iterations take so long alone on its links, which its traffic takes
// send to pass; 0: they take no longer than their traffic, so something is wrong about it.
func (t *Traffic) ComputingIn(iteration, send time.Duration) time.Duration {
	const whole = time.Duration(Whole)
	overlap := min(max(0, time.Duration(t.Overlap)), whole)
	switch {
	case iteration <= send:
		return 0
	case iteration*overlap/whole >= send: // all of it passes while it computes
		return iteration
	}
	return (iteration - send) * whole / (whole - overlap)
}

// Treatment is how the traffic of a running job is treated by the network. The zero value: as any other traffic.
type Treatment struct {
	Class int `json:"class,omitempty"` // 1 is the most urgent; 0: none
	// Path is the path of each of its parts of traffic, as an index of the paths of least hops; empty: as the
	// switches' hash of addresses has it
	Path []uint8 `json:"path,omitempty"`
	// Spread is over how many paths each part is divided, by as many connections; 0 or 1: one
	Spread int `json:"spread,omitempty"`
	// Its iterations begin Shift after multiples of Period (since the Unix epoch); Period 0: whenever
	Shift  time.Duration `json:"shift,omitempty"`
	Period time.Duration `json:"period,omitempty"`
}

// Value is the treatment; that of nil is as any other traffic.
func (t *Treatment) Value() Treatment {
	if t == nil {
		return Treatment{}
	}
	return *t
}

// Plain reports whether traffic is treated as any other.
func (t *Treatment) Plain() bool {
	return t.Class == 0 && len(t.Path) == 0 && t.Spread <= 1 && t.Period == 0
}

// Equal reports whether two treatments are the same.
func (t *Treatment) Equal(o *Treatment) bool {
	return t.Class == o.Class && t.Spread == o.Spread && t.Shift == o.Shift && t.Period == o.Period &&
		slices.Equal(t.Path, o.Path)
}

// Value is the traffic; that of nil is none.
func (t *Traffic) Value() Traffic {
	if t == nil {
		return Traffic{}
	}
	return *t
}

// Measured is the traffic as far as it was measured, else as known before.
func (t Traffic) Measured(m Traffic) Traffic {
	return Traffic{Pattern: cmp.Or(m.Pattern, t.Pattern), Bytes: cmp.Or(m.Bytes, t.Bytes),
		Compute: cmp.Or(m.Compute, t.Compute), Overlap: cmp.Or(m.Overlap, t.Overlap)}
}

// Like reports whether what was measured is what is known, within a twentieth.
func (t Traffic) Like(m *Traffic) bool {
	near := func(a, b int64) bool { return b == 0 || max(a, b)-min(a, b) <= max(a, b)/20 }
	return near(t.Bytes, m.Bytes) && near(int64(t.Compute), int64(m.Compute)) &&
		(m.Pattern == NoTraffic || m.Pattern == t.Pattern) && near(t.Overlap, m.Overlap)
}

// TrafficSource is where it is known from what a job transmits.
type TrafficSource string

// The sources.
const (
	TrafficUnknown  TrafficSource = ""
	TrafficStated   TrafficSource = "stated by the job"
	TrafficOfModel  TrafficSource = "of its model"
	TrafficAssumed  TrafficSource = "assumed"
	TrafficMeasured TrafficSource = "measured"
)

// TrafficOf is what is known of a job's traffic before it runs: what it states, else that of its model, else, in
// simulations, that of one of the models that unknown jobs are taken for.
func (n *Network) TrafficOf(j *Job) (Traffic, TrafficSource) {
	switch {
	case j.Traffic.Pattern != NoTraffic:
		return j.Traffic, TrafficStated
	case n == nil:
		return Traffic{}, TrafficUnknown
	}
	if t, known := n.model(j.Model); known {
		return t, TrafficOfModel
	}
	if len(n.Unknown) > 0 {
		if t, known := n.model(n.Unknown[int(j.ID)%len(n.Unknown)]); known {
			return t, TrafficAssumed
		}
	}
	return Traffic{}, TrafficUnknown
}

func (n *Network) model(name string) (Traffic, bool) {
	if name == "" {
		return Traffic{}, false
	}
	for i := range n.Models {
		if n.Models[i].Model == name {
			return n.Models[i].Traffic, true
		}
	}
	return Traffic{}, false
}

// MaxClasses is how many classes of traffic switches keep apart: Ethernet has 8 priorities, InfiniBand 16 lanes
// of which few are used.
const MaxClasses = 8

// ParsePattern reads a pattern by name.
func ParsePattern(name string) (Pattern, error) {
	if i := slices.Index(Patterns, name); i >= 0 {
		return Pattern(i), nil
	}
	return NoTraffic, Unknown("pattern", name, Patterns)
}

func (p Pattern) String() string {
	if int(p) < len(Patterns) {
		return Patterns[p]
	}
	return "invalid"
}

// MarshalText implements encoding.TextMarshaler.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pattern) UnmarshalText(b []byte) error {
	v, err := ParsePattern(string(b))
	*p = v
	return err
}

// Text is the traffic in words: "ring of 553 MB an iteration, 120ms of computing"; "": nothing is known.
func (t *Traffic) Text() string {
	if t.Pattern == NoTraffic {
		return ""
	}
	units := []string{"B", "kB", "MB", "GB", "TB"}
	size, unit := float64(t.Bytes), 0
	for size >= 1000 && unit < len(units)-1 {
		size, unit = size/1000, unit+1
	}
	text := fmt.Sprintf("%s of %.3g %s an iteration, %v of computing", t.Pattern, size,
		units[unit], t.Compute.Round(time.Microsecond))
	if t.Overlap > 0 {
		text += fmt.Sprintf(", %.3g %% of it overlapped", float64(t.Overlap)/10)
	}
	return text
}

// Check says what is wrong with a statement of traffic; nil: nothing.
func (t *Traffic) Check() error {
	switch {
	case t.Bytes < 0 || t.Bytes > MaxTrafficBytes:
		return fmt.Errorf("bytes: %d; between 0 and %d are possible", t.Bytes, int64(MaxTrafficBytes))
	case t.Compute < 0 || t.Compute > 24*time.Hour:
		return fmt.Errorf("compute: %v; between 0 and a day are possible", t.Compute)
	case t.Overlap < 0 || t.Overlap > Whole:
		return fmt.Errorf("overlap: %g; between 0 and 1 are possible", float64(t.Overlap)/1000)
	}
	return nil
}

// MaxTrafficBytes is the most that a rank can send in an iteration.
const MaxTrafficBytes = 1 << 44
