package inventory

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

type undoRec struct {
	alloc   Alloc
	taken   bool
	version uint64 // of the node before
}

// note records that a job's holdings were charged to its queue (sign 1) or refunded (-1).
type note struct {
	job, sign int32
}

// Mark is a point to which changes can be rolled back: of nodes, their devices and slices, and of
// queue use.
type Mark struct {
	undo, notes, commits int
}

// BillWith sets the function that undoes notes.
func (st *Store) BillWith(recharge func(job int32, sign int64)) { st.recharge = recharge }

// changed gives a node a new version.
func (st *Store) changed(n *Node) {
	st.changes++
	n.version = st.changes
}

func (st *Store) index(n *Node, in bool) {
	if n.indexed == in {
		return
	}
	c := &st.classes[n.class]
	n.indexed = in
	st.changed(n)
	if in {
		c.buckets[n.nfree].add(n.pos)
		c.free += int(n.nfree)
	} else {
		c.buckets[n.nfree].del(n.pos)
		c.free -= int(n.nfree)
	}
	st.classes[n.class].indexPartial(n)
}

// indexPartial updates the index of nodes that have a partly used device.
func (c *Class) indexPartial(n *Node) {
	has := false
	if n.indexed {
		for i := range n.devs {
			d := &n.devs[i]
			if d.tenants > 0 && n.healthy>>i&1 == 1 {
				has = true
				break
			}
		}
	}
	if has {
		c.partial.add(n.pos)
	} else {
		c.partial.del(n.pos)
	}
}

// setFree changes the mask of wholly free devices and updates the index.
func (st *Store) setFree(n *Node, free uint64) {
	old := n.nfree
	n.free = free
	n.nfree = int16(bits.OnesCount64(free))
	if n.indexed && old != n.nfree {
		c := &st.classes[n.class]
		c.buckets[old].del(n.pos)
		c.buckets[n.nfree].add(n.pos)
		c.free += int(n.nfree) - int(old)
	}
}

// Take books an allocation; Release is its exact inverse. Both are logged, so that Rollback can
// undo them.
func (st *Store) Take(a *Alloc) { st.book(a, true) }

// TakeAll books allocations.
func (st *Store) TakeAll(allocs []Alloc) {
	for i := range allocs {
		st.Take(&allocs[i])
	}
}

// Release gives an allocation back.
func (st *Store) Release(a *Alloc) { st.book(a, false) }

// ReleaseAll gives allocations back.
func (st *Store) ReleaseAll(allocs []Alloc) {
	for i := range allocs {
		st.Release(&allocs[i])
	}
}

func (st *Store) book(a *Alloc, taken bool) {
	n := &st.nodes[a.Node]
	st.undo = append(st.undo, undoRec{*a, taken, n.version})
	st.apply(a, taken)
	st.changed(n)
}

// Note logs that a job's holdings were charged to its queue (sign 1) or refunded (-1), so that a
// rollback undoes that, too. Until the rollback or commit the job must keep its size, weight, queue
// and holdings.
func (st *Store) Note(job cluster.JobID, sign int64) {
	st.notes = append(st.notes, note{int32(job), int32(sign)})
}

// Mark returns the present point for Rollback.
func (st *Store) Mark() Mark { return Mark{len(st.undo), len(st.notes), st.commits} }

// Rollback undoes everything since the mark.
func (st *Store) Rollback(m Mark) {
	if m.commits != st.commits {
		panic("engine: what is to be undone was committed")
	}
	for i := len(st.notes) - 1; i >= m.notes; i-- {
		st.recharge(st.notes[i].job, -int64(st.notes[i].sign))
	}
	st.notes = st.notes[:m.notes]
	for i := len(st.undo) - 1; i >= m.undo; i-- {
		u := &st.undo[i]
		st.apply(&u.alloc, !u.taken)
		st.nodes[u.alloc.Node].version = u.version
	}
	st.undo = st.undo[:m.undo]
}

// Commit makes the changes final.
func (st *Store) Commit() {
	if st.Tentative() {
		st.commits++
		st.undo, st.notes = st.undo[:0], st.notes[:0]
	}
}

// Tentative reports whether there are uncommitted changes.
func (st *Store) Tentative() bool { return len(st.undo) > 0 || len(st.notes) > 0 }

// Taken appends the allocations taken since the mark to buf; none may have been released since.
func (st *Store) Taken(buf []Alloc, since Mark) []Alloc {
	for i := since.undo; i < len(st.undo); i++ {
		buf = append(buf, st.undo[i].alloc)
	}
	return buf
}

func (st *Store) apply(a *Alloc, taken bool) {
	n := &st.nodes[a.Node]
	sign := int64(1)
	if taken {
		sign = -1
	}
	n.cpu += sign * a.CPU
	n.ram += sign * a.RAM
	if a.GPUs == 0 {
		return
	}
	n.sizes[sizeOf(a)] -= int32(sign) * max(1, a.Tasks)
	if a.Share == 0 {
		n.applyWhole(a, taken)
		if taken {
			st.setFree(n, n.free&^a.GPUs)
		} else {
			st.setFree(n, n.free|a.GPUs&n.Whole()&^n.hosts&^n.guested)
		}
		return
	}
	st.applyShared(n, a, taken)
}

// sizeOf is the number of GPUs per task of an allocation; 0: a share or a slice.
func sizeOf(a *Alloc) int {
	if a.Share > 0 {
		return 0
	}
	return min(63, bits.OnesCount64(a.GPUs)/int(max(1, a.Tasks)))
}

// applyWhole books whole devices: for the job that holds them, or for guests.
func (n *Node) applyWhole(a *Alloc, taken bool) {
	switch {
	case !a.Beside && taken:
		if n.hosts&a.GPUs != 0 || (n.free|n.guested)&a.GPUs != a.GPUs {
			panic("engine: a device is taken twice")
		}
		n.hosts |= a.GPUs
	case !a.Beside:
		n.hosts &^= a.GPUs
	default:
		for m := a.GPUs; m != 0; m &= m - 1 {
			i := bits.TrailingZeros64(m)
			d := &n.devs[i]
			if taken {
				d.guests++
			} else {
				d.guests--
			}
			if n.guested &^= 1 << i; d.guests > 0 {
				n.guested |= 1 << i
			}
		}
	}
}

// applyShared books a share or a slice on its (single) device.
func (st *Store) applyShared(n *Node, a *Alloc, taken bool) {
	i := bits.TrailingZeros64(a.GPUs)
	d := &n.devs[i]
	if a.Tenant != 0 {
		n.applyTenant(Tenant{int8(i), a.Tenant}, taken)
	}
	if taken {
		d.milli -= a.Share
		d.mem -= a.Mem
		d.slots |= a.Slots
		d.compute += a.Compute
		d.media = d.media || a.Media
		d.tenants++
		d.user = a.User
		if d.milli < 0 || d.mem < 0 {
			panic("engine: a device is shared beyond its capacity")
		}
		if n.free&a.GPUs != 0 {
			st.setFree(n, n.free&^a.GPUs)
		}
	} else {
		d.milli += a.Share
		d.mem += a.Mem
		d.slots &^= a.Slots
		d.compute -= a.Compute
		d.media = d.media && !a.Media
		if d.tenants--; d.tenants == 0 {
			d.user = ""
			if n.Whole()&a.GPUs != 0 {
				st.setFree(n, n.free|a.GPUs)
			}
		}
	}
	st.classes[n.class].indexPartial(n)
}

func (n *Node) applyTenant(t Tenant, taken bool) {
	if taken {
		n.tenants = append(n.tenants, t)
		return
	}
	i, last := slices.Index(n.tenants, t), len(n.tenants)-1
	n.tenants[i] = n.tenants[last]
	n.tenants = n.tenants[:last]
}
