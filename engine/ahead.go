package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Wake is when the engine wants to be called even if nothing happens, as the
// last decision said: for whoever goes on with an engine that was restored.
func (e *Engine) Wake() cluster.Time { return e.nextWake() }

// WakeRare is Wake without the looks at the order that a policy takes at fixed
// intervals: when time alone changes who may start.
func (e *Engine) WakeRare() cluster.Time {
	return min(e.timers.At(), e.keyTimes.At(), e.limits.nextChange(e), e.resv.NextChange())
}

// Waiting lists the jobs that wait for a start, by number, whatever they wait
// for; those that a person holds are not listed.
func (e *Engine) Waiting() (list []cluster.JobID) {
	for _, j := range e.jobs {
		if j != nil && j.State <= job.Placed && !j.Spec.Hold {
			list = append(list, j.Spec.ID)
		}
	}
	return list
}
