package sim

import (
	"context"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/trace"
)

// A fault of one MPS client ends the other clients of its GPU, which resume from their last
// checkpoints; jobs on other GPUs, in MIG slices or in time-sliced shares are not affected.
func TestMPSFaults(t *testing.T) {
	share := cluster.Request{GPUs: 1, Share: 250, Memory: 1000}
	for _, c := range []struct {
		what    string
		sharing cluster.Sharing
		faults  float64
		failed  trace.Outcome
		asks    cluster.Request // of all three jobs, which have one user
		lost    time.Duration   // by the job with a checkpoint every four minutes
		all     time.Duration   // by the job without checkpoints
	}{
		{"a fault", cluster.MPS, 1, trace.Failed, share, 2 * time.Minute, 10 * time.Minute},
		{"no failure is a fault", cluster.MPS, 0, trace.Failed, share, 0, 0},
		{"no failure", cluster.MPS, 1, trace.Succeeded, share, 0, 0},
		{"cancelled", cluster.MPS, 1, trace.Cancelled, share, 0, 0},
		{"by turns", cluster.TimeSlicing, 1, trace.Failed, share, 0, 0},
		{"slices", cluster.MPS, 1, trace.Failed, cluster.Request{GPUs: 1, Profile: "1g.10gb"}, 0, 0},
		{"a GPU each", cluster.MPS, 1, trace.Failed, cluster.Request{GPUs: 1}, 0, 0},
	} {
		spec := shared.Must(cluster.ParseShort("1x3xH100-80GB"))
		spec.Sharing = c.sharing
		entry := func(id int, run time.Duration) trace.Entry {
			return trace.Entry{Run: run,
				Job: cluster.Job{ID: cluster.JobID(id), User: "u", Tier: cluster.Standard, Estimate: run,
					Tasks: []cluster.TaskSet{{Count: 1, Request: c.asks}}}}
		}
		entries := []trace.Entry{entry(0, 10*time.Minute), entry(1, time.Hour), entry(2, time.Hour)}
		entries[0].Outcome = c.failed
		entries[1].Job.Checkpoint.Interval = 4 * time.Minute
		out := Run(context.Background(), spec, entries,
			Setup{Policy: "fifo", Placer: "best-fit", World: Options{Faults: c.faults}})
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		for id, want := range []time.Duration{10 * time.Minute, time.Hour + c.lost, time.Hour + c.all} {
			if r := out.Run.Records[id]; time.Duration(r.End) != want {
				t.Errorf("%s: job %d ends after %v, want %v", c.what, id, time.Duration(r.End), want)
			}
		}
	}
}
