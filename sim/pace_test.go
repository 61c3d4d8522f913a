package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/trace"
)

// A scheduler that knows only the speeds measured while jobs run does nearly as well as one that
// knows all speeds, and better than one that knows none.
func TestMeasuredSpeeds(t *testing.T) {
	truth := &perf.Table{Speed: map[string]map[string]int64{}}
	for i := range 6 { // from much faster on one model to much faster on the other
		truth.Speed[fmt.Sprint("m", i)] = map[string]int64{"V100-16GB": 1_000_000,
			"T4-16GB": []int64{100_000, 150_000, 300_000, 900_000, 1_500_000, 2_000_000}[i]}
	}
	r := rand.New(rand.NewPCG(3, 3))
	var entries []trace.Entry
	at := time.Duration(0)
	for i := range 250 {
		at += time.Duration(r.ExpFloat64() * float64(12*time.Minute))
		run := time.Duration(r.IntN(120)+30) * time.Minute
		entries = append(entries,
			trace.Entry{Run: run,
				Job: cluster.Job{ID: cluster.JobID(i), Tier: cluster.Standard, Submit: cluster.Time(at),
					Model: fmt.Sprint("m", r.IntN(6)), Estimate: run,
					Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}})
	}
	spec := shared.Must(cluster.ParseShort("4x2xV100-16GB"))
	for i := range spec.Nodes {
		if i%2 == 1 {
			spec.Nodes[i].Model = "T4-16GB"
		}
	}
	for _, pol := range []string{"allox", "gavel"} {
		mean := func(speeds sched.Speeds, told bool) float64 {
			out := Run(context.Background(), spec, entries,
				Setup{Policy: pol, Placer: "best-fit", Config: engine.Config{Speeds: speeds},
					World: Options{Model: truth, Paces: told}})
			s := out.Run.Summarise()
			if out.Err != nil || s.Completed != len(entries) {
				t.Fatalf("%s: %v, %d completed", pol, out.Err, s.Completed)
			}
			return s.JCT.Mean
		}
		known, told, ignorant := mean(perf.Belief{Model: truth}, false), mean(perf.Belief{Model: &perf.Table{}}, true),
			mean(perf.Belief{Model: &perf.Table{}}, false)
		t.Logf("%s: mean JCT %.0f s where speeds are known, %.0f where they are measured, %.0f where nothing is", pol,
			known, told, ignorant)
		if told > 1.1*known || told > 0.85*ignorant {
			t.Errorf("%s: mean JCT %.0f s where speeds are measured; %.0f where they are known, %.0f where nothing is",
				pol, told, known, ignorant)
		}
	}
}
