package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/trace"
)

// TestTurnsKeepMemory: jobs that take turns by suspension lose almost no work, however rarely they
// write checkpoints: turns, pairs and moves respect where their memory is.
func TestTurnsKeepMemory(t *testing.T) {
	spec := shared.Must(cluster.ParseShort("2x8xV100-32GB"))
	for pol, part := range map[string]time.Duration{"gandiva": 4000, "gandiva:pack=false": 4000, "gavel": 4000,
		"gandiva-fair": 100} {
		work, lost := time.Duration(0), time.Duration(0)
		for seed := range shared.Soak[uint64](2, 5) {
			r := rand.New(rand.NewPCG(seed, 0x686f6d65))
			entries := make([]trace.Entry, 30)
			at := cluster.Time(0)
			for i := range entries {
				at = at.Add(time.Duration(r.IntN(400)) * time.Second)
				run := time.Duration(10+r.IntN(400)) * time.Minute
				gpus := []int{1, 1, 2, 4, 8}[r.IntN(5)]
				entries[i] = trace.Entry{Run: run,
					Job: cluster.Job{ID: cluster.JobID(i), User: "u", Tier: cluster.Standard, Submit: at, Estimate: run,
						Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}},
						Checkpoint: cluster.Checkpoint{Interval: 30 * time.Minute, Cost: 20 * time.Second,
							Restart: time.Minute, Suspend: 2 * time.Second}}}
				work += run * time.Duration(gpus)
			}
			o := Run(t.Context(), spec, entries, Setup{Policy: pol, Placer: "best-fit", World: Options{Seed: seed},
				Config: engine.Config{
					Stop: &[3]engine.StopRule{{How: engine.Checkpoint}, {How: engine.Suspend, Grace: 2 * time.Minute},
						{How: engine.Kill}}}})
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			for i := range o.Run.Records {
				rec := &o.Run.Records[i]
				if rec.End == cluster.Never {
					t.Errorf("%s, seed %d: job %d has not ended", pol, seed, i)
				}
				lost += time.Duration(rec.Lost/cluster.Whole) * time.Millisecond
			}
		}
		if lost > work/part {
			t.Errorf("%s: %v of GPU time lost, of %v", pol, lost, work)
		}
		t.Logf("%s: %v lost of %v", pol, lost, work)
	}
}
