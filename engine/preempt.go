package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
)

// preemptFor finds the least harmful set of victims whose devices let the job
// start, tells them to leave and places the job on their devices.
func (e *Engine) preemptFor(r placement.Request, j *job.State) (done, straddled bool) {
	s := e.shapes.At(j.Shape)
	way := e.victims.Find(r, j, s)
	if !way.Fits {
		return false, way.Straddled
	}
	for _, v := range way.Jobs {
		e.running.Remove(v)
	}
	e.st.Commit()
	successors := e.leaveAll(way.Jobs)
	e.epoch++
	for _, v := range way.Jobs {
		if v.State == job.Placed {
			e.forgetPlacement(v)
			e.admit(v)
			continue
		}
		e.markStopping(v, e.stops.How(v), job.Preempted, j.Spec.ID)
	}
	tasks := s.Min
	if j.Home != nil {
		tasks = inventory.TasksIn(way.Allocs)
	}
	e.book(j, way.Allocs, tasks)
	for _, successor := range successors {
		e.takeOver(successor) // now that it is known what quota is left
	}
	return true, way.Straddled
}

// dismiss makes a job leave for no other in particular; false: there is none.
func (e *Engine) dismiss(v *job.State) bool {
	switch {
	case v == nil:
		return false
	case v.State == job.Placed:
		e.unplace(v)
		e.admit(v)
	default:
		e.stop(v, e.stops.How(v), job.Preempted, cluster.NoJob)
	}
	return true
}
