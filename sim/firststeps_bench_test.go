//go:build linux

package sim

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/engine"
)

// BenchmarkFirstSteps measures the first 1,000 steps on a cluster that has just been filled, under
// policies with levels: jobs that started together cross a level together, with thousands of
// preemptions each time. Times are CPU time, which other load on the machine does not lengthen. Run
// it with -benchtime 1x: one iteration is all of the steps.
func BenchmarkFirstSteps(b *testing.B) {
	for _, gpus := range []int{10_000, 100_000} {
		for _, pol := range []string{"las", "tiresias-l", "tiresias-g", "gittins"} {
			b.Run(fmt.Sprintf("gpus=%d/%s", gpus, pol), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for range b.N {
					b.StopTimer()
					w := newStepWorld(b, gpus, 100_000, pol)
					runtime.GC()
					b.StartTimer()
					lat := make([]time.Duration, 0, 1000)
					var hash uint64
					for i := range 1000 {
						w.now = w.now.Add(time.Second)
						ev := w.arrivalOrEnd(i)
						from := threadTime(b)
						d := w.e.Step(engine.Batch{Now: w.now, Events: ev})
						lat = append(lat, threadTime(b)-from)
						hash = d.Hash
						w.step(w.answers(d))
					}
					b.Logf("hash %016x", hash)
					slices.Sort(lat)
					for name, i := range map[string]int{"p50-ms": 500, "p99-ms": 990, "max-ms": 999} {
						b.ReportMetric(float64(lat[i].Microseconds())/1000, name)
					}
				}
			})
		}
	}
}

// threadTime is the CPU time of the calling thread (getrusage counts in ticks of some
// milliseconds).
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
