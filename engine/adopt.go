package engine

import (
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// CheckAdopted says why a job that is found running cannot be taken over; "": it can.
func (e *Engine) CheckAdopted(r *job.Record) string { return e.found.Adopted(r) }

// adopt takes over a job that is found running.
func (e *Engine) adopt(r *job.Record) {
	if e.CheckAdopted(r) != "" {
		return
	}
	for int(r.Spec.ID) >= len(e.jobs) {
		e.jobs = append(e.jobs, nil)
	}
	e.makeWay(nil, r.Allocs)
	if e.restoreJob(r) != nil {
		return
	}
	j := e.jobs[r.Spec.ID]
	queue, _ := e.limits.Of(j.Spec)
	j.Queue = int32(queue)
	e.deps.Rejoin(j, nil)
	now := *r
	now.Tasks = inventory.TasksIn(r.Allocs)
	e.resumeHolding(j, &now, false)
	e.touch(j)
	e.gotMore()
	e.plan.JobsChanged()
	e.find.Recount()
	e.links.Changed(j)
	e.fresh = true
	e.leaveForeign(j)
}
