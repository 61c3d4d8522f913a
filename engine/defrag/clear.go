package defrag

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
)

// Clear says how a suspended job gets its devices back: one of the movers that hold them leaves, or as few as it takes,
// each to a place of its own, the cheapest first; nil: there is no way.
func (f *Finder) Clear(r placement.Request, j *job.State, movers []Mover) *Relocation {
	slices.SortStableFunc(movers, func(a, b Mover) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.Job.Spec.ID, b.Job.Spec.ID))
	})
	before := f.st.Mark()
	defer f.st.Rollback(before)
	for i := range movers {
		f.st.ReleaseAll(movers[i].Job.Allocs)
		if way := f.clearedBy(r, j, movers[i:i+1]); way != nil {
			return way
		}
		f.st.Rollback(before)
	}
	for n := range movers {
		f.st.ReleaseAll(movers[n].Job.Allocs)
		if n == 0 {
			continue // has been tried
		}
		now := f.st.Mark()
		if way := f.clearedBy(r, j, movers[:n+1]); way != nil {
			return way
		}
		f.st.Rollback(now)
	}
	return nil
}

// clearedBy is how the movers leave, which gave up their devices, except those for which there is room beside the
// suspended job.
func (f *Finder) clearedBy(r placement.Request, j *job.State, movers []Mover) *Relocation {
	home, fits := f.places.Place(r, j, f.world.Shapes.At(j.Shape), 0)
	if !fits {
		return nil
	}
	way := &Relocation{Allocs: slices.Clone(home)}
	for i := range movers {
		allocs := movers[i].Job.Allocs
		if !f.places.Speeds.BearsAll(allocs) || !f.st.TakeBack(allocs, false, false) {
			way.Movers = append(way.Movers, movers[i])
		}
	}
	f.resv.Take(j, way.Allocs, 1)
	defer f.resv.Take(j, way.Allocs, -1)
	largestFirst(way.Movers)
	if !f.placeAll(r, way.Movers) {
		return nil
	}
	return way
}

// placeAll finds places for all movers, one after the other; false: for some there is none.
func (f *Finder) placeAll(r placement.Request, movers []Mover) bool {
	for i := range movers {
		m := &movers[i]
		var ok bool
		if m.Dest, ok = f.destination(r, m.Job); !ok {
			return false
		}
		f.resv.Take(m.Job, m.Dest, 1)
		defer f.resv.Take(m.Job, m.Dest, -1)
	}
	return true
}

// Clear finds room elsewhere for the jobs that hold the devices on which a suspended job in line has its memory; nil:
// there is none, or no job leaves for that.
func (m *Rules) Clear(r placement.Request, j *job.State) *Relocation {
	if j.Home == nil || r.Blocked != nil || m.resv.HasAdvance() || inventory.IdleGPUs(m.st) == 0 ||
		m.world.Shapes.At(j.Shape).NoPreempt {
		return nil
	}
	return m.finder.Clear(r, j, m.holdersOf(j))
}

// holdersOf lists the jobs that hold part of the devices on which a suspended job has its memory, and may leave that
// for it, where it is worth that.
func (m *Rules) holdersOf(j *job.State) (list []Mover) {
	m.running.ByKey().Walk(func(it order.Item) bool {
		v := m.finder.places.Around.Jobs()[it.ID]
		if inventory.Overlap(v.Allocs, j.Home) && m.leavesFor(v, j) {
			list = append(list, m.finder.Mover(v))
		}
		return true
	})
	return list
}

// leavesFor reports whether a job may leave its devices for one that has its memory there.
func (m *Rules) leavesFor(v, j *job.State) bool {
	x, now := m.world.Job(v), m.world.Now
	return m.MayMove(v) && m.victims.MayStop(v) &&
		v.Tier() >= j.Spec.Tier && (m.world.Traits.Preempts || v.Tier() > j.Spec.Tier) &&
		x.Portable() && v.MovableAt() <= now && v.StaysFor(x.MoveTakes(), now)
}
