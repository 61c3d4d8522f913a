//go:build linux

package local

import (
	"runtime"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// BenchmarkQueue10000: a machine that is busy while 10,000 jobs wait. What a
// listing, a submission and a cancellation take, and what memory a job takes.
func BenchmarkQueue10000(b *testing.B) {
	m, u, per := crowd(b, 10_000)
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			list, err := m.Jobs(b.Context(), store.Filter{States: []string{show.StatePending}, Limit: 10_000})
			if err != nil || len(list) < 10_000 {
				b.Fatal(len(list), err)
			}
		}
		b.ReportMetric(per, "B/job")
	})
	b.Run("submit-cancel", func(b *testing.B) {
		for b.Loop() {
			ids, err := m.Submit(b.Context(), u, &ask.Submission{Command: []string{"true"}, Dir: "/", GPUs: 1}, "")
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Act(b.Context(), ids[0], "cancel", ""); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// crowd is a machine with one job that runs and n that wait.
func crowd(b *testing.B, n int) (m *Machine, u User, perJob float64) {
	b.Helper()
	m = alive(b)
	u = self(b)
	s := func(gpus int, command ...string) *ask.Submission {
		return &ask.Submission{Command: command, Dir: "/", Output: "/dev/null", GPUs: gpus, Env: []string{"A=B"}}
	}
	ids, err := m.Submit(b.Context(), u, s(2, "sleep", "1000"), "")
	if err != nil {
		b.Fatal(err)
	}
	for j := (show.Job{}); j.State != show.StateRunning; time.Sleep(time.Millisecond) {
		if j, err = m.Job(b.Context(), ids[0]); err != nil {
			b.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := make(chan error, n)
	for range n {
		go func() {
			_, err := m.Submit(b.Context(), u, s(1, "true"), "")
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	if got := m.next; got != cluster.JobID(n+2) {
		b.Fatalf("the next number is %d", got)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	return m, u, float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
}
