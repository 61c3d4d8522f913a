package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/found"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
)

// What a driver finds out of jobs that run, besides how they get on. Where an event does not fit what the engine knows
// (the devices are not free, the job is on its way out) it is ignored as a whole; a driver that has to know asks first.

// Reshape is what a job that runs is made of from now on.
type Reshape = found.Reshape

// CheckReshape says why a job cannot be reshaped; "": it can.
func (e *Engine) CheckReshape(id cluster.JobID, r *Reshape) string {
	j := e.job(id)
	if j == nil {
		return "there is no such job"
	}
	_, text := e.found.Reshaped(j, r)
	return text
}

// makeWay takes promised places back where a job turns out to be.
func (e *Engine) makeWay(instead, allocs []inventory.Alloc) {
	if _, promised := e.leavers.Vacant(instead, allocs, e.running.Placed()); promised {
		for _, w := range pending.Among(e.running.Placed(), allocs) {
			e.unplace(w)
			e.admit(w)
		}
	}
}

// jobReshaped books that a job that runs has other tasks, or holds something else, than it started with.
func (e *Engine) jobReshaped(j *job.State, r *Reshape) {
	spec, text := e.found.Reshaped(j, r)
	if text != "" {
		return
	}
	e.makeWay(j.Allocs, r.Allocs)
	e.links.Changed(j)
	e.links.Computes(j, e.w.Now)
	e.accrue(j)
	e.unbook(j)
	if s := e.shapes.Get(j.Shape); s.Min < s.Max && e.elastic > 0 {
		e.elastic--
	}
	j.Spec, j.Shape = spec, e.admission.ShapeOf(spec)
	j.Base, j.Target, j.Anchor = j.Shape, nil, job.Anchor{}
	e.plan.Suit(j)
	j.Allocs = j.Owned(r.Allocs)
	e.found.CountHeld(j)
	e.reweigh(j)
	e.st.TakeAll(j.Allocs)
	e.limits.Charge(j, 1)
	e.st.Commit()
	e.running.Add(j)
	e.running.Watch(j)
	e.gotMore()
	e.plan.Include(j)
	e.plan.JobsChanged()
	e.find.Recount()
	e.fresh = true
	e.leaveForeign(j)
}

// leaveForeign has a job leave that was found where none may be: on a node that is down, with which it is lost, or on
// one that is given back.
func (e *Engine) leaveForeign(j *job.State) {
	down := slices.IndexFunc(j.Allocs, func(a inventory.Alloc) bool {
		return e.st.Nodes()[a.Node].Spec().State == cluster.Down
	})
	if down >= 0 {
		e.loseJob(j, j.Allocs[down].Node, inventory.AnyDevice)
	} else if onGivenBack(&e.st, j.Allocs) {
		e.evictLent(j)
	}
}

// amend takes over what of a spec may change while its job runs.
func (e *Engine) amend(j *job.State, spec *cluster.Job) {
	next, shape := e.found.Amended(j, spec)
	if next == nil {
		return
	}
	e.running.Remove(j)
	e.lending.Charge(j, -1)
	if j.Spec = next; shape != j.Shape {
		j.Shape, j.Base = shape, shape
		e.plan.RenewTarget(j)
		e.plan.JobsChanged()
	}
	e.lending.Charge(j, 1)
	e.running.Add(j)
	e.running.Watch(j)
	e.epoch++ // it may be a victim now, or move
	e.fresh = true
}
