package sched

import (
	"slices"

	"github.com/muster-gpu/muster/engine/inventory"
)

// Homes notes which devices a plan gives to whom it leaves where they run, or has go on where
// their memory is. A nil one knows of nobody.
type Homes struct {
	given []homes // by node
}

// homes is of one node: devices that are given whole, those of which parts are, and those
// given to somebody who would not go elsewhere.
type homes struct{ whole, parts, stuck uint64 }

// Homes is for one plan; nil: nobody is suspended, so that no plan need look at it.
func (v View) Homes() *Homes {
	if !v.w.Oracle.Suspends() || !v.w.Store.AnyFrozen() {
		return nil
	}
	return &Homes{given: make([]homes, len(v.w.Store.Nodes()))}
}

// on is the devices that a job has, or on which its memory is; none: it can go anywhere.
func (j JobView) on() []inventory.Alloc {
	if j.Running() {
		return j.j.Allocs
	}
	return j.j.Home
}

// Free reports whether the devices that a job has, or on which a suspended one has its memory,
// were given to nobody else; so it is for one that can go anywhere.
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

// Stuck reports whether nobody would be moved so that a job has its devices that were given to
// another: a suspended one that other, one that runs itself.
func (h *Homes) Stuck(j JobView) bool {
	if j.Running() {
		return !j.Portable()
	}
	return slices.ContainsFunc(j.j.Home, func(a inventory.Alloc) bool { return h.given[a.Node].stuck&a.GPUs != 0 })
}

// Forsakes reports whether a suspended job would lose what it has in memory by going to another's
// devices.
func (j JobView) Forsakes(host JobView) bool {
	return j.j.Frozen != nil && !inventory.SamePlace(j.j.Frozen, host.on())
}

// Give notes that a job keeps what it has, or goes on where its memory is.
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
