package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
)

// What a driver finds out of jobs that run, besides how they get on. Where an event does not fit what the engine knows
// (the devices are not free, the job is on its way out) it is ignored as a whole; a driver that has to know asks first.

// Reshape is what a job that runs is made of from now on.
type Reshape struct {
	Tasks  []cluster.TaskSet `json:"tasks"`
	Allocs []inventory.Alloc `json:"allocs"` // of all of these
}

// CheckReshape says why a job cannot be reshaped; "": it can.
func (e *Engine) CheckReshape(id cluster.JobID, r *Reshape) string {
	j := e.job(id)
	if j == nil {
		return "there is no such job"
	}
	_, text := e.reshaped(j, r)
	return text
}

// reshaped is a job's spec with other tasks; text says why it cannot have these.
func (e *Engine) reshaped(j *job.State, r *Reshape) (spec *cluster.Job, text string) {
	switch {
	case r == nil:
		return nil, "nothing is said of it"
	case j.State != job.Starting && j.State != job.Running:
		return nil, "it is " + j.State.String()
	case j.Resizing || len(j.Leaving) > 0 || j.Hosted() || len(j.Guests) > 0:
		return nil, "it is being resized, or beside another"
	}
	next := *j.Spec
	next.Tasks, next.Elastic = slices.Clone(r.Tasks), cluster.Elastic{}
	if next.NoRequeue { // it is not placed again: where it may be, it is
		next.Nodes, next.PerNode, next.NodeLimits, next.Topology = "", 0, nil, cluster.Topology{}
	}
	if text := e.admission.CheckTasks(&next); text != "" {
		return nil, text
	}
	return &next, e.checkPlace(j, &next, r.Allocs)
}

// checkPlace says why a job cannot be, with such a spec, where these allocations are; "": it can.
func (e *Engine) checkPlace(j *job.State, spec *cluster.Job, allocs []inventory.Alloc) string {
	noSet := func(a inventory.Alloc) bool { return a.Set < 0 }
	if !inventory.Valid(&e.st, allocs, false) || slices.ContainsFunc(allocs, noSet) {
		return "there is no such node or device"
	}
	as := *j
	as.Spec, as.Shape = spec, e.admission.ShapeOf(spec)
	as.Tenure = &job.Tenure{Holdings: job.Holdings{Allocs: j.Owned(allocs)}}
	e.countHeld(&as)
	if err := e.checkHeld(&as, false); err != nil {
		return err.Error()
	}
	if !e.onItsNodes(&as) {
		return "it is on a node that it may not be on"
	}
	for i := range as.Allocs {
		a := &as.Allocs[i]
		if a.Beside || (a.Share > 0 || a.Slots > 0) && bits.OnesCount64(a.GPUs) != 1 {
			return "it is beside another, or has a part of several GPUs"
		}
		for _, id := range e.st.Nodes()[a.Node].Stopping() {
			v := e.jobs[id]
			beside := a.Share > 0 && inventory.ShareDevice(v.Allocs, a) && grows(j.Allocs, as.Allocs, a)
			if v.InTheWay(a) || beside {
				return "a job that leaves still has a device of it"
			}
		}
	}
	if ok, _ := e.leavers.Vacant(j.Allocs, as.Allocs, e.running.Placed()); !ok {
		return "not all of it is free"
	}
	return ""
}

// grows reports whether a job would have more of the device of an allocation than it has.
func grows(now, then []inventory.Alloc, a *inventory.Alloc) bool {
	p := job.PartOn(then, a.Node, a.GPUs)
	p.Add(job.PartOn(now, a.Node, a.GPUs), -1)
	return max(p.Milli, p.Mem, p.Compute, p.Clients) > 0
}

// checkHeld checks that a job holds exactly what it asked for, where it may; keeps: or where it may have been when its
// node was larger.
func (e *Engine) checkHeld(j *job.State, keeps bool) error {
	return placement.CheckHeld(&e.w, j, keeps, e.strays())
}

// strays reports whether plans may have jobs run in other partitions than their own.
func (e *Engine) strays() bool { return e.plan.Active() && e.shapes.HasPartitions() }

// countHeld notes how large a job is by what it holds.
func (e *Engine) countHeld(j *job.State) {
	j.Tasks = inventory.TasksIn(j.Allocs)
	j.Devices, j.Milli = int32(e.shapes.At(j.Shape).Devices(int(j.Tasks))), e.heldMilli(j)
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
	spec, text := e.reshaped(j, r)
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
	e.countHeld(j)
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

// onItsNodes reports whether a job is on nodes that its spec names.
func (e *Engine) onItsNodes(j *job.State) bool {
	s := e.shapes.Get(j.Shape)
	return !slices.ContainsFunc(j.Allocs, func(a inventory.Alloc) bool { return !s.Reaches(a.Node) })
}

// amend takes over what of a spec may change while its job runs: its name, whether it comes back when it is stopped,
// what it saves, where it may be when it does, and whether it is a replica of a service that lends.
func (e *Engine) amend(j *job.State, spec *cluster.Job) {
	if spec == nil || spec.ID != j.Spec.ID {
		return
	}
	next := *j.Spec
	next.Name, next.NoRequeue, next.Checkpoint = spec.Name, spec.NoRequeue, spec.Checkpoint
	next.Nodes, next.Partitions, next.Topology = spec.Nodes, spec.Partitions, spec.Topology
	next.PerNode, next.NodeLimits, next.Service = spec.PerNode, spec.NodeLimits, spec.Service
	if _, text := e.admission.CheckSpec(&next); text != "" {
		return
	}
	as := *j
	as.Spec, as.Shape = &next, e.admission.ShapeOf(&next)
	if as.Shape != j.Shape && (j.Resizing || e.checkHeld(&as, false) != nil || !e.onItsNodes(&as)) {
		return // it may not be where it is
	}
	e.running.Remove(j)
	e.lending.Charge(j, -1)
	if j.Spec = &next; as.Shape != j.Shape {
		j.Shape, j.Base = as.Shape, as.Shape
		e.plan.RenewTarget(j)
		e.plan.JobsChanged()
	}
	e.lending.Charge(j, 1)
	e.running.Add(j)
	e.running.Watch(j)
	e.epoch++ // it may be a victim now, or move
	e.fresh = true
}
