package compat

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

func flowTrace(t *testing.T, name, world string) Flow {
	t.Helper()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/elasticflow-itp/deadline/cluster10.csv")))
	x := Flow{Trace: filepath.Join(dir, "deadline", name+".csv"),
		Profiles: filepath.Join(dir, "profiles", "throughputs_A100"), Nodes: 64, World: world}
	if name == "cluster10" {
		x.Nodes = 32
	}
	return x
}

// The number of met deadlines equals that of the published simulator.
func TestFlow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, world         string
		from, to, met, jobs int
	}{
		{"cluster10", "edf", 0, 0, 202, 260},
		{"cluster01", "edf", 0, 0, 298, 1595},
		{"cluster10", "gandiva", 0, 0, 86, 260},
		{"cluster01", "gandiva", 0, 0, 259, 1595},
		{"cluster05", "gandiva", 0, 0, 902, 3629},
		{"cluster10", "elasticflow", 0, 0, 250, 260},
		{"cluster06", "elasticflow", 300, 800, 213, 500},
		{"cluster02", "elasticflow", 0, 450, 372, 450},
	} {
		x := flowTrace(t, c.name, c.world)
		x.From, x.To = c.from, c.to
		w, err := RunFlow(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		if met, n := w.Met(); met != c.met || n != c.jobs {
			t.Errorf("%s, %s: %d of %d meet their deadlines, want %d of %d", c.name, c.world, met, n, c.met, c.jobs)
		}
	}
}

// Under our policies, too, all jobs end in that world.
func TestFlowOurs(t *testing.T) {
	t.Parallel()
	met := map[string]int{}
	for _, c := range []struct {
		name, world, policy string
		largest             bool
		jobs                int
	}{{"elastic", "edf", "edf", false, 0}, {"largest", "edf", "edf", true, 0},
		{"gandiva", "gandiva", "gandiva:pack=false", false, 0},
		{"elasticflow", "elasticflow", "elasticflow", false, 30},
		{"themis", "themis", "themis", false, 0}, {"chronus", "chronus", "chronus", false, 0}} {
		x := flowTrace(t, "cluster10", c.world)
		x.Policy, x.Largest, x.To = c.policy, c.largest, c.jobs
		w, err := RunFlow(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		for i := range w.jobs {
			if j := &w.jobs[i]; !j.over || j.left > 1e-6*j.rate(j.most) {
				t.Errorf("%s: job %d is over: %t, with %g of its work left", c.name, i, j.over, j.left)
			}
		}
		met[c.name], _ = w.Met()
	}
	for _, name := range []string{"gandiva", "themis", "chronus"} {
		if met[name] > 124 || met[name] < 100 {
			t.Errorf("%s: %d deadlines are met; at most 124 are possible with those sizes and run times", name,
				met[name])
		}
	}
	if met["largest"] >= met["elastic"] {
		t.Errorf("%d deadlines are met with the largest gangs, %d with elastic jobs; want fewer", met["largest"],
			met["elastic"])
	}
}

func TestFlowUnknown(t *testing.T) {
	t.Parallel()
	x := flowTrace(t, "cluster10", "edv")
	if _, err := RunFlow(context.Background(), x); err == nil {
		t.Error("no error for a world that is not there")
	}
	x.World = "themis"
	if _, err := RunFlow(context.Background(), x); err == nil {
		t.Error("no error for a world without rules, and no policy")
	}
}

// planned is a job with a number of iterations, at the same speed on any number of GPUs.
func planned(most int, speed, left float64) *flowJob {
	j := &flowJob{most: most, left: left}
	for i := range j.speed {
		j.speed[i] = speed
	}
	return j
}

// ElasticFlow's simulator, examples A and B.
func TestFlowEDFPlans(t *testing.T) {
	t.Parallel()
	f := &flowEDF{w: &FlowWorld{total: 8}}
	p, q := planned(8, 2, 600), planned(8, 2, 100)
	free := f.plan(p, timeline{{0, 8}})
	if want := (timeline{{0, 0}, {300, 8}}); p.end != 300 || p.want != 8 || !reflect.DeepEqual(free, want) {
		t.Errorf("first: %d GPUs until %d, leaves %v; want 8 until 300, %v", p.want, p.end, free, want)
	}
	free = f.plan(q, free)
	if want := (timeline{{0, 0}, {360, 8}}); q.end != 350 || q.want != 0 || !reflect.DeepEqual(free, want) {
		t.Errorf("second: %d GPUs, until %d, leaves %v; want none until 350, %v", q.want, q.end, free, want)
	}
	b := planned(4, 1, 100)
	free = f.plan(b, timeline{{0, 6}, {120, 2}, {240, 8}})
	if want := (timeline{{0, 2}, {120, 6}, {240, 8}}); b.end != 100 || !reflect.DeepEqual(free, want) {
		t.Errorf("until %d, leaves %v; want 100, %v", b.end, free, want)
	}
}

// ElasticFlow's simulator, example F.
func TestAgendaGathers(t *testing.T) {
	t.Parallel()
	a := agenda{{at: 20, come: []int{1}}, {at: 45, ends: []int{2}}, {at: 60, come: []int{3}}, {at: 61, come: []int{4}}}
	a.gather(0)
	if want := (agenda{{at: 60, come: []int{1, 3}, ends: []int{2}}, {at: 61, come: []int{4}}}); !reflect.DeepEqual(a,
		want) {
		t.Errorf("have %v, want %v", a, want)
	}
	a = agenda{{at: 20, come: []int{1}}}
	if a.gather(0); a[0].at != 20 {
		t.Errorf("one alone is at %d, want 20", a[0].at)
	}
}

// ElasticFlow's simulator, example G: the eighth one-GPU job joins the others on their node, where
// all run; with the ninth, jobs take turns.
func TestFlowGandivaPlaces(t *testing.T) {
	t.Parallel()
	w := &FlowWorld{total: 8}
	for range 9 {
		w.jobs = append(w.jobs, flowJob{gpus: 1, duration: 100})
		w.known = append(w.known, len(w.known))
	}
	f, err := newFlowGandiva(w)
	if err != nil {
		t.Fatal(err)
	}
	w.events = agenda{{at: 0, come: w.known}}
	f.decide()
	run := 0
	for i := range w.jobs {
		run += w.jobs[i].want
	}
	if one := f.sizes[0]; len(one.groups) != 1 || one.groups[0].util != 9 || run != 8 || f.free != 0 {
		t.Errorf("%d groups, util %d, %d run, %d nodes free; want 1, 9, 8, 0", len(one.groups), one.groups[0].util, run,
			f.free)
	}
}

// ElasticFlow's simulator, examples D and E: two GPUs meet the deadline; the two other free ones
// cost 60 additional GPU-seconds each.
func TestFlowElasticPlans(t *testing.T) {
	t.Parallel()
	w := &FlowWorld{total: 4, known: []int{0},
		jobs: []flowJob{{deadline: 90, most: 4, left: 100, speed: [flowLevels]float64{1, 1.8, 3}}}}
	j := &w.jobs[0]
	f := &flowElastic{w: w, nodes: newFlowNodes(1), gains: make([]flowGain, 1)}
	if !f.estimate(w.known) || j.real != 56 || j.end != 60 ||
		!reflect.DeepEqual(j.plan, timeline{{0, 2}, {120, 0}}[:1]) ||
		!reflect.DeepEqual(f.free, timeline{{0, 2}, {60, 4}}) {
		t.Errorf("plan %v to %d (%d) leaves %v; want 2 GPUs to 56 (60), and 2 free, 4 from 60 on", j.plan, j.real,
			j.end, f.free)
	}
	j.want = 2
	f.gains[0].gpus = -1
	if f.weigh(0, 2); f.gains[0].gpus != 4 || f.gains[0].gain != 60 || f.gains[0].fit.real != 34 {
		t.Errorf("next: %d GPUs, %g GPU-seconds for each more, until %d; want 4, 60, 34", f.gains[0].gpus,
			f.gains[0].gain, f.gains[0].fit.real)
	}
}

// A job in a place where a job of its size has been since the last restart finds it warm.
func TestFlowNodes(t *testing.T) {
	t.Parallel()
	w := &FlowWorld{known: []int{0, 1, 2}, jobs: []flowJob{{want: 8}, {want: 4}, {want: 4}}}
	n, warm := newFlowNodes(2), map[[2]int]bool{}
	for round := range 2 {
		n.place(w)
		got := n.cached(w, warm)
		if want := round > 0; got[0] != want || got[1] != want || got[2] != want {
			t.Errorf("round %d: %v", round, got)
		}
		if n.where[1] != n.where[2] || n.where[0] == n.where[1] || len(n.free) != 0 {
			t.Error("the jobs of four GPUs are not on one node")
		}
		for _, i := range w.known {
			n.release(i, w.jobs[i].want)
		}
	}
}
