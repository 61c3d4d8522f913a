package traffic

import (
	"encoding/json"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// number is a number of the vectors: 1.5, or "3/2".
type number float64

func (n *number) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return json.Unmarshal(data, (*float64)(n))
	}
	v, _ := r.Float64()
	*n = number(v)
	return nil
}

func (n number) near(v float64) bool { return math.Abs(float64(n)-v) < 1e-6 }

func seconds(n number) time.Duration { return time.Duration(math.Round(float64(n) * 1e9)) }

func vectors(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// timed is a job of the vectors: seconds of computing and, on a link of capacity 1, of transmission.
type timed struct{ C, M, S, G number }

func (j timed) lone() lone { return lone{seconds(j.C), seconds(j.C * j.S), seconds(j.M)} }

func TestPriorityFactors(t *testing.T) {
	type order struct {
		Sent       []number `json:"link_seconds"`
		Iterations []int64
		Computed   []number `json:"compute_seconds"`
	}
	var v struct {
		Cases []struct {
			Name           string
			Reference, Job timed
			Window         number
			RFirst         order `json:"reference_first"`
			JFirst         order `json:"job_first"`
			K              number
		} `json:"priority_factor"`
	}
	vectors(t, "crux.json", &v)
	for _, c := range v.Cases {
		for first, want := range []order{c.RFirst, c.JFirst} {
			var jobs []flow.Job
			for i, j := range []timed{c.Reference, c.Job} {
				l := j.lone()
				jobs = append(jobs, flow.Job{Compute: l.compute, Release: l.release, Class: 1 + (i+first)%2,
					On: []network.Bytes{{Link: 0, Bytes: int64(l.send)}}})
			}
			for i, r := range flow.Run(oneLink{}, jobs, seconds(c.Window)) {
				if !want.Sent[i].near(r.Sent.Seconds()) || r.Iterations != want.Iterations[i] ||
					!want.Computed[i].near(r.Computed.Seconds()) {
					t.Errorf("%s: job %d of order %d: %+v, want %v %v %v", c.Name, i, first, r, want.Sent[i],
						want.Iterations[i],
						want.Computed[i])
				}
			}
		}
		if k := factor(c.Reference.lone(), c.Job.lone(), seconds(c.Window)); !c.K.near(k) {
			t.Errorf("%s: factor %v, want %v", c.Name, k, c.K)
		}
	}
	if len(v.Cases) != 9 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

// unitLinks carry a byte per nanosecond each.
type unitLinks struct{ names []string }

func (u *unitLinks) id(name string) network.LinkID {
	at := slices.Index(u.names, name)
	if at < 0 {
		at = len(u.names)
		u.names = append(u.names, name)
	}
	return network.LinkID(at)
}

func (u *unitLinks) Capacity(network.LinkID) int64 { return 1e9 }

func (u *unitLinks) job(j timed, candidates [][]string) Job {
	l := j.lone()
	p := network.Part{Bytes: int64(l.send)}
	for _, names := range candidates {
		var path network.Path
		for _, name := range names {
			path = append(path, u.id(name))
		}
		p.Paths = append(p.Paths, path)
	}
	return Job{GPUs: int64(j.G), Compute: l.compute, Release: l.release,
		Demand: network.Demand{Parts: []network.Part{p}}}
}

func gpuSeconds(f Fabric, jobs []Job, ts []cluster.Treatment, window time.Duration) (sum float64) {
	var list []flow.Job
	for i := range jobs {
		list = append(list, jobs[i].As(&ts[i]))
	}
	for i, r := range flow.Run(f, list, window) {
		sum += float64(jobs[i].GPUs) * r.Computed.Seconds()
	}
	return sum
}

func TestPathSelection(t *testing.T) {
	var v struct {
		Cases []struct {
			Name       string
			Jobs       []timed
			Candidates [][][]string
			Intensity  []number
			Chosen     []int
			Level      []int `json:"priority_level"`
			Horizon    number
			GPUSeconds number `json:"gpu_seconds"`
		} `json:"path_selection"`
	}
	vectors(t, "crux.json", &v)
	for _, c := range v.Cases {
		links := &unitLinks{}
		f := Fabric{Links: links}
		var jobs []Job
		for i, j := range c.Jobs {
			jobs = append(jobs, links.job(j, c.Candidates[i]))
		}
		ts := choosePaths(f, jobs)
		for i, in := range intensities(f, jobs, loads(jobs, ts)) {
			if !c.Intensity[i].near(in) {
				t.Errorf("%s: intensity of %d: %v, want %v", c.Name, i, in, c.Intensity[i])
			}
			got := 0
			if len(ts[i].Path) > 0 {
				got = int(ts[i].Path[0])
			}
			if got != c.Chosen[i] {
				t.Errorf("%s: path of %d: %d, want %d", c.Name, i, got, c.Chosen[i])
			}
			ts[i].Class = 1 + c.Level[i]
		}
		if got := gpuSeconds(f, jobs, ts, seconds(c.Horizon)); !c.GPUSeconds.near(got) {
			t.Errorf("%s: %v GPU-seconds, want %v", c.Name, got, c.GPUSeconds)
		}
	}
	if len(v.Cases) != 5 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

func TestPriorityOrder(t *testing.T) {
	var v struct {
		Cases []struct {
			Name       string
			Jobs       []timed
			Horizon    number
			Reference  int
			K          []number
			P          []number
			Level      []int
			GPUSeconds number `json:"gpu_seconds"`
			Fair       number `json:"fair_share_gpu_seconds"`
		} `json:"priority_order"`
	}
	vectors(t, "crux.json", &v)
	for _, c := range v.Cases {
		links := &unitLinks{}
		f := Fabric{Links: links, Classes: len(c.Jobs)}
		var jobs []Job
		for _, j := range c.Jobs {
			jobs = append(jobs, links.job(j, [][]string{{"a"}}))
		}
		for i := range jobs {
			if k := factor(c.Jobs[c.Reference].lone(), c.Jobs[i].lone(), seconds(c.Horizon)); i != c.Reference &&
				!c.K[i].near(k) {
				t.Errorf("%s: factor of %d: %v, want %v", c.Name, i, k, c.K[i])
			}
		}
		ts := NewCrux(Published).Treat(f, jobs)
		fair := slices.Clone(ts)
		for i := range ts {
			if ts[i].Class != 1+c.Level[i] {
				t.Errorf("%s: class of %d: %d, want %d", c.Name, i, ts[i].Class, 1+c.Level[i])
			}
			fair[i].Class = 0
		}
		if got := gpuSeconds(f, jobs, ts, seconds(c.Horizon)); !c.GPUSeconds.near(got) {
			t.Errorf("%s: %v GPU-seconds, want %v", c.Name, got, c.GPUSeconds)
		}
		if got := gpuSeconds(f, jobs, fair, seconds(c.Horizon)); !c.Fair.near(got) {
			t.Errorf("%s: fair shares: %v GPU-seconds, want %v", c.Name, got, c.Fair)
		}
	}
	if len(v.Cases) != 5 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

func TestCompression(t *testing.T) {
	var v struct {
		Cases []struct {
			Name     string
			Nodes    int
			Edges    [][3]int
			K        int
			Identity float64 `json:"identity_order_cut"`
			Best     float64 `json:"best_cut"`
		} `json:"compression"`
	}
	vectors(t, "crux.json", &v)
	for _, c := range v.Cases {
		g := &edges{nodes: c.Nodes, to: make([][]int, c.Nodes), cost: make([][]float64, c.Nodes)}
		for _, e := range c.Edges {
			g.to[e[0]] = append(g.to[e[0]], e[1])
			g.cost[e[0]] = append(g.cost[e[0]], float64(e[2]))
		}
		weigh := func(level []int) (cut float64) {
			for _, e := range c.Edges {
				if level[e[0]] > level[e[1]] {
					t.Errorf("%s: edge %v goes upward in %v", c.Name, e, level)
				}
				if level[e[0]] < level[e[1]] {
					cut += float64(e[2])
				}
			}
			return cut
		}
		identity := make([]int, c.Nodes)
		for i := range identity {
			identity[i] = i
		}
		if cut, level := g.cut(identity, c.K); cut != c.Identity || weigh(level) != cut {
			t.Errorf("%s: identity order cuts %v (%v), want %v", c.Name, cut, level, c.Identity)
		}
		if got := weigh(compress(c.K, g)); got != c.Best {
			t.Errorf("%s: %v, want %v", c.Name, got, c.Best)
		}
	}
	if len(v.Cases) != 9 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

func TestBSSI(t *testing.T) {
	var v struct {
		Spec struct {
			D     []map[string]float64
			Order []int
		} `json:"dxl_spec_vector"`
		Vectors []struct {
			Name    string
			Coflows [][]struct {
				Src, Dst int
				MB       float64
			}
			Weights []float64
			Order   []int
		}
	}
	vectors(t, "sincronia.json", &v)
	load := [][]float64{make([]float64, 3), make([]float64, 3)}
	for c, d := range v.Spec.D {
		load[0][c], load[1][c] = d["L1"], d["L2"]
	}
	if got := BSSI(load, []float64{1, 1, 1}); !slices.Equal(got, v.Spec.Order) {
		t.Errorf("order %v, want %v", got, v.Spec.Order)
	}
	for _, c := range v.Vectors {
		const ports = 4
		load := make([][]float64, 2*ports)
		for p := range load {
			load[p] = make([]float64, len(c.Coflows))
		}
		for i, flows := range c.Coflows {
			for _, f := range flows {
				load[f.Src][i] += f.MB
				load[ports+f.Dst][i] += f.MB
			}
		}
		if got := BSSI(load, c.Weights); !slices.Equal(got, c.Order) {
			t.Errorf("%s: order %v, want %v", c.Name, got, c.Order)
		}
	}
	if len(v.Vectors) != 9 {
		t.Errorf("%d vectors", len(v.Vectors))
	}
}

func milliseconds(n number) time.Duration { return time.Duration(math.Round(float64(n) * 1e6)) }

func TestCompatibility(t *testing.T) {
	var v struct {
		Cases []struct {
			Name     string
			Capacity int64
			Angles   int
			Jobs     []struct {
				Iteration number `json:"iteration_ms"`
				Phases    []struct {
					Start number `json:"start_ms"`
					End   number `json:"end_ms"`
					Gbps  int64
				}
			}
			Perimeter number   `json:"perimeter_ms"`
			Turns     []int    `json:"rotation_steps_allowed"`
			Aligned   number   `json:"score_unshifted"`
			Best      number   `json:"best_score"`
			Steps     []int    `json:"first_best_steps"`
			Shifts    []number `json:"time_shift_ms"`
		} `json:"compatibility"`
	}
	vectors(t, "cassini.json", &v)
	for _, c := range v.Cases {
		var rings []Ring
		for _, j := range c.Jobs {
			r := Ring{Iteration: milliseconds(j.Iteration)}
			for _, p := range j.Phases {
				r.Phases = append(r.Phases, Phase{milliseconds(p.Start), milliseconds(p.End), p.Gbps})
			}
			rings = append(rings, r)
		}
		circle := NewCircle(c.Capacity, rings, c.Angles)
		if circle.Perimeter != milliseconds(c.Perimeter) || !slices.Equal(circle.turns[1:], c.Turns[1:]) {
			t.Errorf("%s: perimeter %v, turns %v", c.Name, circle.Perimeter, circle.turns)
		}
		if s := circle.Score(make([]int, len(rings))); !c.Aligned.near(s) {
			t.Errorf("%s: aligned %v, want %v", c.Name, s, c.Aligned)
		}
		steps, score := circle.Best()
		if !c.Best.near(score) || !slices.Equal(steps, c.Steps) {
			t.Errorf("%s: %v at %v, want %v at %v", c.Name, score, steps, c.Best, c.Steps)
		}
		for i, d := range steps {
			if got := circle.Shift(i, d); got != milliseconds(c.Shifts[i]) {
				t.Errorf("%s: shift of %d: %v, want %v ms", c.Name, i, got, c.Shifts[i])
			}
		}
		if _, s := circle.descend(make([]int, len(rings))); s > score+1e-9 ||
			s < circle.Score(make([]int, len(rings)))-1e-9 {
			t.Errorf("%s: one at a time scores %v, all %v", c.Name, s, score)
		}
	}
	if len(v.Cases) != 9 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

func TestAffinity(t *testing.T) {
	var v struct {
		Cases []struct {
			Name      string
			Iteration map[string]number            `json:"iteration_ms"`
			Links     map[string]map[string]number `json:"link_shifts"`
			Loop      bool
			Shift     map[string]number `json:"shift_ms"`
		} `json:"affinity"`
	}
	vectors(t, "cassini.json", &v)
	for _, c := range v.Cases {
		iterations := make([]time.Duration, len(c.Iteration))
		number := func(name string) int { return int(name[0] - '1') }
		for name, it := range c.Iteration {
			iterations[number(name)] = milliseconds(it)
		}
		var links []LinkShifts
		for _, name := range []string{"l1", "l2", "l3"} {
			var l LinkShifts
			for _, j := range []string{"1", "2", "3", "4"} {
				if s, on := c.Links[name][j]; on {
					l.Jobs, l.Shifts = append(l.Jobs, number(j)), append(l.Shifts, milliseconds(s))
				}
			}
			if l.Jobs != nil {
				links = append(links, l)
			}
		}
		if got := Loops(links); got != c.Loop {
			t.Errorf("%s: loop %v", c.Name, got)
		}
		if c.Loop {
			continue
		}
		for i, got := range Consistent(iterations, links) {
			if want := milliseconds(c.Shift[string(rune('1'+i))]); got != want {
				t.Errorf("%s: shift of %d: %v, want %v", c.Name, i+1, got, want)
			}
		}
	}
	if len(v.Cases) != 7 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

// Jobs whose iterations are about as long get one period, so that one shift keeps them apart for good.
func TestEvenOut(t *testing.T) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct{ given, want []int64 }{
		{[]int64{243, 252}, []int64{252, 252}}, {[]int64{250, 250}, []int64{250, 250}},
		{[]int64{100, 152}, []int64{100, 155}},
		{[]int64{249, 241, 501}, []int64{250, 250, 510}},
	} {
		var rings []Ring
		for _, g := range c.given {
			rings = append(rings, Ring{Iteration: ms(g)})
		}
		evenOut(rings)
		for i, r := range rings {
			own := ms(c.given[i])
			if r.Iteration != ms(c.want[i]) || r.Iteration < own || r.Iteration > own+own/10 {
				t.Errorf("%v ms: period %d is %v, want %d ms", c.given, i, r.Iteration, c.want[i])
			}
		}
	}
}

// TestCentre: where several rotations are as good, jobs stand in the middle between the others.
func TestCentre(t *testing.T) {
	ring := func(transmits time.Duration) Ring {
		return Ring{Iteration: 400 * time.Millisecond, To: transmits, Rate: 1000}
	}
	for _, c := range []struct {
		rings []Ring
		want  []time.Duration // shifts
	}{
		{[]Ring{ring(100 * time.Millisecond), ring(100 * time.Millisecond)}, []time.Duration{0, 200}},
		{[]Ring{ring(200 * time.Millisecond), ring(100 * time.Millisecond)}, []time.Duration{0, 250}},
		{[]Ring{ring(50 * time.Millisecond), ring(50 * time.Millisecond), ring(50 * time.Millisecond)},
			[]time.Duration{0, 133, 266}},
	} {
		circle := NewCircle(1000, c.rings, 80)
		steps, score := circle.Best()
		circle.Centre(steps)
		if got := circle.Score(steps); got != score {
			t.Errorf("a score of %g became %g", score, got)
		}
		for i, want := range c.want {
			if got := circle.Shift(i, steps[i]); (got - want*time.Millisecond).Abs() > 20*time.Millisecond {
				t.Errorf("job %d of %d is shifted by %v, want %v", i+1, len(steps), got, want*time.Millisecond)
			}
		}
	}
}
