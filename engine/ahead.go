package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Wake is when the engine wants to be called even if nothing happens, as the
// last decision said: for a driver that restored an engine.
func (e *Engine) Wake() cluster.Time { return e.nextWake() }

// WakeRare is Wake without the fixed intervals at which a policy reorders the line:
// when time alone changes which jobs may start.
func (e *Engine) WakeRare() cluster.Time {
	return min(e.timers.At(), e.running.NextKeyChange(), e.limits.NextChange(), e.resv.NextChange())
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
