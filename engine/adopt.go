package engine

import (
	"cmp"

	"github.com/muster-gpu/muster/cluster"
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
	case !isIndependent(r):
		return "it is resized, moved, suspended, planned, elastic, of an array or beside another"
	case !e.possibleRecord(r):
		return "what it received is not possible"
	}
	queue, text := e.admission.CheckSpec(r.Spec)
	if text != "" {
		return text
	}
	j := &job.State{Tenure: &e.noTenure, Spec: r.Spec, Facts: job.Facts{State: r.State}, Queue: int32(queue)}
	return e.checkPlace(j, r.Spec, r.Allocs)
}

// isIndependent reports whether nothing is under way with a job, and it is not bound to others.
func isIndependent(r *job.Record) bool {
	others := len(r.Guests) + len(r.Leaving) + len(r.Dest) + len(r.Waiters) + len(r.Claims) + len(r.Singles)
	alone := others == 0 && r.Waits == 0 && r.GuestOf == 0 && !r.Packed && !r.InArray && r.Spec.Array == nil
	kept := r.Home == nil && r.Frozen == nil && r.Target == nil && r.Plan == nil
	return alone && kept && !r.Resizing && !r.Demoted && r.Spec.Elastic == (cluster.Elastic{})
}

// possibleRecord reports whether what a job is said to have received can be.
func (e *Engine) possibleRecord(r *job.Record) bool {
	late := r.Acc > e.w.Now || r.Started > e.w.Now || r.Promotion > e.w.Now
	counts := min(r.Attained, r.Weighted, r.Unweighted, r.ServedBefore, r.Rate, r.Speed)
	times := min(r.Ran, r.Done, r.Saved, r.RanBefore)
	served := &job.State{Tenure: e.tenureOf(r), Weight: cmp.Or(r.Weight, cluster.Whole)}
	before := r.Unweighted <= r.Attained && r.ServedBefore <= served.ServiceAt(e.w.Now) && r.RanBefore <= r.Ran
	return !late && counts >= 0 && times >= 0 && before
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
