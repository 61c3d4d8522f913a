//go:build linux

package local

import (
	"sync"
	"testing"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// A job that is cancelled while it is being started again in place, here because it shrinks, ends.
func TestCancelledWhileStartedInPlace(t *testing.T) {
	opt := twoGPUs(t)
	var m *Machine
	var once sync.Once
	u := self(t)
	opt.Crash = func(point string) {
		if point != "again-stored" {
			return
		}
		once.Do(func() {
			if err := m.Act(t.Context(), 1, "cancel", u.Name); err != nil {
				t.Error(err)
			}
			wait(t, "it is told to stop", func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.eng.Record(1).State == engine.Stopping
			})
		})
	}
	m, end := running(t, opt)
	defer end()
	submit := func(s ask.Submission) {
		t.Helper()
		s.Dir, s.Output, s.GPUs = "/", "/dev/null", 1
		if _, err := m.Submit(t.Context(), u, &s, ""); err != nil {
			t.Fatal(err)
		}
	}
	submit(ask.Submission{Command: []string{"sleep", "1000"}, MinTasks: 1, MaxTasks: 2})
	until(t, m, 1, show.StateRunning)
	submit(ask.Submission{Command: []string{"true"}})
	until(t, m, 1, show.StateCancelled)
	until(t, m, 2, show.StateCompleted)
}
