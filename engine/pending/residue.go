package pending

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
)

// A place on devices that a stopping job still holds costs its grace period. So a job whose place is contested is
// placed a second time, in an inventory that counts as taken what stopping jobs still hold and no placed job counts on.

// residue is what leavers still hold of a node and no placed job counts on, in one version of the node; a change of
// which jobs leave, or of what placed jobs count on, makes it unknown.
type residue struct {
	known   bool
	version uint64
	gpus    int // whole ones
	allocs  []inventory.Alloc
}

// Leaves notes that a job still holds devices of a node that the inventory has promised on.
func (l *Leavers) Leaves(node int32, id cluster.JobID) {
	l.forget(node)
	l.Store.Leaving(node, id)
	if at, known := slices.BinarySearch(l.nodes, node); !known {
		l.nodes = slices.Insert(l.nodes, at, node)
	}
}

// Left is the inverse of Leaves.
func (l *Leavers) Left(node int32, id cluster.JobID) {
	l.forget(node)
	l.Store.Left(node, id)
	if at, known := slices.BinarySearch(l.nodes, node); known && len(l.Store.Nodes()[node].Stopping()) == 0 {
		l.nodes = slices.Delete(l.nodes, at, at+1)
	}
}

// Freed notes that something may have become free that no stopping job holds.
func (l *Leavers) Freed() { l.freed++ }

// NoneFree reports whether a shape fitted nowhere in what no stopping job holds, and nothing has become free since.
func (l *Leavers) NoneFree(shape int32) bool {
	return int(shape) < len(l.full) && l.full[shape] == l.freed
}

// NoteNoneFree notes that a shape fits nowhere in what no stopping job holds.
func (l *Leavers) NoteNoneFree(shape int32) {
	for int(shape) >= len(l.full) {
		l.full = append(l.full, -1)
	}
	l.full[shape] = l.freed
}

// TakeResidues takes what stopping jobs still hold and no placed job counts on; the caller rolls it back.
func (l *Leavers) TakeResidues() {
	l.update()
	for _, node := range l.nodes {
		l.Store.TakeAll(l.residues[node].allocs)
	}
}

// MayFit is a quick necessary condition: as many GPUs as a shape needs at its smallest size are free and not being
// left.
func (l *Leavers) MayFit(s *shape.Shape) bool {
	if s.Partly() {
		return true // several on one GPU
	}
	l.update()
	have, classes := 0, l.Store.Classes()
	for ci := range classes {
		if s.Any.Has(int32(ci)) {
			have += classes[ci].Free()
		}
	}
	for _, node := range l.nodes {
		if n := &l.Store.Nodes()[node]; n.TakesJobs() && s.Any.Has(n.Class()) {
			have -= l.residues[node].gpus
		}
	}
	return have >= s.GPUs
}

// update computes the residues of nodes that have changed.
func (l *Leavers) update() {
	for len(l.residues) < len(l.Store.Nodes()) {
		l.residues = append(l.residues, residue{})
	}
	for _, node := range l.nodes {
		n, r := &l.Store.Nodes()[node], &l.residues[node]
		if r.known && r.version == n.Version() {
			continue
		}
		*r = residue{known: true, version: n.Version(), allocs: r.allocs[:0]}
		mark := l.Store.Mark()
		l.takeOn(node)
		r.allocs = l.Store.Taken(r.allocs, mark)
		for i := range r.allocs {
			if r.allocs[i].Share == 0 {
				r.gpus += bits.OnesCount64(r.allocs[i].GPUs)
			}
		}
		l.Store.Rollback(mark)
	}
}

// forget is called when what leavers hold of a node and no placed job counts on changes.
func (l *Leavers) forget(node int32) {
	if int(node) < len(l.residues) {
		l.residues[node].known = false
	}
}

// takeOn takes the residue of one node.
func (l *Leavers) takeOn(node int32) {
	n := &l.Store.Nodes()[node]
	ids := slices.Sorted(slices.Values(n.Stopping()))
	var host inventory.Alloc
	for _, id := range ids {
		h := l.Jobs()[id].Unclaimed(node)
		host.CPU, host.RAM = host.CPU+h.CPU, host.RAM+h.RAM
	}
	host.Node, host.CPU, host.RAM = node, max(0, min(host.CPU, n.CPU())), max(0, min(host.RAM, n.RAM()))
	if host.CPU > 0 || host.RAM > 0 {
		l.Store.Take(&host)
	}
	for _, id := range ids {
		v := l.Jobs()[id]
		going := v.GoingAllocs()
		for i := range going {
			if a := &going[i]; a.Node == node && a.GPUs != 0 && a.Share == 0 {
				takeRest(l.Store, node, a.GPUs)
			}
		}
		for i := range going {
			if a := &going[i]; a.Node == node && a.Share > 0 && !inventory.ShareDevice(going[:i], a) {
				l.takePart(v, a, going)
			}
		}
	}
}

// takeRest takes all that is left of some devices of a node.
func takeRest(st *inventory.Store, node int32, mask uint64) {
	n := &st.Nodes()[node]
	if whole := n.Free() & mask; whole != 0 {
		st.Take(&inventory.Alloc{Node: node, GPUs: whole})
		mask &^= whole
	}
	for mask &= n.Healthy(); mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		if d := &n.Devices()[i]; d.Tenants() > 0 && d.Milli() > 0 {
			rest := inventory.Alloc{Node: node, GPUs: 1 << i, Share: d.Milli(), Mem: d.Mem(), User: d.User()}
			if d.Slots() != 0 {
				compute := st.Classes()[n.Class()].Model().Compute
				rest.Slots, rest.Compute, rest.Media = ^d.Slots(), uint8(max(0, compute-int(d.Compute()))), !d.Media()
			}
			st.Take(&rest)
		}
	}
}

// takePart books what a leaving job has of a device that it shares: all that is left of the
// device if others cannot be there together with it.
func (l *Leavers) takePart(v *job.State, a *inventory.Alloc, going []inventory.Alloc) {
	n := &l.Store.Nodes()[a.Node]
	d := &n.Devices()[bits.TrailingZeros64(a.GPUs)]
	if d.Tenants() > 0 && ((d.Slots() == 0) != (a.Slots == 0) || d.User() != a.User) {
		takeRest(l.Store, a.Node, a.GPUs)
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
		left := l.Store.Classes()[n.Class()].Model().Compute - int(d.Compute())
		part.Compute = uint8(max(0, min(p.Compute, int64(left))))
	}
	l.Store.Take(&part)
}

// Vacant reports whether allocations are free where others are given back for them; promised: only without those of
// the placed jobs that were promised something of these nodes and have not started.
func (l *Leavers) Vacant(instead, allocs []inventory.Alloc, placed []*job.State) (ok, promised bool) {
	mark := l.Store.Mark()
	defer l.Store.Rollback(mark)
	l.Store.ReleaseAll(instead)
	lacks := func(a inventory.Alloc) bool { h := l.Short(a.Node); return h.CPU > 0 || h.RAM > 0 }
	before := l.Store.Mark()
	if l.Store.TakeBack(allocs, false, false) && !slices.ContainsFunc(allocs, lacks) {
		return true, false
	}
	l.Store.Rollback(before)
	for _, w := range Among(placed, allocs) {
		l.Store.ReleaseAll(w.Allocs)
	}
	lacks = func(a inventory.Alloc) bool {
		n := &l.Store.Nodes()[a.Node]
		left := l.leavingOn(a.Node)
		return n.CPU() < left.CPU || n.RAM() < left.RAM
	}
	return l.Store.TakeBack(allocs, false, false) && !slices.ContainsFunc(allocs, lacks), true
}

// leavingOn is the CPU and RAM of a node that jobs still have which leave it.
func (l *Leavers) leavingOn(node int32) (h job.Host) {
	for _, id := range l.Store.Nodes()[node].Stopping() {
		v := l.Jobs()[id]
		h.Add(job.HostOn(v.Leaving, node), 1)
		if v.State == job.Stopping {
			h.Add(job.HostOn(v.Allocs, node), 1)
		}
	}
	return h
}

// Among lists the placed jobs that have places on the nodes of allocations.
func Among(placed []*job.State, allocs []inventory.Alloc) (list []*job.State) {
	for _, w := range placed {
		if slices.ContainsFunc(allocs, func(a inventory.Alloc) bool { return inventory.OnNode(w.Allocs, a.Node) }) {
			list = append(list, w)
		}
	}
	return list
}
