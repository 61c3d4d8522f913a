//go:build linux

package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// What is older than it is to be kept goes, and nothing else: jobs that run or
// wait go on, rows of old jobs stay, dependencies on them hold.
func TestForget(t *testing.T) {
	m := alive(t, func(o *Options) { o.Keep = time.Millisecond })
	old := submit(t, m, "true")
	until(t, m, old, show.StateCompleted)
	failed := submit(t, m, "exit 1")
	until(t, m, failed, show.StateFailed)
	end := filepath.Join(t.TempDir(), "end")
	running := submit(t, m, "until [ -e "+end+" ]; do sleep 0.2; done")
	until(t, m, running, show.StateRunning)
	waiting := submit(t, m, "true", func(s *ask.Submission) { s.After = []ask.After{{Type: "afterok", Job: running}} })
	for try := 0; ; try++ { // segments end when the next one is old enough
		m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
			m.ended = renewJobs
			return []engine.Event{{Type: engine.Tick}}, nil
		})
		time.Sleep(5 * time.Millisecond)
		_, err := os.Stat(m.keeper.JobDir(cluster.JobID(old)))
		list, listErr := m.store.Segments(t.Context())
		if os.IsNotExist(err) && listErr == nil && list[0].First > 1 {
			break
		}
		if try == 4000 {
			t.Fatalf("the folder of an old job (%v), or the first of %d segments (%v), is still there", err, len(list),
				listErr)
		}
	}
	if _, err := os.Stat(m.keeper.JobDir(cluster.JobID(running))); err != nil {
		t.Error(err)
	}
	m.mu.RLock()
	if m.eng.Record(cluster.JobID(old)) != nil || m.eng.Record(cluster.JobID(running)) == nil {
		t.Error("the engine remembers the old job, or forgot the running one")
	}
	m.mu.RUnlock()
	list, err := m.store.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.store.Steps(t.Context(), 0, list[0].First-1, func([]byte, string) error {
		t.Error("a step of an old segment is left")
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, m, running, show.StateCompleted)
	until(t, m, waiting, show.StateCompleted)
	until(t, m, submit(t, m, "true", func(s *ask.Submission) {
		s.After = []ask.After{{Type: "afternotok", Job: failed}}
	}), show.StateCompleted)
	if j := until(t, m, old, show.StateCompleted); j.ExitCode != 0 || j.Ended == nil {
		t.Errorf("the row of the old job: %+v", j)
	}
}
