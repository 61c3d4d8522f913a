package engine

import (
	"math/bits"
	"slices"
)

// A place on devices that a stopping job still holds costs its grace period. So a job whose
// place is contested is placed a second time, in books that count as taken what is being left
// and is promised to no job: where it fits then, it starts at once.

// preferFree replaces a contested placement by one that can start at once, if there is one.
// The allocations are in the books from mark on, and in scratch memory.
func (e *Engine) preferFree(j *jobState, mark Mark, allocs []Alloc, tasks int32) ([]Alloc, int32) {
	s := e.shapeAt(j.shape)
	if j.home != nil || s.noneFree == e.freed || !e.contested(allocs) {
		return allocs, tasks
	}
	contested := slices.Clone(allocs)
	e.st.rollback(mark)
	var free []Alloc
	var n int32
	ok := e.enoughNow(s)
	if ok {
		e.takeLeaving()
		free, n, ok = e.findPlace(j)
		e.st.rollback(mark)
	}
	if !ok && e.held == nil && e.blockedBy == nil && !s.several() {
		s.noneFree = e.freed
	}
	if ok && (e.WakeTime(contested) > 0 || e.WakeTime(free) == 0) { // to wake a node takes longer than a grace period
		e.st.takeAll(free)
		if !e.contested(free) {
			return free, n
		}
		e.st.rollback(mark)
	}
	e.scratch.allocs = append(e.scratch.allocs[:0], contested...)
	e.st.takeAll(e.scratch.allocs)
	return e.scratch.allocs, tasks
}

// takeLeaving books what stopping jobs still hold and no placed job counts on; the caller rolls it back.
func (e *Engine) takeLeaving() {
	e.updateResidues()
	for _, node := range e.beingLeft {
		e.st.takeAll(e.residues[node].allocs)
	}
}

// enoughNow is a quick necessary condition: as many GPUs as a shape needs at its smallest size are
// free, without those that are being left.
func (e *Engine) enoughNow(s *shape) bool {
	for i := range s.sets {
		if r := &s.sets[i].Request; r.Fractional() || r.Profile != "" {
			return true // several on one GPU
		}
	}
	e.updateResidues()
	have := 0
	for ci := range e.st.classes {
		if s.any.has(int32(ci)) {
			have += e.st.classes[ci].free
		}
	}
	for _, node := range e.beingLeft {
		if n := &e.st.nodes[node]; n.indexed && s.any.has(n.class) {
			have -= e.residues[node].gpus
		}
	}
	return have >= s.gpus
}

// updateResidues computes the residues of nodes that have changed.
func (e *Engine) updateResidues() {
	for len(e.residues) < len(e.st.nodes) {
		e.residues = append(e.residues, residue{})
	}
	for _, node := range e.beingLeft {
		n, r := &e.st.nodes[node], &e.residues[node]
		if r.known && r.version == n.version {
			continue
		}
		*r = residue{known: true, version: n.version, allocs: r.allocs[:0]}
		mark := e.st.mark()
		e.takeLeavingOn(node)
		r.allocs = e.st.taken(r.allocs, mark)
		for i := range r.allocs {
			if r.allocs[i].Share == 0 {
				r.gpus += popcount(r.allocs[i].GPUs)
			}
		}
		e.st.rollback(mark)
	}
}

// residue is what takeLeaving books on a node in one state of it; a change of who leaves, or of what
// placed jobs count on, makes it unknown.
type residue struct {
	known   bool
	version uint64
	gpus    int // whole ones
	allocs  []Alloc
}

// forgetResidue is called when what stopping jobs have of a node and no placed job counts on changes.
func (e *Engine) forgetResidue(node int32) {
	if int(node) < len(e.residues) {
		e.residues[node].known = false
	}
}

func (e *Engine) takeLeavingOn(node int32) {
	n := &e.st.nodes[node]
	ids := slices.Sorted(slices.Values(n.stopping))
	var host Alloc
	for _, id := range ids {
		h := e.jobs[id].unclaimed(node)
		host.CPU, host.RAM = host.CPU+h.cpu, host.RAM+h.ram
	}
	host.Node, host.CPU, host.RAM = node, max(0, min(host.CPU, n.cpu)), max(0, min(host.RAM, n.ram))
	if host.CPU > 0 || host.RAM > 0 {
		e.st.take(&host)
	}
	for _, id := range ids {
		v := e.jobs[id]
		going := v.goingAllocs()
		for i := range going {
			if a := &going[i]; a.Node == node && a.GPUs != 0 && a.Share == 0 {
				e.takeDevices(node, a.GPUs)
			}
		}
		for i := range going {
			if a := &going[i]; a.Node == node && a.Share > 0 && !holdsPartOf(going[:i], a) {
				e.takePart(v, a, going)
			}
		}
	}
}

// takeDevices books all that is left of some devices.
func (e *Engine) takeDevices(node int32, mask uint64) {
	n := &e.st.nodes[node]
	if whole := n.free & mask; whole != 0 {
		e.st.take(&Alloc{Node: node, GPUs: whole})
		mask &^= whole
	}
	for mask &= n.healthy; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		if d := &n.devs[i]; d.tenants > 0 && d.milli > 0 {
			rest := Alloc{Node: node, GPUs: 1 << i, Share: d.milli, Mem: d.mem, User: d.user}
			if d.slots != 0 {
				compute := e.st.classes[n.class].model.Compute
				rest.Slots, rest.Compute, rest.Media = ^d.slots, uint8(max(0, compute-int(d.compute))), !d.media
			}
			e.st.take(&rest)
		}
	}
}

// takePart books what a leaving job has of a device that it shares: all that is left of the
// device if others cannot be there together with it.
func (e *Engine) takePart(v *jobState, a *Alloc, going []Alloc) {
	n := &e.st.nodes[a.Node]
	d := &n.devs[bits.TrailingZeros64(a.GPUs)]
	if d.tenants > 0 && ((d.slots == 0) != (a.Slots == 0) || d.user != a.User) {
		e.takeDevices(a.Node, a.GPUs)
		return
	}
	p := v.unclaimedPart(a.Node, a.GPUs)
	part := Alloc{Node: a.Node, GPUs: a.GPUs, Share: int32(min(p.milli, int64(d.milli))), Mem: max(0, min(p.mem, d.mem)), User: a.User}
	if part.Share <= 0 || d.tenants == 0 && n.free&a.GPUs == 0 && !n.isCut(bits.TrailingZeros64(a.GPUs)) {
		return
	}
	if a.Slots != 0 {
		for i := range going {
			if o := &going[i]; o.Node == a.Node && o.GPUs == a.GPUs {
				part.Slots, part.Media = part.Slots|o.Slots&^d.slots, part.Media || o.Media && !d.media
			}
		}
		left := e.st.classes[n.class].model.Compute - int(d.compute)
		part.Compute = uint8(max(0, min(p.compute, int64(left))))
	}
	e.st.take(&part)
}

func (st *nodeStore) takeAll(allocs []Alloc) {
	for i := range allocs {
		st.take(&allocs[i])
	}
}
