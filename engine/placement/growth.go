package placement

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// roomStep is the resolution of rooms, in milli-GPU: smaller differences are no reason to leave the
// nodes that were filled before.
const roomStep = 60

// Candidates calls f for each node on which the set might run, in order, until f returns false.
func (s *Site) Candidates(set int, f func(node int) bool) { s.nodes(s.stage.Of(set), f) }

// FreeMilli returns the free milli-GPU of a node.
func (s *Site) FreeMilli(node int) cluster.Milli { return s.r.In.Nodes()[node].FreeMilli() }

// Free appends the free milli-GPU of each GPU of a node to buf.
func (s *Site) Free(node int, buf []int64) []int64 {
	n := &s.r.In.Nodes()[node]
	for i := range n.Devices() {
		buf = append(buf, n.FreeMilliOn(i))
	}
	return buf
}

// FreeCPU returns the free CPU of a node; 0 if it is not modelled.
func (s *Site) FreeCPU(node int) cluster.Milli {
	n := &s.r.In.Nodes()[node]
	if n.Spec().CPU == 0 {
		return 0
	}
	return n.CPU()
}

// Sizes returns the sizes of the tasks on a node: bit 0 stands for shares and slices, bit k for
// tasks of k GPUs (63: that many or more).
func (s *Site) Sizes(node int) (mask uint64) {
	for k, n := range s.r.In.Nodes()[node].Sizes() {
		if n > 0 {
			mask |= 1 << k
		}
	}
	return mask
}

// Devices returns the devices of a node with room for a share of one device; none if tasks ask for
// anything else.
func (s *Site) Devices(node, set int) (mask uint64) {
	n, r := &s.r.In.Nodes()[node], &s.req[set].Request
	if !oneShare(r) {
		return 0
	}
	for m := n.Whole() & s.devices(n); m != 0; m &= m - 1 {
		dev := bits.TrailingZeros64(m)
		if _, ok := s.DeviceLeft(n, dev, r); ok && n.FreeMilliOn(dev) > 0 {
			mask |= 1 << dev
		}
	}
	return mask
}

// Growth returns the cost of one more task of the set on a node and, for a share of one device, the
// device with the least cost (of equal devices the fullest, then the first); -1: any. ok is false
// if there is no room. The caller still has to check Room. Fragments: their growth, in milli-GPU
// times tasks. Rooms: their loss, in steps of 60 milli-GPU of the mean over the tasks.
func (s *Site) Growth(node, set int, measure inventory.Measure) (growth int64, dev int, ok bool) {
	d := s.f.Demand()
	n, r := &s.r.In.Nodes()[node], &s.req[set].Request
	c := s.r.In.Memory()
	c.Fresh(d, len(s.r.In.Nodes()))
	if on := s.devices(n); on != inventory.AnyDevice {
		e := s.growth(node, set, d, on, measure)
		return e.Value, int(e.Device), e.Device != inventory.NoRoom
	}
	if s.row == nil || s.rowSet != set || s.rowRev != d.Rev || s.rowOf != measure {
		s.row, s.rowSet, s.rowRev, s.rowOf = c.Row(r, s.f.Owner(s.job.Spec), measure), set, d.Rev, measure
	}
	if r.Profile != "" && s.row.Wanted != s.f.wanted.rev { // the place of slices depends on the jobs in line
		s.row.Wanted = s.f.wanted.rev
		clear(s.row.Nodes)
	}
	e := &s.row.Nodes[node]
	if e.Version != n.Version()+1 {
		*e = s.growth(node, set, d, inventory.AnyDevice, measure)
		e.Version = n.Version() + 1
	}
	return e.Value, int(e.Device), e.Device != inventory.NoRoom
}

// growth computes an entry of a row by a tentative change.
func (s *Site) growth(node, set int, d *inventory.Demand, on uint64, measure inventory.Measure) inventory.FragEntry {
	st, r := s.r.In, &s.req[set].Request
	n := &st.Nodes()[node]
	if st.RoomOn(n, r, 1, on) < 1 {
		return inventory.FragEntry{Device: inventory.NoRoom}
	}
	d.Computed++
	before, step := int64(0), 2*roomStep*max(1, d.Weight)
	if measure == inventory.Fragments {
		before = st.Usable(node, d).Usable()
	} else {
		before = st.RoomsOf(n, d)
	}
	try := func(take func()) int64 {
		mark, allocs := s.Mark()
		take()
		taken := cluster.Milli(0)
		for i := allocs; i < len(s.allocs); i++ {
			taken += s.allocs[i].Milli()
		}
		g := int64(0)
		if measure == inventory.Fragments {
			g = before - st.UsableOf(n, d) - taken*d.Weight
		} else {
			g = (before - st.RoomsOf(n, d) + step - 1) / step
		}
		s.Undo(mark, allocs)
		return g
	}
	if !oneShare(r) {
		return inventory.FragEntry{Value: try(func() { s.takeOn(node, set, 1, Fullest, 1) }), Device: -1}
	}
	best := inventory.FragEntry{Device: inventory.NoRoom}
	for m := s.Devices(node, set); m != 0; m &= m - 1 {
		dev := bits.TrailingZeros64(m)
		if s.alike(n, dev, on) {
			continue
		}
		g := try(func() { s.TakeDevice(node, set, dev) })
		if best.Device < 0 || g < best.Value ||
			g == best.Value && n.Devices()[dev].Milli() < n.Devices()[best.Device].Milli() {
			best.Value, best.Device = g, int16(dev)
		}
	}
	return best
}

// alike reports whether an earlier device has the same free resources.
func (s *Site) alike(n *inventory.Node, dev int, on uint64) bool {
	c := &s.r.In.Classes()[n.Class()]
	for i := range dev {
		if on>>i&1 == 1 && n.FreeMilliOn(i) == n.FreeMilliOn(dev) && n.Devices()[i].Mem() == n.Devices()[dev].Mem() &&
			n.Devices()[i].Slots() == n.Devices()[dev].Slots() && n.IsCut(i) == n.IsCut(dev) &&
			c.Seats(&n.Devices()[i]) == c.Seats(&n.Devices()[dev]) {
			return true
		}
	}
	return false
}

// oneShare reports whether tasks take a share of one device.
func oneShare(r *cluster.Request) bool { return r.Fractional() && r.Profile == "" && r.GPUs == 1 }

// TakeDevice binds one task of a set to a node, and its share to a device on which the caller has
// checked that there is room. Other tasks are bound as by Take.
func (s *Site) TakeDevice(node, set, dev int) {
	r := &s.req[set].Request
	if dev < 0 || !oneShare(r) {
		s.Take(node, set, 1)
		return
	}
	s.bind(&inventory.Alloc{Node: int32(node), Set: int32(set), Tasks: 1, GPUs: 1 << dev, Share: int32(r.Share),
		Mem: r.Memory, CPU: r.CPU, RAM: r.RAM, User: s.f.Owner(s.job.Spec), Tenant: s.job.Tenant()})
}
