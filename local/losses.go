//go:build linux

package local

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

const (
	mostLosses  = 5               // runs in a row that lost their shim, after which a job has failed
	longRun     = time.Minute     // a run that lasted so long begins the count again
	mostBackoff = 8 * time.Second // before the next run
	crowdedWait = 2 * time.Second // before a start for which there were no descriptors
)

// losses counts the runs in a row that ended because their shim was killed.
type losses int

// book adds a run that lasted so long. It returns how long the job is to wait
// before the next one; 0: there shall be none.
func (l *losses) book(ran time.Duration) (wait time.Duration) {
	if ran >= longRun {
		*l = 0
	}
	if *l++; *l >= mostLosses {
		return 0
	}
	return min(time.Second<<(*l-1), mostBackoff)
}

// text says why there shall be no further run.
func (l *losses) text() string {
	return fmt.Sprintf("the process that watched over it was killed in %d runs in a row, each shorter than %v", *l,
		longRun)
}

// notBefore has a job that comes back wait for a while.
func notBefore(e *engine.Engine, id cluster.JobID, at cluster.Time) engine.Event {
	spec := *e.Record(id).Spec
	spec.Begin = max(spec.Begin, at)
	return engine.Event{Type: engine.Updated, Job: id, Spec: &spec}
}

// bookLoss counts a run that lost its shim; one that did not ends the count. The
// event says what the end of the run counts as, and the text why.
func (r *runner) bookLoss(ev *engine.Event, text *string, lost bool, now cluster.Time) []engine.Event {
	l := &r.job.own().Losses
	if !lost {
		*l = 0
		return nil
	}
	ran := time.Duration(0)
	if rec := r.m.eng.Record(r.ID); rec.Started > 0 {
		ran = now.Sub(rec.Started)
	}
	wait := l.book(ran)
	if wait == 0 {
		ev.Reason, *text = engine.Failed, l.text()
		return nil
	}
	return []engine.Event{notBefore(r.m.eng, r.ID, now.Add(wait))}
}
