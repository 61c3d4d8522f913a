package defrag

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine/job"
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
