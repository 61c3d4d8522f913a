package sim

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/trace"
)

// stepLimit fails the test when a replay takes more steps than it can need: two jobs that preempt
// each other would loop for ever.
type stepLimit struct {
	t    *testing.T
	left int
}

func (s *stepLimit) Record(b *engine.Batch, _ *engine.Decision) error {
	if s.left--; s.left < 0 {
		s.t.Fatalf("still deciding at %v: a preemption loop", b.Now)
	}
	return nil
}

// TestGuaranteesDoNotLoop replays a burst of recorded jobs under every policy, in queues of which
// some have guarantees: reclaim and the policy's own order must not undo each other.
func TestGuaranteesDoNotLoop(t *testing.T) {
	wl := shared.Must(trace.Open(shared.Path(t, "traces/philly/philly_pollux.csv"), trace.Options{}))
	burst := *wl
	burst.Jobs = append([]trace.Entry(nil), wl.Jobs[2000:2040]...)
	first := burst.Jobs[0].Job.Submit
	for i := range burst.Jobs {
		j := &burst.Jobs[i].Job
		j.ID, j.Submit = cluster.JobID(i), (j.Submit-first)/40
	}
	for _, pol := range policy.Names() {
		t.Run(pol, func(t *testing.T) {
			spec := shared.Must(cluster.ParseShort("2x8xV100-32GB"))
			AutoQueues(spec, &burst)
			spec.Queues[0].Guarantee, spec.Queues[1].Guarantee = 6000, 4000
			e := engineOn(spec, engine.Config{Policy: mustPolicy(t, pol)})
			w := NewWorld(spec, Prepare(&burst, spec, Estimates{}, PerNode), Options{})
			if err := driver.Run(t.Context(), e, w, &stepLimit{t, 200_000}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
