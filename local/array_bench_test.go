//go:build linux

package local

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/local/evidence"
)

// BenchmarkArray: an array is submitted behind a job that keeps the machine busy, and cancelled again in one
// request. Run it with -benchtime 1x.
func BenchmarkArray(b *testing.B) {
	for _, n := range []int{5_000, 50_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchArray(b, n) })
	}
}

func benchArray(b *testing.B, n int) {
	for b.Loop() {
		b.StopTimer()
		m, u, _ := crowd(b, 0)
		used, written := heapNow(), stateSize(b, m)
		b.StartTimer()
		start, cpu := time.Now(), processorTime(b)
		ids, err := m.Submit(b.Context(), u,
			&ask.Submission{Command: []string{"true"}, Dir: "/", Output: "/dev/null", GPUs: 1,
				Env: []string{"A=B"}, Array: "1-" + strconv.Itoa(n)}, "")
		if err != nil || len(ids) != n {
			b.Fatal(len(ids), err)
		}
		submitted := time.Since(start)
		b.StopTimer()
		b.ReportMetric(float64((processorTime(b) - cpu).Milliseconds()), "submit-cpu-ms")
		b.ReportMetric(float64(submitted.Milliseconds()), "submit-ms")
		b.ReportMetric(float64(heapNow()-used)/float64(n), "B/element")
		b.ReportMetric(float64(stateSize(b, m)-written)/float64(n), "stored-B/element")
		b.StartTimer()
		start, cpu = time.Now(), processorTime(b)
		done, err := m.ActOnAll(b.Context(), &ask.Selection{Jobs: ids[:1]}, "cancel",
			Requester{Name: u.Name, Owns: func(string) bool { return true }})
		if err != nil || len(done.Jobs) != n {
			b.Fatal(len(done.Jobs), err)
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "cancel-ms")
		b.ReportMetric(float64((processorTime(b) - cpu).Milliseconds()), "cancel-cpu-ms")
	}
}

// processorTime is what the process used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heapNow is the memory that is in use.
func heapNow() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// stateSize is the size of the state's database with what is still in its WAL.
func stateSize(b *testing.B, m *Machine) (n int64) {
	b.Helper()
	for _, suffix := range []string{"", "-wal"} {
		fi, err := os.Stat(evidence.Database(m.opt.Dir) + suffix)
		if err != nil {
			b.Fatal(err)
		}
		n += fi.Size()
	}
	return n
}
