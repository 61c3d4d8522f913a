package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
)

// A suspended job goes on where its memory is (Home of its tenure). While others hold that, GPUs
// may be free elsewhere, of which it can make no use. Two things help. A job that holds its devices
// goes to the free ones instead, by a checkpoint: that costs little, and nothing of what the
// suspended job has in memory. And where no job can make room, it does not wait for ever:
// after as long as it would take to do again what it would lose it leaves its memory, and
// goes on from its last checkpoint wherever there is room (the ski rental argument: what it
// lost and waited for is no more than twice what the better of both would have cost; where
// jobs take turns, which end such waits, it waits longer).

// watchHome has the engine look for room elsewhere for a suspended job that comes into line, when
// it may leave its memory.
func (e *Engine) watchHome(j *job.State) {
	if at := e.w.LeavesHomeAt(j); at > e.w.Now && at != cluster.Never {
		e.timers.Set(at, pending.Home, j)
	}
}

// leaveHome starts a suspended job that has waited for its devices for long enough from its last
// checkpoint, where there is room. Else it keeps what it has in memory.
func (e *Engine) leaveHome(r placement.Request, j *job.State) bool {
	s := e.shapes.At(j.Shape)
	if e.w.LeavesHomeAt(j) > e.w.Now || s.Failed == e.epoch || r.Blocked != nil {
		return false
	}
	home, done := j.Home, j.Done
	j.Home, j.Done = nil, done-j.UnsavedAt(0)
	r.Reserved = e.resv.Limits(j, placement.Mover) // its run is longer now
	var allocs []inventory.Alloc
	var tasks int32
	ok := false
	if e.limits.Allows(j, e.w.LeastMilli(j)) {
		if allocs, tasks, ok = e.tryPlace(r, j); !ok && r.Reserved == nil && !s.Several() &&
			!e.lending.Bars(j) {
			s.Failed = e.epoch
		}
	}
	if !ok {
		j.Home, j.Done = home, done
		return false
	}
	e.touch(j)
	e.book(j, allocs, tasks)
	return true
}

// watchMovable has the engine retry jobs that wait for their memory as soon as a running
// job may be moved.
func (e *Engine) watchMovable(j *job.State) {
	if at := j.MovableAt(); at > e.w.Now && e.stops.Any() && e.stops.Keeps(j.Allocs) { // else no job has memory there
		e.timers.Set(at, pending.Movable, j)
	}
}

// retryHomed makes a pass due if a job waits for the devices that have its memory.
func (e *Engine) retryHomed() {
	e.fresh = e.fresh || e.line.Homed() > 0
}

// clearHome has the jobs leave that hold the devices on which a suspended job in line has its
// memory, if there is room for them elsewhere, and gives it these.
func (e *Engine) clearHome(r placement.Request, j *job.State) bool {
	way := e.moves.Clear(r, j)
	if way != nil {
		e.relocate(j, way)
	}
	return way != nil
}
