package engine

import (
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// mostSkipped bounds the numbers that a job which is found running may leave out.
const mostSkipped = 1 << 20

// CheckAdopted says why a job that is found running cannot be taken over; "": it can.
func (e *Engine) CheckAdopted(r *job.Record) string {
	id := -1
	if r != nil && r.Spec != nil {
		id = int(r.Spec.ID)
	}
	switch {
	case id < 0 || id > len(e.jobs)+mostSkipped || e.job(r.Spec.ID) != nil:
		return "it has no number of its own"
	case r.State != job.Starting && r.State != job.Running:
		return "it does not run"
	case !r.Independent():
		return "it is resized, moved, suspended, planned, elastic, of an array or beside another"
	case !r.Possible(e.w.Now):
		return "what it received is not possible"
	}
	queue, text := e.admission.CheckSpec(r.Spec)
	if text != "" {
		return text
	}
	j := &job.State{Tenure: &e.noTenure, Spec: r.Spec, Facts: job.Facts{State: r.State}, Queue: int32(queue)}
	return e.checkPlace(j, r.Spec, r.Allocs)
}

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
