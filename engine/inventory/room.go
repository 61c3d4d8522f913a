package inventory

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// Tasks with shares of several GPUs of a node: the shares of one task are on distinct GPUs, but two
// tasks may use the same GPUs.

// SharesOn counts how many shares fit on each of some devices, and in total.
func (st *Store) SharesOn(n *Node, r *cluster.Request, on uint64, fits *[cluster.MaxGPUsPerNode]int16) (sum int) {
	for i := range n.devs {
		d := &n.devs[i]
		if n.Whole()&on>>i&1 == 0 || d.slots != 0 || d.milli == 0 || n.free>>i&1 == 0 && d.tenants == 0 {
			continue
		}
		k := min(int(int64(d.milli)/r.Share), st.classes[n.class].Seats(d))
		if r.Memory > 0 {
			k = min(k, int(d.mem/r.Memory))
		}
		fits[i] = int16(k)
		sum += k
	}
	return sum
}

// distinct is how many tasks, at most most, can have per shares each on distinct devices if fits[i]
// shares fit on device i, sum in total: t tasks fit if there are t*per shares, counting at most t
// per device, one for each task.
func distinct(fits []int16, sum, per, most int) int {
	if per == 1 {
		return min(most, sum)
	}
	for t := min(most, sum/per); ; {
		use := 0
		for _, k := range fits {
			use += min(int(k), t)
		}
		if use >= per*t {
			return t
		}
		t = use / per
	}
}

// Room returns how many tasks fit on the node now (at most most).
func (st *Store) Room(n *Node, r *cluster.Request, most int) int {
	return st.RoomOn(n, r, most, AnyDevice)
}

// AnyDevice is the mask of all devices.
const AnyDevice = ^uint64(0)

// RoomOn is Room on some of the node's devices.
func (st *Store) RoomOn(n *Node, r *cluster.Request, most int, on uint64) int {
	fit := most
	if r.CPU > 0 {
		fit = min(fit, int(n.cpu/r.CPU))
	}
	if r.RAM > 0 {
		fit = min(fit, int(n.ram/r.RAM))
	}
	switch {
	case fit <= 0:
		return 0
	case r.Profile != "":
		return min(fit, st.roomSlices(n, r, fit, on))
	case r.GPUs == 0:
		return fit
	case !r.Fractional():
		return min(fit, n.FreeOn(on)/r.GPUs)
	}
	var fits [cluster.MaxGPUsPerNode]int16
	return distinct(fits[:len(n.devs)], st.SharesOn(n, r, on, &fits), r.GPUs, fit)
}

// roomSlices counts how many instances of the profile can be created, greedily.
func (st *Store) roomSlices(n *Node, r *cluster.Request, most int, on uint64) int {
	model := &st.classes[n.class].model
	p, ok := model.Profile(r.Profile)
	if !ok {
		return 0
	}
	count := 0
	for i := range n.devs {
		d := &n.devs[i]
		if n.Stays(i) {
			if n.healthy&on&n.fixed.cut>>i&1 == 1 {
				count += n.idleInstances(i, p.Name)
			}
			continue
		}
		if n.healthy&on>>i&1 == 0 || d.tenants > 0 && d.slots == 0 ||
			n.free>>i&1 == 0 && d.tenants == 0 && !n.IsCut(i) {
			continue
		}
		slots, compute, made := d.slots, int(d.compute), 0
		if p.Media() && d.media {
			continue
		}
		for _, s := range p.Starts {
			if slots&p.Mask(s) == 0 && compute+p.Compute <= model.Compute && made < p.Max {
				slots |= p.Mask(s)
				compute += p.Compute
				made++
			}
		}
		if count += made; count >= most {
			return most
		}
	}
	return min(count, most)
}

// LossOfStart weighs the future instances that become impossible if the profile is created at
// start: first those that jobs in line ask for (wanted, by profile; nil: none), then all, by memory
// slices (NVIDIA's MIG user guide: least lost options keeps 4g possible).
func LossOfStart(m *cluster.GPUModel, p *cluster.SliceProfile, slots uint8, start int, wanted []int64) int64 {
	loss, asked := int64(0), int64(0)
	after := slots | p.Mask(start)
	for i := range m.Profiles {
		q := &m.Profiles[i]
		for _, s := range q.Starts {
			if slots&q.Mask(s) == 0 && after&q.Mask(s) != 0 {
				loss += int64(q.Slots)
				if wanted != nil {
					asked += wanted[i]
				}
			}
		}
	}
	return asked<<8 + loss // loss is below a hundred
}

// StartOf returns the legal start with the least loss of future options, or -1.
func StartOf(m *cluster.GPUModel, p *cluster.SliceProfile, d *Device, wanted []int64) int {
	best, bestLoss := -1, int64(0)
	if int(d.compute)+p.Compute > m.Compute || p.Media() && d.media {
		return -1
	}
	for i := len(p.Starts) - 1; i >= 0; i-- { // high starts first: they keep 4g possible
		s := p.Starts[i]
		if d.slots&p.Mask(s) != 0 {
			continue
		}
		if l := LossOfStart(m, p, d.slots, s, wanted); best < 0 || l < bestLoss {
			best, bestLoss = s, l
		}
	}
	return best
}

// TakeBack books exactly these allocations, all or none; guested: whole devices that have only
// guests are acceptable.
func (st *Store) TakeBack(allocs []Alloc, guested, crowded bool) bool {
	mark := st.Mark()
	for i := range allocs {
		if !st.CanTake(&allocs[i], guested, crowded) {
			st.Rollback(mark)
			return false
		}
		st.Take(&allocs[i])
	}
	return true
}

// CanTake reports whether exactly this allocation is free; guested as for TakeBack, crowded: a
// share may exceed the maximum number of clients of a device, and jobs what CPU and RAM a node has left by an event.
func (st *Store) CanTake(a *Alloc, guested, crowded bool) bool {
	n := &st.nodes[a.Node]
	if (n.cpu < a.CPU || n.ram < a.RAM) && !(crowded && n.SizeByEvent()) {
		return false
	}
	switch {
	case a.Beside:
		return n.hosts&a.GPUs == a.GPUs
	case a.Share == 0 && guested:
		return (n.free|n.guested&^n.hosts)&a.GPUs == a.GPUs
	case a.Share == 0:
		return n.free&a.GPUs == a.GPUs
	}
	d := &n.devs[bits.TrailingZeros64(a.GPUs)]
	if n.free&a.GPUs != 0 {
		return true
	}
	if a.Slots == 0 && !crowded && st.classes[n.class].Seats(d) == 0 {
		return false
	}
	instance := a.Slots != 0 && n.IsCut(bits.TrailingZeros64(a.GPUs)) && n.healthy&a.GPUs != 0
	return (d.tenants == 0 || d.user == a.User) && (d.tenants > 0 || instance) &&
		d.milli >= a.Share && d.mem >= a.Mem && d.slots&a.Slots == 0 &&
		(d.tenants == 0 || (a.Slots == 0) == (d.slots == 0)) && !(a.Media && d.media)
}
