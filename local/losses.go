//go:build linux

package local

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// crowdedWait is how long a job waits before a start for which there were no descriptors.
const crowdedWait = 2 * time.Second

// notBefore has a job that comes back wait for a while.
func notBefore(e *engine.Engine, id cluster.JobID, at cluster.Time) engine.Event {
	spec := *e.Record(id).Spec
	spec.Begin = max(spec.Begin, at)
	return engine.Event{Type: engine.Updated, Job: id, Spec: &spec}
}

// bookLoss counts a run that lost its shim; one that did not ends the count. The
// event says what the end of the run counts as, and the text why.
func (r *runner) bookLoss(ev *engine.Event, text *string, lost bool, now cluster.Time) []engine.Event {
	l := &r.job.Own().Losses
	if !lost {
		*l = 0
		return nil
	}
	ran := time.Duration(0)
	if rec := r.m.eng.Record(r.ID); rec.Started > 0 {
		ran = now.Sub(rec.Started)
	}
	wait := l.Book(ran)
	if wait == 0 {
		ev.Reason, *text = engine.Failed, l.Text()
		return nil
	}
	return []engine.Event{notBefore(r.m.eng, r.ID, now.Add(wait))}
}
