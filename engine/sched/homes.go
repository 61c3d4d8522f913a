package sched

import (
	"slices"

	"github.com/muster-gpu/muster/engine/inventory"
)

// Homes records the devices that a plan gives to jobs that keep running or resume in place. A nil
// *Homes has none.
type Homes struct {
	given []homes // by node
}

// homes is the given devices of one node: whole ones, those shared in parts, and those given to
// jobs that cannot be moved.
type homes struct{ whole, parts, stuck uint64 }

// Homes returns empty records for one plan; nil: no job is suspended, so a plan need not keep any.
func (v View) Homes() *Homes {
	if !v.w.Oracle.Suspends() || !v.w.Store.AnyFrozen() {
		return nil
	}
	return &Homes{given: make([]homes, len(v.w.Store.Nodes()))}
}

// on is the devices that a job holds, or on which its memory is; none: it can start anywhere.
func (j JobView) on() []inventory.Alloc {
	if j.Running() {
		return j.j.Allocs
	}
	return j.j.Home
}

// Free reports whether the devices that a job holds, or on which its memory is, were given to no
// other job; true for a job that can start anywhere.
func (h *Homes) Free(j JobView) bool {
	if h == nil {
		return true
	}
	on := j.on()
	for i := range on {
		a := &on[i]
		taken := h.given[a.Node].whole
		if a.Share == 0 {
			taken |= h.given[a.Node].parts
		}
		if a.GPUs&taken != 0 {
			return false
		}
	}
	return true
}

// Stuck reports whether the devices of a job were given to another that would not be moved to free
// them: for a suspended job because the other cannot be moved, for a running one because it cannot
// be moved itself.
func (h *Homes) Stuck(j JobView) bool {
	if j.Running() {
		return !j.Portable()
	}
	return slices.ContainsFunc(j.j.Home, func(a inventory.Alloc) bool { return h.given[a.Node].stuck&a.GPUs != 0 })
}

// LosesMemoryOn reports whether a suspended job would lose what it has in memory by moving to another's
// devices.
func (j JobView) LosesMemoryOn(host JobView) bool {
	return j.j.Frozen != nil && !inventory.SamePlace(j.j.Frozen, host.on())
}

// Give records that a job keeps its devices, or resumes where its memory is.
func (h *Homes) Give(j JobView) {
	if h == nil {
		return
	}
	on := j.on()
	for i := range on {
		a, g := &on[i], &h.given[on[i].Node]
		if a.Share == 0 {
			g.whole |= a.GPUs
		} else {
			g.parts |= a.GPUs
		}
		if !j.Portable() {
			g.stuck |= a.GPUs
		}
	}
}
