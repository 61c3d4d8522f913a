package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
)

// A job that is moved stops like one that is preempted, but what it goes to is
// booked for it from then on (dest), so that nobody can take it meanwhile: it
// starts there as soon as it has left. If that place is lost, or the job is not to
// come back at once, it waits in line like any other that was preempted.

// holdSlack takes what a job would hold from the reservations that its run meets, or
// (sign -1) gives it back.
func (e *Engine) holdSlack(j *job.State, allocs []inventory.Alloc, sign int64) {
	end := e.w.Now.Add(j.ExpectedRun(e.limitOf(j)))
	for i := range e.resv {
		r := &e.resv[i]
		if r.at >= end {
			continue
		}
		for k := range r.nodes {
			s := &r.nodes[k]
			for a := range allocs {
				if al := &allocs[a]; al.Node == s.node {
					s.gpus -= int32(sign) * int32(popcount(al.GPUs))
					s.cpu -= sign * al.CPU
					s.ram -= sign * al.RAM
				}
			}
		}
	}
}

// tightest places a single task where it leaves the fewest GPUs free.
type tightest struct{}

func (tightest) Name() string { return "tightest" }

func (tightest) Place(s *placement.Site) bool {
	node := s.Find(0, 1, placement.Fullest)
	if node >= 0 {
		s.Take(node, 0, 1)
	}
	return node >= 0
}

// destination finds the tightest place for a job that was lifted, at the size that it has,
// and takes it. It is never spread over more than the job is now, nor, where queues have
// limits, does it count for more: a slice can be another part of another model. r is the search for which it moves.
func (e *Engine) destination(r placement.Request, v *job.State) ([]inventory.Alloc, bool) {
	s := e.shapes.At(v.Asks()) // of the model that a plan says
	r.Reserved = e.reserved(v, placement.Mover)
	if v.Tasks == 1 && !s.Topo.Required {
		r.Placer = tightest{}
	}
	mark := e.st.Mark()
	allocs, ok := e.find.PlaceWithin(r, v, s, v.Tasks, inventory.Domain{})
	for _, l := range []cluster.Level{cluster.LevelNVLink, cluster.LevelNode, cluster.LevelRack, cluster.LevelFabric} {
		ok = ok && (!e.st.Together(v.Allocs, l) || e.st.Together(allocs, l))
	}
	if !ok || e.limits.byQueue && inventory.MilliIn(allocs) > v.Milli {
		e.st.Rollback(mark)
		return nil, false
	}
	return slices.Clone(allocs), true
}

// relocate tells jobs to leave for the places that were found for them, and gives
// the gang theirs.
func (e *Engine) relocate(j *job.State, way *relocation) {
	e.sendOff(way.movers, way.allocs, j.Spec.ID)
	e.book(j, way.allocs, tasksOf(way.allocs))
}

// sendOff tells jobs to leave for the places that were found for them, and takes what
// the job gets for whom they leave, if it is for one.
func (e *Engine) sendOff(movers []mover, allocs []inventory.Alloc, forJob cluster.JobID) {
	for i := range movers {
		v := movers[i].j
		e.unlist(v)
		e.st.ReleaseAll(v.Allocs)
	}
	for i := range allocs {
		e.st.Take(&allocs[i])
	}
	e.st.Commit()
	e.epoch++
	for i := range movers {
		m := &movers[i]
		e.holdSlack(m.j, m.dest, 1)
		e.markStopping(m.j, m.how, job.Preempted, forJob)
		m.j.Moved = append(slices.DeleteFunc(m.j.Moved, func(t cluster.Time) bool {
			return t <= e.w.Now.Add(-keepMoves)
		}), e.w.Now)
		e.reserveDest(m.j, m.dest)
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
	at, _ := slices.BinarySearch(e.defrag.movers, v.Spec.ID)
	e.defrag.movers = slices.Insert(e.defrag.movers, at, v.Spec.ID)
}

// dropDest gives up what is booked for a job that leaves, and returns it.
func (e *Engine) dropDest(v *job.State) []inventory.Alloc {
	dest := v.Dest
	if dest == nil {
		return nil
	}
	e.touch(v)
	v.Dest = nil
	e.freed++
	e.st.ReleaseAll(dest)
	e.charge(v, -1)
	e.st.Commit()
	e.epoch++
	e.defrag.movers = without(e.defrag.movers, v.Spec.ID)
	return dest
}

// dropDests gives up what is booked on some devices of a node for jobs that leave,
// or (node -1) all of it.
func (e *Engine) dropDests(node int32, mask uint64) {
	for _, id := range slices.Clone(e.defrag.movers) {
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
	return slices.ContainsFunc(e.defrag.movers, func(id cluster.JobID) bool {
		return slices.ContainsFunc(e.jobs[id].Dest, func(a inventory.Alloc) bool {
			return a.Node == node && a.GPUs&dev != 0
		})
	})
}

// land starts a job that has left where it was, if it is in line, on what was booked
// for it until just now.
func (e *Engine) land(j *job.State, dest []inventory.Alloc) {
	if dest == nil || j.State != job.Pending || !j.Eligible || !e.planAllows(j, dest) || !e.speeds.BearsAll(dest) ||
		!e.st.TakeBack(dest, false, false) {
		return
	}
	e.book(j, dest, tasksOf(dest))
}

// planAllows reports whether a job is to start on these devices, by the plan in force,
// which may be another than when they were booked.
func (e *Engine) planAllows(j *job.State, allocs []inventory.Alloc) bool {
	t := j.Target
	return e.plans.planner == nil ||
		t != nil && t.Partition == "" && (t.GPU == "" || t.GPU == inventory.GPUOf(&e.st, allocs)) &&
			e.mayBe(j, tasksOf(allocs))
}
