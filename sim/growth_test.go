package sim

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/trace"
)

// BenchmarkGrowth shows how the cost of a whole replay grows with the number of jobs and of GPUs,
// at an offered load of 0.9. us/job is the cost of one job from submission to end, including the
// simulated world.
func BenchmarkGrowth(b *testing.B) {
	for _, gpus := range []int{100, 1_000, 10_000, 100_000} {
		for _, jobs := range []int{1_000, 10_000, 100_000, 1_000_000} {
			s := shared.Must(
				trace.ParseSynth(fmt.Sprintf("preset=philly-like,jobs=%d,gpus=%d,load=0.9,seed=1", jobs, gpus)))
			for _, pol := range []string{"fifo", "las"} {
				b.Run(fmt.Sprintf("gpus=%d/jobs=%d/%s", gpus, jobs, pol), func(b *testing.B) {
					wl := shared.Must(trace.Synth(s))
					b.ResetTimer()
					for range b.N {
						spec := shared.Must(cluster.ParseShort(fmt.Sprintf("%dx8", (gpus+7)/8)))
						o := Run(context.Background(), spec, Prepare(wl, spec, Estimates{}, PerNode),
							Setup{Policy: pol, Placer: "best-fit"})
						if o.Err != nil {
							b.Fatal(o.Err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N)/float64(jobs), "us/job")
				})
			}
		}
	}
}
