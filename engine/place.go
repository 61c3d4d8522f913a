package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// tryPlace looks for devices for the job, if possible for such as are free now, and books
// them. The allocations are in scratch memory: book copies them. Elastic jobs get the largest
// size between their bounds that fits; tasks is that of the first set.
func (e *Engine) tryPlace(r placement.Request, j *job.State) (allocs []inventory.Alloc, tasks int32, ok bool) {
	s := e.shapes.At(j.Shape)
	e.stats.Tried++
	if e.mode == sched.Conservative && j.Promise <= e.w.Now && j.Home == nil && s.Min == s.Max {
		if allocs, ok = e.find.PlaceAgain(r, j, s); ok {
			return allocs, s.Max, true
		}
	}
	mark := e.st.Mark()
	if allocs, tasks, ok = e.findPlace(r, j); ok {
		allocs, tasks = e.preferFree(r, j, mark, allocs, tasks)
	}
	return allocs, tasks, ok
}

// preferFree replaces a contested placement by one that can start at once, if there is one.
// The allocations are in the books from mark on, and in scratch memory.
func (e *Engine) preferFree(r placement.Request, j *job.State, mark inventory.Mark, allocs []inventory.Alloc,
	tasks int32) ([]inventory.Alloc, int32) {
	s := e.shapes.At(j.Shape)
	if j.Home != nil || e.leavers.NoneFree(j.Shape) || !e.leavers.Contested(allocs) {
		return allocs, tasks
	}
	contested := slices.Clone(allocs)
	e.st.Rollback(mark)
	var free []inventory.Alloc
	var n int32
	ok := e.leavers.MayFit(s)
	if ok {
		e.leavers.TakeResidues()
		free, n, ok = e.findPlace(r, j)
		e.st.Rollback(mark)
	}
	if !ok && r.Reserved == nil && r.Blocked == nil && !s.Several() && !e.lending.Bars(j) {
		e.leavers.NoteNoneFree(j.Shape)
	}
	if ok && (e.WakeTime(contested) > 0 || e.WakeTime(free) == 0) { // to wake a node takes longer than a grace period
		e.st.TakeAll(free)
		if !e.leavers.Contested(free) {
			return free, n
		}
		e.st.Rollback(mark)
	}
	allocs = e.find.Keep(contested)
	e.st.TakeAll(allocs)
	return allocs, tasks
}

// findPlace is tryPlace in the books as they are.
func (e *Engine) findPlace(r placement.Request, j *job.State) (allocs []inventory.Alloc, tasks int32, ok bool) {
	s := e.shapes.At(j.Shape)
	if j.Home != nil {
		allocs, ok = e.find.Place(r, j, s, s.Min)
		return allocs, inventory.TasksIn(allocs), ok
	}
	if s.Min == s.Max {
		allocs, ok = e.find.Place(r, j, s, s.Max)
		return allocs, s.Max, ok
	}
	lo, hi := s.Min, s.Max // binary search: less always fits where more does
	r.SkipSleeping = e.st.Asleep() > 0
	_, ok = e.placeTrial(r, j, s, lo)
	if !ok && r.SkipSleeping { // no node is woken for what a job does not need
		r.SkipSleeping, hi = false, lo
		_, ok = e.placeTrial(r, j, s, lo)
	}
	if !ok {
		return nil, 0, false
	}
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if _, ok := e.placeTrial(r, j, s, mid); ok {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	allocs, ok = e.find.Place(r, j, s, lo)
	return allocs, lo, ok
}

func (e *Engine) placeTrial(r placement.Request, j *job.State, s *shape.Shape, tasks int32) ([]inventory.Alloc, bool) {
	mark := r.In.Mark()
	allocs, ok := e.find.Place(r, j, s, tasks)
	r.In.Rollback(mark)
	return allocs, ok && e.limits.Allows(j, e.shapes.MilliOf(s, int(tasks)))
}

// anywhere is a search that leaves nothing alone.
func (e *Engine) anywhere() placement.Request {
	return placement.Request{In: &e.st, Placer: e.cfg.Placer}
}

// book gives the placed devices to the job: it starts, or waits for the jobs that
// are told to leave them.
func (e *Engine) book(j *job.State, allocs []inventory.Alloc, tasks int32) {
	if j.State != job.Pending {
		panic("engine: a job that is not pending is placed")
	}
	e.dequeue(j)
	e.giveTenure(j)
	j.Allocs = append([]inventory.Alloc(nil), allocs...)
	j.Home = nil
	s := e.shapes.Get(j.Shape)
	j.Tasks = tasks
	j.Milli = e.heldMilli(j)
	j.Devices = int32(s.Devices(int(tasks)))
	e.reweigh(j)
	e.limits.Charge(j, 1)
	e.st.Commit()
	e.gotMore()
	e.stats.Placed++
	j.State = job.Placed
	j.Promise, j.Plan = cluster.Never, nil
	e.plan.Include(j)
	e.leavers.Wait(j)
	if j.Waits == 0 {
		e.start(j)
		return
	}
	j.Waited = true
	e.running.Add(j)
}

// heldMilli is what the job's allocations count for.
func (e *Engine) heldMilli(j *job.State) cluster.Milli { return inventory.MilliIn(j.Allocs) }

// start emits the Start of a job whose devices are free.
func (e *Engine) start(j *job.State) {
	before, waited := j.Key.Key[0], j.Waited
	if waited {
		e.running.Remove(j)
		j.Waited = false
	}
	j.State = job.Starting
	e.wake(j)
	j.Started, j.Acc, j.Rate = e.w.Now, e.w.Now, 0
	j.Computing = 0
	j.NextKey = 0 // timers of an earlier run are void
	j.Among, j.Slow = nil, 0
	j.FirstStart = min(j.FirstStart, e.w.Now)
	j.Gen++
	j.LimitAt = cluster.Never
	if l := e.w.LimitOf(j); l > 0 {
		j.LimitAt = e.w.Now.Add(l)
		e.timers.Set(j.LimitAt, pending.Limit, j)
	}
	if e.cfg.MinRuntime > 0 {
		e.timers.Set(e.w.Now.Add(e.cfg.MinRuntime), pending.Safe, j)
	}
	e.watchMovable(j)
	e.running.Add(j)
	if waited && e.w.Traits.Preempts && j.Key.Key[0] > before {
		e.epoch++ // while it waited for its devices others came closer: it may be a victim now
	}
	e.running.Watch(j)
	e.links.Changed(j)
	e.actions = append(order.Double(e.actions),
		Action{Type: Start, Job: j.Spec.ID, Allocs: j.Allocs, For: cluster.NoJob, Yield: j.Yields()})
}

// unbook gives back what a job holds in the books.
func (e *Engine) unbook(j *job.State) {
	e.running.Remove(j)
	e.st.ReleaseAll(j.Allocs)
	e.limits.Charge(j, -1)
	e.st.Commit()
	e.part(j)
	e.epoch++
}

// unplace takes back a placement that has not started: nothing is lost.
func (e *Engine) unplace(j *job.State) {
	e.unbook(j)
	e.forgetPlacement(j)
}

// forgetPlacement puts a placed job, already unbooked, back to pending.
func (e *Engine) forgetPlacement(j *job.State) {
	e.leavers.Freed()
	e.touch(j)
	for i := range j.Allocs {
		for _, id := range e.st.Nodes()[j.Allocs[i].Node].Stopping() {
			e.leavers.StopWaiting(j, e.jobs[id])
		}
	}
	j.Allocs, j.Waits, j.Waited, j.Packed, j.State = nil, 0, false, false, job.Pending
	j.Gen++
	s := e.shapes.At(j.Shape)
	j.Milli, j.Tasks, j.Devices = e.shapes.MilliOf(s, int(s.Max)), s.Max, int32(s.Devices(int(s.Max)))
}

// stop tells a running job to leave. Its devices are promised on at once; the job
// that gets them starts when they are really free.
func (e *Engine) stop(j *job.State, how job.How, reason job.StopReason, forJob cluster.JobID) {
	e.unbook(j)
	e.markStopping(j, how, reason, forJob)
}

// markStopping is stop for a job that is already unbooked.
func (e *Engine) markStopping(j *job.State, how job.How, reason job.StopReason, forJob cluster.JobID) {
	e.touch(j)
	e.accrue(j)
	j.State, j.Reason, j.How = job.Stopping, reason, how
	j.ResidentOnGPU = how == job.Suspend && j.Rate > 0 && !j.Resizing
	j.Gen++
	for i := range j.Allocs {
		e.leavers.Leaves(j.Allocs[i].Node, j.Spec.ID)
	}
	e.leavers.WaitBeside(j, e.running.Placed())
	grace := e.stops.Rules[j.Spec.Tier].Grace
	switch {
	case reason == job.NodeLost:
		grace = 0
	case how == job.Replace:
		grace = j.Spec.Replace
	}
	if reason == job.Preempted {
		e.stats.Preempted++
	}
	e.actions = append(order.Double(e.actions),
		Action{Type: Preempt, Job: j.Spec.ID, How: how, Grace: grace, Reason: reason, For: forJob})
}
