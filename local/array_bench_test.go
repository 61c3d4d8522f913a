//go:build linux

package local

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local/evidence"
)

// BenchmarkArray50000: an array of 50,000 elements is submitted behind a job that keeps the machine busy,
// and cancelled again in one request. Run it with -benchtime 1x.
func BenchmarkArray50000(b *testing.B) {
	const n = 50_000
	for b.Loop() {
		b.StopTimer()
		m, u, _ := crowd(b, 0)
		used, written := heapNow(), stateSize(b, m)
		b.StartTimer()
		start := time.Now()
		ids, err := m.Submit(b.Context(), u, &api.Submission{Command: []string{"true"}, Dir: "/", Output: "/dev/null", GPUs: 1,
			Env: []string{"A=B"}, Array: "0-49999"}, "")
		if err != nil || len(ids) != n {
			b.Fatal(len(ids), err)
		}
		submitted := time.Since(start)
		b.StopTimer()
		b.ReportMetric(float64(submitted.Milliseconds()), "submit-ms")
		b.ReportMetric(float64(heapNow()-used)/n, "B/element")
		b.ReportMetric(float64(stateSize(b, m)-written)/n, "stored-B/element")
		b.StartTimer()
		start = time.Now()
		done, err := m.ActOnAll(b.Context(), &api.Selection{Jobs: ids[:1]}, "cancel", Requester{Name: u.Name, Owns: func(string) bool { return true }})
		if err != nil || len(done.Jobs) != n {
			b.Fatal(len(done.Jobs), err)
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "cancel-ms")
	}
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
