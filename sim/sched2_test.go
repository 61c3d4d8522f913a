package sim

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/learn"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/trace"
)

// The world in which policy sched2 learns has the same rules as this one: with the shipped weights
// every job starts and ends at the same time in both.
func TestLearnWorld(t *testing.T) {
	agent, err := learn.Load(learn.SystemSched2, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	loss := [2]float64{0.25, 0.5}
	speeds := &perf.Table{
		Distance: map[string]map[cluster.Level]int64{"*": {cluster.LevelRack: 750_000, cluster.LevelFabric: 500_000}}}
	waits, several := 0, 0
	for seed := range uint64(25) {
		random := learn.NewRand(seed)
		mix := random.Mix(0.7 + 0.03*float64(seed))
		mix.Unknown = false // otherwise jobs that have ended would tell how long others run
		w := mix.World(random)
		spec := &cluster.Spec{Name: "learn"}
		for i, r := range w.Rooms {
			spec.Nodes = append(spec.Nodes,
				cluster.Node{Name: fmt.Sprintf("n%d", i), Rack: fmt.Sprintf("r%d", r.Rack), GPUs: int(r.GPUs),
					Model: "T4"})
		}
		var entries []trace.Entry
		for i := range w.Jobs {
			j := &w.Jobs[i]
			j.Submit, j.Run = math.Floor(j.Submit), max(60, 12*math.Floor(j.Run/12))
			if j.Tasks > 1 {
				j.Loss = loss
			}
			run := time.Duration(j.Run) * time.Second
			e := trace.Entry{Run: run,
				Job: cluster.Job{ID: cluster.JobID(i), Tier: cluster.Standard,
					Submit: cluster.Time(time.Duration(j.Submit) * time.Second),
					Tasks:  []cluster.TaskSet{{Count: int(j.Tasks), Request: cluster.Request{GPUs: int(j.Each)}}}}}
			e.Job.Estimate = run
			entries = append(entries, e)
		}
		want := w.Play(learn.NewSched2(agent), nil)
		out := Run(context.Background(), spec, entries,
			Setup{Policy: "sched2", Placer: "best-fit", World: Options{Model: speeds}})
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		for i := range w.Jobs {
			r := &out.Run.Records[i]
			start, end := time.Duration(want.Start[i]*1e9), time.Duration(want.End[i]*1e9)
			if d := time.Duration(r.FirstStart) - start; d.Abs() > time.Millisecond {
				t.Fatalf("seed %d: job %d (%+v) starts at %v, in the world of learning at %v", seed, i, w.Jobs[i],
					time.Duration(r.FirstStart), start)
			}
			if d := time.Duration(r.End) - end; d.Abs() > time.Millisecond {
				t.Fatalf("seed %d: job %d (%+v) ends at %v, in the world of learning at %v", seed, i, w.Jobs[i],
					time.Duration(r.End), end)
			}
			waits, several = waits+one(start > time.Duration(w.Jobs[i].Submit)*time.Second),
				several+one(end-start > time.Duration(w.Jobs[i].Run)*time.Second+1)
		}
	}
	if waits < 100 || several < 20 {
		t.Errorf("only %d jobs wait, and %d are spread: too few to test anything", waits, several)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
