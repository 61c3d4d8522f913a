package forward_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/internal/shared"
)

// BenchmarkWaiting restores an engine and runs ahead until all of its waiting jobs (of ten users, 1
// to 4 GPUs, a few minutes to some hours) have started on 8 GPUs.
func BenchmarkWaiting(b *testing.B) {
	for _, pol := range []string{"fifo", "multifactor", "srtf", "las"} {
		for _, n := range []int{1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", pol, n), func(b *testing.B) {
				cfg, snap := crowd(b, pol, n)
				var r *forward.Result
				for b.Loop() {
					e, err := engine.Restore(cfg, &snap)
					if err != nil {
						b.Fatal(err)
					}
					r = forward.Run(e, forward.Options{})
				}
				if r.End != forward.AllStarted {
					b.Fatalf("it ended %d after %d starts", r.End, len(r.Starts))
				}
				b.ReportMetric(float64(r.Steps), "steps")
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*r.Steps), "µs/step")
			})
		}
	}
}

func crowd(b *testing.B, pol string, n int) (engine.Config, engine.Snapshot) {
	cfg := configOf(b, "1x8xH100-80GB", pol)
	e := shared.Must(engine.New(cfg))
	r := rand.New(rand.NewPCG(1, 2))
	var events []engine.Event
	for i := range n {
		events = append(events,
			engine.Event{Type: engine.Submitted, Job: cluster.JobID(i), Spec: &cluster.Job{ID: cluster.JobID(i),
				User: fmt.Sprintf("u%d", r.IntN(10)), Name: "train", Tier: cluster.Standard,
				Estimate: time.Duration(300+r.IntN(14_000)) * time.Second,
				Tasks:    []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: pick(r, 1, 1, 2, 4)}}}}})
	}
	e.Step(engine.Batch{Now: 1, Events: events})
	return cfg, e.Snapshot()
}
