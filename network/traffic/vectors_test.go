package traffic

import (
	"encoding/json"
	"fmt"
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
			DR, DJ, K      number
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
		if dr, dj := gains(c.Reference, c.Job, c.Window); !c.DR.near(dr) || !c.DJ.near(dj) {
			t.Errorf("%s: gains %v and %v, want %v and %v", c.Name, dr, dj, c.DR, c.DJ)
		}
	}
	if len(v.Cases) != 9 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

// gains are the seconds of transmission that a reference and a job gain by going first.
func gains(reference, job timed, window number) (dr, dj float64) {
	first, second := pairOnLink(reference.lone(), job.lone(), seconds(window))
	return (first[0] - second[0]).Seconds(), (second[1] - first[1]).Seconds()
}

// everyMap visits all maps of so many jobs to values below a bound, in lexicographic order.
func everyMap(jobs, below int, visit func(at []int)) {
	at := make([]int, jobs)
	for {
		visit(at)
		i := jobs - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < below {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// everyOrder visits all orders of so many, as the place of each, in lexicographic order.
func everyOrder(n int, visit func(place []int)) {
	place := make([]int, 0, n)
	var next func()
	next = func() {
		if len(place) == n {
			visit(place)
		}
		for v := range n {
			if !slices.Contains(place, v) {
				place = append(place, v)
				next()
				place = place[:len(place)-1]
			}
		}
	}
	next()
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

// load is what jobs put on links, by name, in seconds, and the most of it.
func (u *unitLinks) load(jobs []Job, ts []cluster.Treatment) (load map[string]float64, most float64) {
	load = map[string]float64{}
	for _, on := range loads(jobs, ts) {
		for _, b := range on {
			load[u.names[b.Link]] += float64(b.Bytes) / 1e9
			most = max(most, load[u.names[b.Link]])
		}
	}
	return load, most
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
			GPUSeconds number            `json:"gpu_seconds"`
			Load       map[string]number `json:"link_load"`
			MaxLoad    number            `json:"max_load"`
			MinMaxLoad number            `json:"min_max_load"`
			MinMax     []int             `json:"min_max_load_choice"`
			BestGPU    number            `json:"best_gpu_seconds"`
			Best       []int             `json:"best_choice"`
			Ratio      number
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
		got := gpuSeconds(f, jobs, ts, seconds(c.Horizon))
		if !c.GPUSeconds.near(got) {
			t.Errorf("%s: %v GPU-seconds, want %v", c.Name, got, c.GPUSeconds)
		}
		load, most := links.load(jobs, ts)
		if len(load) != len(c.Load) || !c.MaxLoad.near(most) {
			t.Errorf("%s: loads %v, at most %v; want %v, at most %v", c.Name, load, most, c.Load, c.MaxLoad)
		}
		for name, want := range c.Load {
			if !want.near(load[name]) {
				t.Errorf("%s: %s carries %v, want %v", c.Name, name, load[name], want)
			}
		}
		var minMax, best []int
		least, top := math.Inf(1), 0.0
		everyMap(len(jobs), 2, func(at []int) {
			other := slices.Clone(ts)
			for i, path := range at {
				if path >= len(c.Candidates[i]) {
					return
				}
				other[i].Path = []uint8{uint8(path)}
			}
			if _, most := links.load(jobs, other); most < least {
				minMax, least = slices.Clone(at), most
			}
			if sum := gpuSeconds(f, jobs, other, seconds(c.Horizon)); sum > top+1e-6 {
				best, top = slices.Clone(at), sum
			}
		})
		if !slices.Equal(minMax, c.MinMax) || !c.MinMaxLoad.near(least) {
			t.Errorf("%s: least load %v by %v, want %v by %v", c.Name, least, minMax, c.MinMaxLoad, c.MinMax)
		}
		if !slices.Equal(best, c.Best) || !c.BestGPU.near(top) || !c.Ratio.near(got/top) {
			t.Errorf("%s: best %v by %v, of which that is %v; want %v by %v, %v", c.Name, top, best, got/top, c.BestGPU,
				c.Best, c.Ratio)
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
			Intensity  []number
			Gains      [][2]number `json:"dr_dj"`
			K          []number
			P          []number
			Level      []int
			GPUSeconds number `json:"gpu_seconds"`
			Plain      number `json:"intensity_only_gpu_seconds"`
			Fair       number `json:"fair_share_gpu_seconds"`
			Best       number `json:"best_gpu_seconds"`
			BestLevel  []int  `json:"best_level"`
			Worst      number `json:"worst_gpu_seconds"`
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
		in, _ := NewCrux(Published).Priorities(f, jobs)
		for i := range jobs {
			if !c.Intensity[i].near(in[i]) {
				t.Errorf("%s: intensity of %d: %v, want %v", c.Name, i, in[i], c.Intensity[i])
			}
			if i == c.Reference {
				continue
			}
			k := factor(c.Jobs[c.Reference].lone(), c.Jobs[i].lone(), seconds(c.Horizon))
			dr, dj := gains(c.Jobs[c.Reference], c.Jobs[i], c.Horizon)
			if !c.K[i].near(k) || !c.Gains[i][0].near(dr) || !c.Gains[i][1].near(dj) || !c.P[i].near(k*in[i]) {
				t.Errorf("%s: job %d: gains %v and %v, factor %v, priority %v; want %v, %v, %v", c.Name, i, dr, dj, k,
					k*in[i], c.Gains[i], c.K[i], c.P[i])
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
		played := func(level []int) float64 {
			ts := make([]cluster.Treatment, len(level))
			for i, l := range level {
				ts[i].Class = 1 + l
			}
			return gpuSeconds(f, jobs, ts, seconds(c.Horizon))
		}
		plain := NewCrux(1).Treat(f, jobs)
		if got := gpuSeconds(f, jobs, plain, seconds(c.Horizon)); !c.Plain.near(got) {
			t.Errorf("%s: by intensity: %v GPU-seconds, want %v", c.Name, got, c.Plain)
		}
		var best []int
		most, least := 0.0, math.Inf(1)
		everyOrder(len(jobs), func(level []int) {
			sum := played(level)
			if least = min(least, sum); sum > most+1e-6 {
				best, most = slices.Clone(level), sum
			}
		})
		if !c.Best.near(most) || !slices.Equal(best, c.BestLevel) || !c.Worst.near(least) {
			t.Errorf("%s: best %v by %v, worst %v; want %v by %v, %v", c.Name, most, best, least, c.Best, c.BestLevel,
				c.Worst)
		}
	}
	if len(v.Cases) != 5 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

func TestCompression(t *testing.T) {
	var v struct {
		Cases []struct {
			Name          string
			Nodes         int
			Edges         [][3]int
			K             int
			Total         float64 `json:"total_weight"`
			Orders        int     `json:"topological_orders"`
			Identity      float64 `json:"identity_order_cut"`
			IdentityLevel []int   `json:"identity_order_level"`
			Best          float64 `json:"best_cut"`
			BestOrder     []int   `json:"a_best_order"`
			BestLevel     []int   `json:"best_level"`
			WorstOrder    float64 `json:"worst_order_cut"`
			Exhaustive    float64 `json:"exhaustive_best_cut"`
			Firsts        float64 `json:"sincronia_mapping_cut"`
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
		if cut, level := g.cut(identity, c.K); cut != c.Identity || weigh(level) != cut ||
			weigh(c.IdentityLevel) != cut {
			t.Errorf("%s: identity order cuts %v (%v), want %v (%v)", c.Name, cut, level, c.Identity, c.IdentityLevel)
		}
		if got := weigh(compress(c.K, g)); got != c.Best {
			t.Errorf("%s: %v, want %v", c.Name, got, c.Best)
		}
		if cut, level := g.cut(c.BestOrder, c.K); cut != c.Best || weigh(level) != cut || weigh(c.BestLevel) != cut {
			t.Errorf("%s: order %v cuts %v (%v), want %v (%v)", c.Name, c.BestOrder, cut, level, c.Best, c.BestLevel)
		}
		orders, most, least := 0, 0.0, math.Inf(1)
		everyOrder(c.Nodes, func(place []int) {
			if !keeps(place, c.Edges, func(a, b int) bool { return a < b }) {
				return
			}
			order := make([]int, c.Nodes)
			for i, at := range place {
				order[at] = i
			}
			orders++
			cut, _ := g.cut(order, c.K)
			most, least = max(most, cut), min(least, cut)
		})
		if orders != c.Orders || most != c.Best || least != c.WorstOrder {
			t.Errorf("%s: %d orders cut %v to %v, want %d, %v to %v", c.Name, orders, least, most, c.Orders,
				c.WorstOrder, c.Best)
		}
		all, best := 0.0, 0.0
		for _, e := range c.Edges {
			all += float64(e[2])
		}
		everyMap(c.Nodes, c.K, func(level []int) {
			if keeps(level, c.Edges, func(a, b int) bool { return a <= b }) {
				best = max(best, weigh(level))
			}
		})
		firsts := make([]int, c.Nodes)
		for i := range firsts {
			firsts[i] = class(i, c.K) - 1
		}
		if all != c.Total || best != c.Exhaustive || weigh(firsts) != c.Firsts {
			t.Errorf("%s: of %v the best map cuts %v, Sincronia's %v; want %v, %v, %v", c.Name, all, best, weigh(firsts),
				c.Total, c.Exhaustive, c.Firsts)
		}
	}
	if len(v.Cases) != 9 {
		t.Errorf("%d cases", len(v.Cases))
	}
}

// keeps reports whether a map of jobs holds on each edge.
func keeps(at []int, edges [][3]int, holds func(a, b int) bool) bool {
	return !slices.ContainsFunc(edges, func(e [3]int) bool { return !holds(at[e[0]], at[e[1]]) })
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
			Chosen  [][2]any `json:"selection_last_to_first"`
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
		for k, chosen := range c.Chosen { // of ports that are loaded as much, the vectors name the egress port
			rest := c.Order[:len(c.Order)-k]
			var busiest []string
			most := 0.0
			for p := range load {
				sum := 0.0
				for _, i := range rest {
					sum += load[p][i]
				}
				if sum > most {
					busiest, most = nil, sum
				}
				if sum == most {
					busiest = append(busiest, fmt.Sprint([]string{"i", "e"}[p/ports], p%ports))
				}
			}
			last := rest[len(rest)-1]
			if name, _ := chosen[0].(string); !slices.Contains(busiest, name) || chosen[1] != float64(last) {
				t.Errorf("%s: %v, want %d on one of %v", c.Name, chosen, last, busiest)
			}
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
			Perimeter number `json:"perimeter_ms"`
			Repeats   []int64
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
		for i, r := range rings {
			if got := int64(circle.Perimeter / r.Iteration); got != c.Repeats[i] {
				t.Errorf("%s: job %d repeats %d times, want %d", c.Name, i, got, c.Repeats[i])
			}
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
