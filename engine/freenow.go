package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// A place on devices that a stopping job still holds costs its grace period. So a job whose
// place is contested is placed a second time, in books that count as taken what is being left
// and is promised to no job: where it fits then, it starts at once.

// preferFree replaces a contested placement by one that can start at once, if there is one.
// The allocations are in the books from mark on, and in scratch memory.
func (e *Engine) preferFree(r placement.Request, j *job.State, mark inventory.Mark, allocs []inventory.Alloc,
	tasks int32) ([]inventory.Alloc, int32) {
	s := e.shapes.At(j.Shape)
	if j.Home != nil || s.NoneFree == e.freed || !e.leavers.Contested(allocs) {
		return allocs, tasks
	}
	contested := slices.Clone(allocs)
	e.st.Rollback(mark)
	var free []inventory.Alloc
	var n int32
	ok := e.enoughNow(s)
	if ok {
		e.takeLeaving()
		free, n, ok = e.findPlace(r, j)
		e.st.Rollback(mark)
	}
	if !ok && r.Reserved == nil && r.Blocked == nil && !s.Several() {
		s.NoneFree = e.freed
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

// takeLeaving books what stopping jobs still hold and no placed job counts on; the caller rolls it back.
func (e *Engine) takeLeaving() {
	e.updateResidues()
	for _, node := range e.beingLeft {
		e.st.TakeAll(e.residues[node].allocs)
	}
}

// enoughNow is a quick necessary condition: as many GPUs as a shape needs at its smallest size are
// free, without those that are being left.
func (e *Engine) enoughNow(s *shape.Shape) bool {
	for i := range s.Sets {
		if r := &s.Sets[i].Request; r.Fractional() || r.Profile != "" {
			return true // several on one GPU
		}
	}
	e.updateResidues()
	have := 0
	for ci := range e.st.Classes() {
		if s.Any.Has(int32(ci)) {
			have += e.st.Classes()[ci].Free()
		}
	}
	for _, node := range e.beingLeft {
		if n := &e.st.Nodes()[node]; n.TakesJobs() && s.Any.Has(n.Class()) {
			have -= e.residues[node].gpus
		}
	}
	return have >= s.GPUs
}

// updateResidues computes the residues of nodes that have changed.
func (e *Engine) updateResidues() {
	for len(e.residues) < len(e.st.Nodes()) {
		e.residues = append(e.residues, residue{})
	}
	for _, node := range e.beingLeft {
		n, r := &e.st.Nodes()[node], &e.residues[node]
		if r.known && r.version == n.Version() {
			continue
		}
		*r = residue{known: true, version: n.Version(), allocs: r.allocs[:0]}
		mark := e.st.Mark()
		e.takeLeavingOn(node)
		r.allocs = e.st.Taken(r.allocs, mark)
		for i := range r.allocs {
			if r.allocs[i].Share == 0 {
				r.gpus += popcount(r.allocs[i].GPUs)
			}
		}
		e.st.Rollback(mark)
	}
}

// residue is what takeLeaving books on a node in one state of it; a change of which jobs leave, or of what
// placed jobs count on, makes it unknown.
type residue struct {
	known   bool
	version uint64
	gpus    int // whole ones
	allocs  []inventory.Alloc
}

// forgetResidue is called when what stopping jobs have of a node and no placed job counts on changes.
func (e *Engine) forgetResidue(node int32) {
	if int(node) < len(e.residues) {
		e.residues[node].known = false
	}
}

func (e *Engine) takeLeavingOn(node int32) {
	n := &e.st.Nodes()[node]
	ids := slices.Sorted(slices.Values(n.Stopping()))
	var host inventory.Alloc
	for _, id := range ids {
		h := e.jobs[id].Unclaimed(node)
		host.CPU, host.RAM = host.CPU+h.CPU, host.RAM+h.RAM
	}
	host.Node, host.CPU, host.RAM = node, max(0, min(host.CPU, n.CPU())), max(0, min(host.RAM, n.RAM()))
	if host.CPU > 0 || host.RAM > 0 {
		e.st.Take(&host)
	}
	for _, id := range ids {
		v := e.jobs[id]
		going := v.GoingAllocs()
		for i := range going {
			if a := &going[i]; a.Node == node && a.GPUs != 0 && a.Share == 0 {
				e.takeDevices(node, a.GPUs)
			}
		}
		for i := range going {
			if a := &going[i]; a.Node == node && a.Share > 0 && !inventory.ShareDevice(going[:i], a) {
				e.takePart(v, a, going)
			}
		}
	}
}

// takeDevices books all that is left of some devices.
func (e *Engine) takeDevices(node int32, mask uint64) {
	n := &e.st.Nodes()[node]
	if whole := n.Free() & mask; whole != 0 {
		e.st.Take(&inventory.Alloc{Node: node, GPUs: whole})
		mask &^= whole
	}
	for mask &= n.Healthy(); mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		if d := &n.Devices()[i]; d.Tenants() > 0 && d.Milli() > 0 {
			rest := inventory.Alloc{Node: node, GPUs: 1 << i, Share: d.Milli(), Mem: d.Mem(), User: d.User()}
			if d.Slots() != 0 {
				compute := e.st.Classes()[n.Class()].Model().Compute
				rest.Slots, rest.Compute, rest.Media = ^d.Slots(), uint8(max(0, compute-int(d.Compute()))), !d.Media()
			}
			e.st.Take(&rest)
		}
	}
}

// takePart books what a leaving job has of a device that it shares: all that is left of the
// device if others cannot be there together with it.
func (e *Engine) takePart(v *job.State, a *inventory.Alloc, going []inventory.Alloc) {
	n := &e.st.Nodes()[a.Node]
	d := &n.Devices()[bits.TrailingZeros64(a.GPUs)]
	if d.Tenants() > 0 && ((d.Slots() == 0) != (a.Slots == 0) || d.User() != a.User) {
		e.takeDevices(a.Node, a.GPUs)
		return
	}
	p := v.UnclaimedPart(a.Node, a.GPUs)
	part := inventory.Alloc{Node: a.Node, GPUs: a.GPUs, Share: int32(min(p.Milli, int64(d.Milli()))),
		Mem: max(0, min(p.Mem, d.Mem())), User: a.User}
	if part.Share <= 0 || d.Tenants() == 0 && n.Free()&a.GPUs == 0 && !n.IsCut(bits.TrailingZeros64(a.GPUs)) {
		return
	}
	if a.Slots != 0 {
		for i := range going {
			if o := &going[i]; o.Node == a.Node && o.GPUs == a.GPUs {
				part.Slots, part.Media = part.Slots|o.Slots&^d.Slots(), part.Media || o.Media && !d.Media()
			}
		}
		left := e.st.Classes()[n.Class()].Model().Compute - int(d.Compute())
		part.Compute = uint8(max(0, min(p.Compute, int64(left))))
	}
	e.st.Take(&part)
}
