package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
)

// Two jobs and more on the same whole GPUs (Gandiva, OSDI'18; Lucid, ASPLOS'23): the
// first of them holds the devices, the others are its guests and run beside it on
// exactly those. Which job joins which is said by a plan (Target.Beside), never by a placer. Guests
// count for nothing against quotas: the devices are charged once. When the holder
// leaves, the guest that came first takes its place, if its queue's limits allow it.

// host is the job on whose devices a guest is.
func (e *Engine) host(j *job.State) *job.State { return e.jobs[j.GuestOf-1] }

// joinPlanned makes waiting jobs guests of the hosts, and puts them on the MIG instances,
// that the plan chose for them.
func (e *Engine) joinPlanned() {
	for _, j := range e.plan.Joining() {
		e.joinTarget(j)
	}
}

// joinMoved makes the jobs that were stopped for a move guests of the hosts that the plan chose.
func (e *Engine) joinMoved() {
	for _, id := range e.plan.Moves() {
		e.joinTarget(e.jobs[id])
	}
}

// leavesForHost reports whether a running job is stopped because it is to run beside another
// one, as it could. If it then cannot, it is not stopped again before the next plan.
func (e *Engine) leavesForHost(j *job.State) bool {
	t := j.Target
	if !t.Move || t.Beside == 0 || j.GuestOf == t.Beside || j.Planless() || !e.victims.MayStop(j) {
		return false
	}
	_, ok := e.seat(j, e.job(cluster.JobID(t.Beside-1)))
	return ok
}

// seat is where a job would run as the guest of another. What is looked at when it is to join
// is also when it is stopped for that: else it would be stopped, started where it was, and so on.
func (e *Engine) seat(j, h *job.State) (allocs []inventory.Alloc, ok bool) {
	if !e.joins(j, h) {
		return nil, false
	}
	s := e.shapes.At(j.Shape)
	if allocs, ok = e.alongside(s, h); !ok || !e.limits.Allows(j, 0) {
		return nil, false
	}
	return allocs, !s.Topo.Required || e.st.Together(allocs, s.Topo.Level)
}

func (e *Engine) joinTarget(j *job.State) {
	if j.State == job.Pending && j.Parked == job.ParkedPlan && j.Sliced() {
		e.divide(j)
	} else if t := j.Target; t != nil && t.Beside > 0 && j.State == job.Pending &&
		(j.Eligible || j.Parked == job.ParkedPlan) && !j.Planless() {
		e.join(j, e.job(cluster.JobID(t.Beside-1)))
	}
}

// join starts a job beside another, if that runs on whole devices of its own which
// suit the job, task by task, and there is CPU and RAM for both.
func (e *Engine) join(j, h *job.State) bool {
	allocs, ok := e.seat(j, h)
	if !ok {
		return false
	}
	if j.Home != nil && !inventory.SamePlace(j.Home, allocs) {
		e.touch(j)
		j.Thaw()
	}
	for i := range allocs {
		e.st.Take(&allocs[i])
	}
	j.Parked = job.NotParked
	j.GuestOf, j.Packed, h.Packed = int32(h.Spec.ID)+1, true, true
	h.Guests = append(h.Guests, j.Spec.ID)
	e.touch(h)
	e.book(j, allocs, e.shapes.At(j.Shape).Max)
	return true
}

// joins reports whether a job may be a guest of another; nil: there is none.
func (e *Engine) joins(j, h *job.State) bool {
	if h == nil || h == j || e.cfg.Unshared || h.Hosted() || !h.Booked() || h.Resizing || e.resv.HasAdvance() {
		return false
	}
	s := e.shapes.At(j.Shape)
	return len(s.Sets) == 1 && s.NodeBounds() == nil && !e.w.Elastic(j) && !e.w.Elastic(h)
}

// alongside is the allocations of a job of one task set on the devices of another.
func (e *Engine) alongside(s *shape.Shape, h *job.State) (allocs []inventory.Alloc, ok bool) {
	r, left := &s.Sets[0].Request, int(s.Max)
	if r.GPUs == 0 || r.Fractional() || r.Profile != "" {
		return nil, false
	}
	for i := range h.Allocs {
		a := &h.Allocs[i]
		if a.Share != 0 {
			return nil, false
		}
		k := slices.IndexFunc(allocs, func(b inventory.Alloc) bool { return b.Node == a.Node })
		if k < 0 {
			k = len(allocs)
			allocs = append(allocs, inventory.Alloc{Node: a.Node, Beside: true})
		}
		allocs[k].GPUs |= a.GPUs
	}
	allocs = slices.DeleteFunc(allocs, func(a inventory.Alloc) bool { return a.GPUs == 0 })
	for i := range allocs {
		a := &allocs[i]
		n := &e.st.Nodes()[a.Node]
		tasks := bits.OnesCount64(a.GPUs) / r.GPUs
		a.Tasks, a.CPU, a.RAM = int32(tasks), r.CPU*int64(tasks), r.RAM*int64(tasks)
		if left -= tasks; tasks*r.GPUs != bits.OnesCount64(a.GPUs) || !n.TakesJobs() || !s.Suits[0].Has(n.Class()) ||
			n.CPU() < a.CPU || n.RAM() < a.RAM {
			return nil, false
		}
	}
	return allocs, left == 0
}

// part ends that a job runs beside others, when it has left the books.
func (e *Engine) part(j *job.State) {
	if successor := e.leave(j); successor != nil {
		e.takeOver(successor)
	}
}

// leave frees a guest's place; if the job held the devices, it returns the guest
// that came first, its successor.
func (e *Engine) leave(j *job.State) (successor *job.State) {
	if j.Hosted() {
		h := e.host(j)
		e.touch(h)
		h.Guests, j.GuestOf = without(h.Guests, j.Spec.ID), 0
		j.Allocs = apart(j.Allocs)
		j.Milli = e.heldMilli(j) // for as long as it is still there
	}
	if len(j.Guests) == 0 {
		return nil
	}
	successor, others := e.jobs[j.Guests[0]], j.Guests[1:]
	j.Guests = nil
	e.touch(successor)
	e.accrue(successor)
	successor.Guests, successor.GuestOf = others, 0
	for _, id := range others {
		e.touch(e.jobs[id])
		e.jobs[id].GuestOf = int32(successor.Spec.ID) + 1
	}
	return successor
}

// takeOver has a guest hold the devices that it is on, if its queue may.
func (e *Engine) takeOver(j *job.State) {
	e.limits.Charge(j, -1)
	e.st.ReleaseAll(j.Allocs)
	j.Allocs = apart(j.Allocs)
	for i := range j.Allocs {
		e.st.Take(&j.Allocs[i])
	}
	e.st.Commit()
	m := e.heldMilli(j)
	over := !e.limits.Allows(j, m)
	j.Milli = m
	e.limits.Charge(j, 1)
	e.st.Commit()
	e.running.Update(j)
	switch {
	case !over:
	case j.State == job.Placed:
		e.unplace(j)
		e.admit(j)
	default:
		e.stop(j, e.stops.How(j), job.Preempted, cluster.NoJob)
	}
}

// apart is a copy of a guest's allocations as those of a job of its own.
func apart(allocs []inventory.Alloc) []inventory.Alloc {
	list := slices.Clone(allocs)
	for i := range list {
		list[i].Beside = false
	}
	return list
}

// leaveAll is leave for jobs that go together, and returns the successors: none of them is
// a job that goes, too.
func (e *Engine) leaveAll(jobs []*job.State) (successors []*job.State) {
	for _, j := range jobs {
		if j.Hosted() {
			e.leave(j)
		}
	}
	for _, j := range jobs {
		if successor := e.leave(j); successor != nil {
			successors = append(successors, successor)
		}
	}
	return successors
}

// WantsMemory reports whether the policy looks at what jobs were measured to use of the
// memory of their GPUs.
func (e *Engine) WantsMemory() bool { return e.w.Traits.Memory }
