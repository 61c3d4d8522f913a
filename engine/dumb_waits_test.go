package engine_test

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// dumbClaim is CPU and RAM, or what of a device, that a placed job will get from one that leaves.
type dumbClaim struct {
	from     cluster.JobID
	node     int32
	cpu, ram int64
	dev      uint64
	parts    [4]int64
}

// waitForLeavers is what a booked job waits for: those that cannot be on a device together with
// it, and for what of shared devices, of CPU and of RAM is not free yet those first, then
// others by number.
func (d *dumb) waitForLeavers(j *dumbJob) {
	j.waits, j.claims = nil, nil
	for _, v := range d.jobs {
		if v != nil && v.state == engine.Stopping && slices.ContainsFunc(v.allocs, func(x engine.Alloc) bool {
			return slices.ContainsFunc(j.allocs, func(y engine.Alloc) bool {
				return x.Node == y.Node && x.GPUs&y.GPUs != 0 && !together(x, y)
			})
		}) {
			j.waits = append(j.waits, v.ID)
		}
	}
	for i, a := range j.allocs {
		same := func(b engine.Alloc) bool { return b.Node == a.Node && b.GPUs == a.GPUs }
		if a.Share > 0 && !slices.ContainsFunc(j.allocs[:i], same) {
			d.claimParts(j, a.Node, a.GPUs)
		}
	}
	var nodes []int32
	for _, a := range j.allocs {
		if !slices.Contains(nodes, a.Node) {
			nodes = append(nodes, a.Node)
		}
	}
	for _, node := range nodes {
		needCPU, needRAM := d.lacks(j, node)
		for _, waited := range []bool{true, false} {
			for _, v := range d.jobs {
				if v == nil || v.state != engine.Stopping || slices.Contains(j.waits, v.ID) != waited {
					continue
				}
				cpu, ram := d.unclaimed(v, node)
				cpu, ram = max(0, min(cpu, needCPU)), max(0, min(ram, needRAM))
				if cpu == 0 && ram == 0 {
					continue
				}
				j.claims = append(j.claims, dumbClaim{from: v.ID, node: node, cpu: cpu, ram: ram})
				needCPU, needRAM = needCPU-cpu, needRAM-ram
				if !waited {
					j.waits = append(j.waits, v.ID)
				}
			}
		}
	}
	for i, a := range j.allocs {
		same := func(b engine.Alloc) bool { return b.Node == a.Node && b.GPUs == a.GPUs }
		if a.Share > 0 && !slices.ContainsFunc(j.allocs[:i], same) {
			d.claimRest(j, a.Node, a.GPUs)
		}
	}
}

// together: two parts of a device can be there at once, if there is so much of it.
func together(x, y engine.Alloc) bool {
	if x.Share > 0 && y.Share > 0 && x.Slots > 0 && y.Slots > 0 {
		return x.Slots&y.Slots == 0 && !(x.Media && y.Media)
	}
	return x.Share > 0 && y.Share > 0 && x.Slots == 0 && y.Slots == 0 && x.User == y.User
}

// claimParts has a booked job wait for what of a device is not free yet.
func (d *dumb) claimParts(j *dumbJob, node int32, dev uint64) {
	n := &d.nodes[node]
	m := modelOf(n)
	free := [4]int64{cluster.Whole, m.Memory, int64(m.Compute), 1 << 40}
	if d.mps {
		most, stated := d.clients[n.Model]
		if !stated {
			most = 48
		}
		free[3] = int64(most)
	}
	for _, v := range d.jobs {
		switch {
		case v == nil:
		case v.inBooks():
			free = less(free, dumbPartsOn(v.allocs, node, dev))
		case v.state == engine.Stopping:
			free = less(free, d.leaves(v, node, dev))
		}
	}
	need := dumbPartsOn(j.allocs, node, dev)
	for i := range need {
		need[i] = max(0, min(need[i], -free[i]))
	}
	d.claimFromLeavers(j, node, dev, need, []bool{true, false})
}

// claimRest has a booked job that waits take from those for which it waits what else it needs.
func (d *dumb) claimRest(j *dumbJob, node int32, dev uint64) {
	rest := dumbPartsOn(j.allocs, node, dev)
	for _, c := range j.claims {
		if c.node == node && c.dev == dev {
			rest = less(rest, c.parts)
		}
	}
	d.claimFromLeavers(j, node, dev, rest, []bool{true})
}

// leaves is what a leaving job has of a device that none counts on.
func (d *dumb) leaves(v *dumbJob, node int32, dev uint64) [4]int64 {
	p := dumbPartsOn(v.allocs, node, dev)
	for _, w := range d.jobs {
		if w != nil && w.state == engine.Placed && slices.Contains(w.waits, v.ID) {
			for _, c := range w.claims {
				if c.from == v.ID && c.node == node && c.dev == dev {
					p = less(p, c.parts)
				}
			}
		}
	}
	return p
}

// claimFromLeavers claims parts from those that leave: those it waits for (true), and from others.
func (d *dumb) claimFromLeavers(j *dumbJob, node int32, dev uint64, need [4]int64, from []bool) {
	for _, waited := range from {
		for _, v := range d.jobs {
			if v == nil || v.state != engine.Stopping || slices.Contains(j.waits, v.ID) != waited {
				continue
			}
			gets := d.leaves(v, node, dev)
			for i := range gets {
				gets[i] = max(0, min(gets[i], need[i]))
			}
			if gets == [4]int64{} {
				continue
			}
			need = less(need, gets)
			j.claims = append(j.claims, dumbClaim{from: v.ID, node: node, dev: dev, parts: gets})
			if !waited {
				j.waits = append(j.waits, v.ID)
			}
		}
	}
}

// dumbPartsOn is what allocations have of a device: milli-GPU, memory, compute slices, clients.
func dumbPartsOn(allocs []engine.Alloc, node int32, dev uint64) (p [4]int64) {
	for _, a := range allocs {
		if a.Node != node || a.GPUs != dev || a.Share == 0 {
			continue
		}
		p[0], p[1], p[2] = p[0]+int64(a.Share), p[1]+a.Mem, p[2]+int64(a.Compute)
		if a.Slots == 0 {
			p[3]++
		}
	}
	return p
}

func less(a, b [4]int64) [4]int64 {
	for i := range a {
		a[i] -= b[i]
	}
	return a
}

func dumbHost(allocs []engine.Alloc, node int32) (cpu, ram int64) {
	for _, a := range allocs {
		if a.Node == node {
			cpu, ram = cpu+a.CPU, ram+a.RAM
		}
	}
	return cpu, ram
}

// unclaimed is what a leaving job has that no placed job will get.
func (d *dumb) unclaimed(v *dumbJob, node int32) (cpu, ram int64) {
	cpu, ram = dumbHost(v.allocs, node)
	for _, w := range d.jobs {
		if w == nil || w.state != engine.Placed {
			continue
		}
		for _, c := range w.claims {
			if c.from == v.ID && c.node == node && slices.Contains(w.waits, v.ID) {
				cpu, ram = cpu-c.cpu, ram-c.ram
			}
		}
	}
	return cpu, ram
}

// lacks is how much of a booked job's CPU and RAM on a node is not free yet: what
// the node has, less what runs there, what others were promised and do not get
// from those that leave, and what these have. j is among the booked.
func (d *dumb) lacks(j *dumbJob, node int32) (cpu, ram int64) {
	freeCPU, freeRAM := d.nodes[node].CPU, d.nodes[node].RAM
	for _, v := range d.jobs {
		switch {
		case v == nil:
		case v.inBooks():
			c, r := dumbHost(v.allocs, node)
			freeCPU, freeRAM = freeCPU-c, freeRAM-r
		case v.state == engine.Stopping:
			c, r := d.unclaimed(v, node)
			freeCPU, freeRAM = freeCPU-c, freeRAM-r
		}
	}
	cpu, ram = dumbHost(j.allocs, node)
	if cpu = min(cpu, -freeCPU); d.nodes[node].CPU == 0 {
		cpu = 0
	}
	if ram = min(ram, -freeRAM); d.nodes[node].RAM == 0 {
		ram = 0
	}
	return max(0, cpu), max(0, ram)
}

// withoutLeft is books in which those that leave still have what none counts on.
func (d *dumb) withoutLeft(b books) books {
	b = b.clone()
	for i := range d.nodes {
		for _, v := range d.jobs {
			if v != nil && v.state == engine.Stopping {
				cpu, ram := d.unclaimed(v, int32(i))
				b.take([]engine.Alloc{{Node: int32(i), CPU: min(cpu, b.cpu(i)), RAM: min(ram, b.ram(i))}})
			}
		}
	}
	for _, v := range d.jobs {
		if v == nil || v.state != engine.Stopping {
			continue
		}
		for _, a := range v.allocs {
			if a.GPUs != 0 && a.Share == 0 {
				b.take([]engine.Alloc{{Node: a.Node, GPUs: a.GPUs}})
			}
		}
		for i, a := range v.allocs {
			if a.Share > 0 && !slices.ContainsFunc(v.allocs[:i], func(o engine.Alloc) bool {
				return o.Node == a.Node && o.GPUs == a.GPUs
			}) {
				d.keepPart(&b, v, a)
			}
		}
	}
	return b
}

// keepPart books what a leaving job has of a device, or all of it where others cannot be beside it.
func (d *dumb) keepPart(b *books, v *dumbJob, a engine.Alloc) {
	g := b.gpu(int(a.Node), bits.TrailingZeros64(a.GPUs))
	if g.whole > 0 {
		return
	}
	if g.tenants > 0 && ((g.slots == 0) != (a.Slots == 0) || g.user != a.User) {
		b.take([]engine.Alloc{{Node: a.Node, GPUs: a.GPUs}})
		return
	}
	left := d.leaves(v, a.Node, a.GPUs)
	part := engine.Alloc{Node: a.Node, GPUs: a.GPUs, Share: int32(min(left[0], g.milli)),
		Mem: max(0, min(left[1], g.mem)), User: a.User}
	if part.Share <= 0 {
		return
	}
	for _, o := range v.allocs {
		if o.Node == a.Node && o.GPUs == a.GPUs {
			part.Slots, part.Media = part.Slots|o.Slots&^g.slots, part.Media || o.Media && !g.media
		}
	}
	if a.Slots != 0 {
		part.Compute = uint8(max(0, min(left[2], int64(modelOf(&d.nodes[a.Node]).Compute-g.compute))))
	}
	b.take([]engine.Alloc{part})
}
