package sim

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/search"
	"github.com/muster-gpu/muster/trace"
)

// searching is a search over two parameters whose steps take a minute.
func searching(t *testing.T, m search.Method, atOnce int) *Searching {
	t.Helper()
	s, err := search.New(m)
	if err != nil {
		t.Fatal(err)
	}
	job := cluster.Job{User: "search", Kind: cluster.Trial,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	return &Searching{Search: s, Scale: m.Scale, AtOnce: atOnce, Job: job,
		Curves: Curves{Params: []search.Parameter{{Name: "a", Kind: search.Uniform, High: 1},
			{Name: "b", Kind: search.Uniform, High: 1}},
			Seed: 5, Unit: max(1, m.Min), Step: time.Minute, Noise: 0.01, Scaled: 0.25, Fused: 0.5}}
}

func playSearch(t *testing.T, s *Searching, size string, entries []trace.Entry, set Setup) Outcome {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	if set.Policy == "" {
		set.Policy = "fifo"
	}
	set.Placer, set.World.Search = "best-fit", s
	out := Run(context.Background(), spec, entries, set)
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	if !s.Found.Done || !s.Found.Known {
		t.Fatalf("the search ended too early: %+v", s.Found)
	}
	return out
}

// On one GPU, with trials of equal speed, a search takes the steps of its plan.
func TestSearchTakesItsPlan(t *testing.T) {
	for _, m := range []search.Method{{Name: search.Random, Trials: 6, Max: 10},
		{Name: search.Halving, Trials: 18, Min: 1, Max: 9, Eta: 3}, {Name: search.Band, Min: 1, Max: 27, Eta: 3}} {
		want := int64(0)
		for _, b := range m.Plan() {
			want += b.Paid(false)
		}
		s := searching(t, m, 3)
		playSearch(t, s, "1x1xA100-80GB", nil, Setup{})
		if f := &s.Found; f.Steps != want || f.End.Sub(f.Begin) != time.Duration(want)*time.Minute ||
			math.Abs(f.GPUHours-float64(want)/60) > 1e-9 {
			t.Errorf("%s: %d steps, %v, %g GPU-hours; planned were %d", m.Name, f.Steps, f.End.Sub(f.Begin), f.GPUHours,
				want)
		}
	}
}

// The trials of a fused process add up: 20 trials in 3 processes of 7, 7 and 6, each step 1 +
// 0.5*(n-1) minutes; the narrow model takes a quarter of that.
func TestSearchFused(t *testing.T) {
	s := searching(t, search.Method{Name: search.Hydro, Trials: 20, Min: 4, Max: 4, Eta: 3, Scale: 1, Eager: 1000,
		Fusion: []int{7}}, 3)
	playSearch(t, s, "1x3xA100-80GB", nil, Setup{})
	if f := &s.Found; f.Runs != 3 || f.Steps != 80 || f.End.Sub(f.Begin) != 16*time.Minute ||
		math.Abs(f.GPUHours-(16+16+14)/60.) > 1e-9 {
		t.Errorf("%+v", f)
	}
	s = searching(t, search.Method{Name: search.Hydro, Trials: 9, Min: 4, Max: 4, Eta: 3, Scale: 8, Eager: 1000}, 1)
	playSearch(t, s, "1x1xA100-80GB", nil, Setup{})
	if f := &s.Found; f.Runs != 10 || !f.Best.Target || f.End.Sub(f.Begin) != (9+4)*time.Minute {
		t.Errorf("%+v", f)
	}
}

// Running trials are stopped where they are: a trial that is stopped at a rung has done that rung's
// steps, and holds no GPU afterwards.
func TestSearchStops(t *testing.T) {
	m := search.Method{Name: search.ASHA, Trials: 30, Min: 1, Max: 27, Eta: 3, Stopping: true}
	s := searching(t, m, 4)
	out := playSearch(t, s, "1x4xA100-80GB", nil, Setup{})
	full, short, sum := 0, 0, int64(0)
	for i := range out.Run.Records {
		steps := int64(out.Run.Records[i].Ran / time.Minute)
		sum += steps
		switch steps {
		case 27:
			full++
		case 1, 3, 9:
			short++
		default:
			t.Errorf("trial %d ran for %d steps", i, steps)
		}
	}
	if full == 0 || short < 15 || full+short != 30 || s.Found.Steps != sum {
		t.Errorf("%d to the end, %d stopped", full, short)
	}
}

// Two runs give the same hash and the same best trial, with node failures and preemptions; and
// every method ends. More trials at once are never slower where trials do not wait for each other.
func TestSearchDeterministic(t *testing.T) {
	syn := shared.Must(trace.ParseSynth("preset=small-team,jobs=60,gpus=16,load=1.4,seed=5"))
	wl := shared.Must(trace.Synth(syn))
	methods := []search.Method{{Name: search.Random, Trials: 10, Max: 9},
		{Name: search.Halving, Trials: 30, Min: 1, Max: 27, Eta: 3}, {Name: search.Band, Min: 1, Max: 9, Eta: 3},
		{Name: search.ASHA, Trials: 40, Min: 1, Max: 27, Eta: 3},
		{Name: search.ASHA, Trials: 40, Min: 1, Max: 27, Eta: 3, Stopping: true},
		{Name: search.Hydro, Trials: 40, Min: 1, Max: 27, Eta: 3, Scale: 8, Eager: 500, Fusion: []int{5}}}
	for _, m := range methods {
		for _, policy := range []string{"fifo", "las", "gandiva"} {
			var hash [2]uint64
			var found [2]Found
			for k := range hash {
				s := searching(t, m, 6)
				s.Curves.Spread = 0.4
				s.Job.Tier = cluster.BestEffort
				spec := shared.Must(cluster.ParseShort("4x4xV100-32GB"))
				AutoQueues(spec, wl)
				set := Setup{Policy: policy,
					World: Options{NodeMTBF: 40 * time.Hour, Seed: 3, Startup: 20 * time.Second}}
				out := playSearch(t, s, "4x4xV100-32GB",
					Prepare(wl, &cluster.Spec{Nodes: spec.Nodes, Models: spec.Models}, Estimates{}, PerNode), set)
				hash[k], found[k] = out.Hash, s.Found
			}
			if hash[0] != hash[1] || found[0] != found[1] || hash[0] == 0 {
				t.Errorf("%s, %s: %x %+v, again %x %+v", m.Name, policy, hash[0], found[0], hash[1], found[1])
			}
		}
	}
	last := time.Duration(math.MaxInt64)
	for _, n := range []int{1, 4, 16} {
		s := searching(t, methods[3], n)
		s.Curves.Spread = 0.4
		playSearch(t, s, "4x4xV100-32GB", nil, Setup{})
		took := s.Found.End.Sub(s.Found.Begin)
		if took >= last {
			t.Errorf("%d at once: %v, fewer took %v", n, took, last)
		}
		last = took
	}
}

// A search whose trials can never run ends and says so.
func TestSearchImpossible(t *testing.T) {
	s := searching(t, search.Method{Name: search.Random, Trials: 5, Max: 2}, 2)
	s.Job.Tasks[0].Request.GPUs = 8
	spec := shared.Must(cluster.ParseShort("1x4xA100-80GB"))
	out := Run(context.Background(), spec, nil, Setup{Policy: "fifo", Placer: "best-fit", World: Options{Search: s}})
	if out.Err != nil || !s.Found.Done || s.Found.Known || s.Found.Runs != 5 {
		t.Errorf("%v, %+v", out.Err, s.Found)
	}
	if why := out.Run.Records[0].Why; why == "" {
		t.Error("no reason why the trials do not run")
	}
}

// Invariants of the engine hold after every step, with trials that come and go.
func TestSearchInvariants(t *testing.T) {
	for _, m := range []search.Method{{Name: search.ASHA, Trials: 40, Min: 1, Max: 27, Eta: 3},
		{Name: search.ASHA, Trials: 40, Min: 1, Max: 27, Eta: 3, Stopping: true}} {
		s := searching(t, m, 9)
		wl := &trace.Workload{
			Jobs: []trace.Entry{
				{Job: cluster.Job{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 3}}}},
					Run: time.Hour}}}
		c := checked(t, wl, "2x4xA100-80GB", "las", engine.EASY, Options{Search: s, NodeMTBF: 10 * time.Hour})
		if !s.Search.Done() || c.steps < 40 {
			t.Errorf("%s: done %v after %d steps", m.Name, s.Search.Done(), c.steps)
		}
	}
}
