package results

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/sim"
)

// BenchmarkRecorded replays 5,000 jobs on the 847 recorded hosts at 4:1, under each traffic policy.
func BenchmarkRecorded(b *testing.B) {
	traces := filepath.Dir(filepath.Dir(shared.Path(b, "traces/topology/lingjun2023_topo.csv")))
	spec, err := recorded(traces, 4)
	if err != nil {
		b.Fatal(err)
	}
	wl, err := cruxWorkload(5000, spec.GPUs())
	if err != nil {
		b.Fatal(err)
	}
	sim.AutoQueues(spec, wl)
	list := sim.Prepare(wl, spec, sim.Estimates{}, sim.PerNode)
	for _, name := range traffic.Names() {
		b.Run(name, func(b *testing.B) {
			setup, err := cruxSetup(name)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				for _, o := range sim.RunAll(context.Background(), spec, list, []sim.Setup{setup}, nil) {
					if o.Err != nil {
						b.Fatal(o.Err)
					}
					b.ReportMetric(o.Run.Summarise().JCT.Mean/3600, "h/JCT")
				}
			}
		})
	}
}
