package sim

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/driver/drivertest"
	"github.com/muster-gpu/muster/trace"
)

// TestDriver runs the suite that every driver must pass, with and without latencies.
func TestDriver(t *testing.T) {
	for _, startup := range []time.Duration{0, 5 * time.Millisecond} {
		t.Run(startup.String(), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T, f *drivertest.Fixture) driver.Driver {
				var entries []trace.Entry
				for _, j := range f.Jobs {
					e := trace.Entry{Job: j.Job, Run: j.Run, End: cluster.Time(j.Cancel)}
					if j.Fails {
						e.Outcome = trace.Failed
					}
					if j.Run == 0 {
						e.Job.Kind = cluster.Service
					}
					e.Job.Checkpoint.Cost = startup
					entries = append(entries, e)
				}
				return NewWorld(&f.Spec, entries, Options{Startup: startup})
			})
		})
	}
}
