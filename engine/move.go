package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// A job that is moved stops like one that is preempted, but what it goes to is
// booked for it from then on (dest), so that no other can take it meanwhile: it
// starts there as soon as it has left. If that place is lost, or the job is not to
// come back at once, it waits in line like any other that was preempted.
//
// A job in whose place another comes (Job.Replace) goes on meanwhile: that one starts
// at once on what was booked, and the first is cancelled when it is not needed any more.

// relocate tells jobs to leave for the places that were found for them, and gives
// the gang theirs.
func (e *Engine) relocate(j *job.State, way *defrag.Relocation) {
	e.startMoves(way.Movers, way.Allocs, j.Spec.ID)
	e.book(j, way.Allocs, inventory.TasksIn(way.Allocs))
}

// startMoves tells jobs to leave for the places that were found for them, and takes what the job gets for which they
// leave, if it is for one.
func (e *Engine) startMoves(movers []defrag.Mover, allocs []inventory.Alloc, forJob cluster.JobID) {
	for i := range movers {
		v := movers[i].Job
		e.running.Remove(v)
		e.st.ReleaseAll(v.Allocs)
	}
	for i := range allocs {
		e.st.Take(&allocs[i])
	}
	e.st.Commit()
	e.epoch++
	for i := range movers {
		m := &movers[i]
		e.resv.Take(m.Job, m.Dest, 1)
		how := m.How
		if how == job.Replace && overlap(m.Job.Allocs, m.Dest) {
			how = job.Kill // nothing can start there while it runs
		}
		e.markStopping(m.Job, how, job.Preempted, forJob)
		m.Job.Moved = append(slices.DeleteFunc(m.Job.Moved, func(t cluster.Time) bool {
			return t <= e.w.Now.Add(-defrag.KeepMoves)
		}), e.w.Now)
		e.reserveDest(m.Job, m.Dest)
	}
}

// reserveDest books where a job that leaves goes. Its queue is charged all along:
// relocate has not taken that back.
func (e *Engine) reserveDest(v *job.State, dest []inventory.Alloc) {
	v.Dest = dest
	for i := range dest {
		e.st.Take(&dest[i])
	}
	e.st.Commit()
	e.moves.Leaves(v.Spec.ID)
}

// dropDest gives up what is booked for a job that leaves, and returns it.
func (e *Engine) dropDest(v *job.State) []inventory.Alloc {
	dest := v.Dest
	if dest == nil {
		return nil
	}
	e.touch(v)
	v.Dest = nil
	e.leavers.Freed()
	e.st.ReleaseAll(dest)
	e.limits.Charge(v, -1)
	e.st.Commit()
	e.epoch++
	e.moves.Arrived(v.Spec.ID)
	return dest
}

// dropDests gives up what is booked on some devices of a node for jobs that leave,
// or (node -1) all of it.
func (e *Engine) dropDests(node int32, mask uint64) {
	for _, id := range slices.Clone(e.moves.OnTheWay()) {
		v := e.jobs[id]
		if node < 0 || slices.ContainsFunc(v.Dest, func(a inventory.Alloc) bool {
			return a.Node == node && (a.GPUs&mask != 0 || mask == inventory.AnyDevice)
		}) {
			e.dropDest(v)
		}
	}
}

// destHolds reports whether a device is booked for a job that leaves another.
func (e *Engine) destHolds(node int32, dev uint64) bool {
	return slices.ContainsFunc(e.moves.OnTheWay(), func(id cluster.JobID) bool {
		return slices.ContainsFunc(e.jobs[id].Dest, func(a inventory.Alloc) bool {
			return a.Node == node && a.GPUs&dev != 0
		})
	})
}

// startMoved starts a job that has left where it was, if it is in line, on what was booked
// for it until just now.
func (e *Engine) startMoved(j *job.State, dest []inventory.Alloc) {
	if dest == nil || j.State != job.Pending || !j.Eligible || !e.plan.Allows(j, dest) || !e.speeds.BearsAll(dest) ||
		!e.st.TakeBack(dest, false, false) {
		return
	}
	e.book(j, dest, inventory.TasksIn(dest))
}

// overlap reports whether two placements have a device in common.
func overlap(a, b []inventory.Alloc) bool {
	return slices.ContainsFunc(a, func(x inventory.Alloc) bool {
		return slices.ContainsFunc(b, func(y inventory.Alloc) bool {
			apart := x.Slots != 0 && y.Slots != 0 && x.Slots&y.Slots == 0
			return x.Node == y.Node && x.GPUs&y.GPUs != 0 && !apart
		})
	})
}

// inPlaceOf reports whether a job that has arrived comes in the place of one that is moved.
func inPlaceOf(v, j *job.State) bool {
	return j.Spec.Replaces != 0 && v != nil && v.How == job.Replace && v.State == job.Stopping &&
		j.State == job.Pending && j.Eligible && v.Queue == j.Queue && v.Base == j.Base
}
