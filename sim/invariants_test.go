package sim

import (
	"context"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/trace"
)

// checker checks every invariant of the engine after every step.
type checker struct {
	e     *engine.Engine
	t     *testing.T
	steps int
}

func (c *checker) Record(b *engine.Batch, d *engine.Decision) error {
	c.steps++
	if err := c.e.CheckInvariants(); err != nil {
		c.t.Fatalf("step %d at %v: %v\nevents %+v\nactions %+v", c.steps, b.Now, err, b.Events, d.Actions)
	}
	return nil
}

func checked(t *testing.T, wl *trace.Workload, size, pol string, mode engine.Backfill, opt Options) {
	t.Helper()
	spec, err := cluster.ParseShort(size)
	if err != nil {
		t.Fatal(err)
	}
	AutoQueues(spec, wl)
	p, err := policy.New(pol)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := place.New("best-fit")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Spec: *spec, Policy: p, Placer: pl, Backfill: &mode})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWorld(spec, Prepare(wl, spec, Estimates{Sigma: 0.5, Seed: 3}, PerNode), opt)
	if err := driver.Run(context.Background(), e, w, &checker{e: e, t: t}); err != nil {
		t.Fatal(err)
	}
}

// TestInvariants replays an overloaded, failing cluster under every policy and
// backfill mode with every invariant checked after every step.
func TestInvariants(t *testing.T) {
	s, err := trace.ParseSynth("preset=small-team,jobs=150,gpus=16,load=1.4,seed=5")
	if err != nil {
		t.Fatal(err)
	}
	wl, err := trace.Synth(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, pol := range policy.Names() {
		for mode := engine.Strict; mode <= engine.Conservative; mode++ {
			t.Run(pol+"/"+mode.String(), func(t *testing.T) {
				checked(t, wl, "2x8xA100-80GB", pol, mode, Options{NodeMTBF: 5 * 24 * time.Hour, Seed: 7, Startup: time.Minute})
			})
		}
	}
}

// TestInvariantsOnMuri does the same on recorded jobs with a deep backlog.
func TestInvariantsOnMuri(t *testing.T) {
	wl, err := trace.Open(shared.Path(t, "traces/muri/trace1.csv"), trace.Options{Limit: 250})
	if err != nil {
		t.Fatal(err)
	}
	for _, pol := range []string{"las", "srtf"} {
		t.Run(pol, func(t *testing.T) { checked(t, wl, "4x8xV100-32GB", pol, engine.Skip, Options{}) })
	}
}
