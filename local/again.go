//go:build linux

package local

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// again starts a job in place, on what the engine believes it to be on: after
// a resize, or after a daemon that died in the middle of a start. It gets a run
// with a number of its own, which is stored before anything is executed, as
// every start is. It reports as the event says when the tasks run; false: the
// job is no longer this runner's.
func (r *runner) again(says engine.EventType) bool {
	var tasks []*run.Task
	stored := make(chan bool, 1)
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		rec := r.m.eng.Record(r.ID)
		if rec.State == engine.Stopping { // it was asked to stop, and has
			r.CallOff()
			stored <- false
			return nil, nil
		}
		j := r.job
		ev := engine.Event{Type: engine.Progress, Job: r.ID, Saves: r.job.NoteResponse(r.Response())}
		info := j.Own()
		info.Use.Add(r.Tasks)
		info.Run++
		info.InPlace++
		reason := "the daemon died while it was being started"
		if says == engine.Resized {
			reason = "its devices changed"
		}
		j.Said = append(j.Said, fmt.Sprintf("run %d begins in place: %s", info.Run, reason))
		info.On, info.Began = slices.Clone(rec.Allocs), rec.Treatment
		r.Again(info.Run, info.On)
		tasks = r.plan(r.On)
		return []engine.Event{ev}, func(err error) { stored <- err == nil }
	})
	select {
	case <-r.m.running.Done():
		return false
	case ok := <-stored:
		if !ok {
			r.finish()
			return false
		}
	}
	r.m.crash("again-stored")
	if err := r.Spawn(tasks); err != nil {
		ev := engine.Event{Type: engine.StartFailed, Job: r.ID}
		if says == engine.Resized { // it runs, as the engine sees it; what it has not saved is lost
			ev = engine.Event{Type: engine.Stopped, Job: r.ID, Reason: engine.NodeLost}
		}
		r.notStarted(ev, err)
		return false
	}
	r.m.crash("again-started")
	r.m.event(engine.Event{Type: says, Job: r.ID, Rate: 1_000_000})
	return true
}

// CrashPoints are the places at which a daemon can be made to die, for tests of
// what survives (docs/design/reliability.md).
var CrashPoints = []string{"before-commit", "in-commit", "after-commit", "applied", "before-fork", "after-fork",
	"after-go", "started",
	"before-signal", "after-signal", "frozen", "ended", "resize-ended", "again-stored", "again-started", "adopting",
	"adopted", "turned"}

// crash is a place at which the daemon may be made to die.
func (m *Machine) crash(point string) {
	if m.opt.Crash != nil {
		m.opt.Crash(point)
	}
}

// remaining is what is left of a job's time to stop.
func (r *runner) remaining() time.Duration {
	return max(time.Millisecond, r.job.Info.StopUntil.Sub(r.m.clock.Time()))
}
