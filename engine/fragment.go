package engine

import (
	"fmt"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// Fragmentation (D-fgd): of what is free on a node, how much is of no use to the
// tasks that people submit. A kind of task that fits on a node can use the free
// parts of devices that are large enough for it; one that does not fit can use
// nothing. Beside one user's shares nobody else's fit where these are apart (MPS).
// Fragments are what is free less what can be used, averaged over the
// kinds by their number of tasks. Everything here is counted in milli-GPU times
// tasks, so that nothing is rounded.

// fragCache remembers what was computed of nodes. A node's version names its
// state: an undone change brings the old one back.
type fragCache struct {
	rev    int64 // of the demand for which all this holds
	usable []fragNode
	rows   map[rowKey]*fragRow // looked up only
}

// rowKey is what a row is of.
type rowKey struct {
	request cluster.Request
	user    string // whose shares they are, where that matters
	measure Measure
}

// Measure is what of a node's free GPUs counts.
type Measure uint8

// The measures.
const (
	Fragments Measure = iota // what tasks submitted last cannot use (D-fgd)
	Rooms                    // how many of them fit one after the other, and FGD's measure, half each
)

// fragEntry is what was computed of one node.
type fragEntry struct {
	version uint64 // of the node, plus one; 0: nothing yet
	value   int64
	device  int16
}

// fragNode is what is free of a node's GPUs, in milli-GPU, and what of it is usable.
type fragNode struct {
	version      uint64 // of the node, plus one; 0: nothing yet
	free, usable int64
}

// fragRow is by how much the fragments of each node would grow under one more
// task.
type fragRow struct {
	nodes  []fragEntry
	wanted int64 // of slices: the line as of which this holds
}

// noRoom marks an entry of a node on which the task does not fit.
const noRoom = -2

// roomStep, in milli-GPU, is what rooms are counted in: what differs by less is no
// reason to leave the nodes that were filled before.
const roomStep = 60

// mostRows bounds the memory for requests that were placed.
const mostRows = 64

// fresh makes the cache one for the demand in force and all nodes.
func (c *fragCache) fresh(d *demand, nodes int) {
	if c.rev == d.rev && len(c.usable) == nodes {
		return
	}
	c.rev, c.rows = d.rev, map[rowKey]*fragRow{}
	c.usable = make([]fragNode, nodes)
}

// row returns the entries of a user's request.
func (c *fragCache) row(r *cluster.Request, user string, m Measure) *fragRow {
	key := rowKey{*r, user, m}
	row := c.rows[key]
	if row == nil {
		if len(c.rows) >= mostRows {
			c.rows = map[rowKey]*fragRow{}
		}
		row = &fragRow{nodes: make([]fragEntry, len(c.usable))}
		c.rows[key] = row
	}
	return row
}

// leftOn is what is free of a device, in milli-GPU.
func (n *nodeState) leftOn(dev int) cluster.Milli {
	if n.healthy>>dev&1 == 0 || n.free>>dev&1 == 0 && n.devs[dev].tenants == 0 && !n.isCut(dev) {
		return 0
	}
	return cluster.Milli(n.devs[dev].milli)
}

// left is what is free of the node's GPUs, in milli-GPU.
func (n *nodeState) left() (sum cluster.Milli) {
	for i := range n.devs {
		sum += n.leftOn(i)
	}
	return sum
}

// usableBy is what of the node's free GPUs is on devices that could take a task
// of the group, if there are enough for one, and how many such tasks fit one after
// the other (of MIG slices and of shares of several devices one on each device).
func (n *nodeState) usableBy(c *class, g *fragGroup) (sum cluster.Milli, fit int64) {
	if g.share == 0 && g.profile == nil {
		if int(n.nfree) < g.gpus {
			return 0, 0
		}
		return cluster.Milli(n.nfree) * cluster.Whole, int64(n.nfree) / int64(g.gpus)
	}
	count := 0
	for i := range n.devs {
		d, left := &n.devs[i], n.leftOn(i)
		switch {
		case left == 0:
			continue
		case g.profile != nil:
			if d.tenants > 0 && d.slots == 0 || n.startOn(&c.model, g.profile, i, nil) < 0 {
				continue
			}
		case left < g.share || d.mem < g.mem || d.slots != 0 || n.isCut(i) || c.seats(d) == 0 || d.tenants > 0 && d.user != g.user:
			continue
		}
		count++
		sum += left
		each := int64(1)
		if g.profile == nil && g.gpus == 1 {
			if each = min(left/g.share, int64(c.seats(d))); g.mem > 0 {
				each = min(each, d.mem/g.mem)
			}
		}
		fit += each
	}
	if count < g.gpus {
		return 0, 0
	}
	return sum, fit / int64(g.gpus)
}

// usableOf sums over the kinds what each could use of the node's free GPUs, times
// its tasks.
func (st *nodeStore) usableOf(n *nodeState, d *demand) (sum int64) {
	c, groups := &st.classes[n.class], d.byClass[n.class]
	for i := range groups {
		left, _ := n.usableBy(c, &groups[i])
		if left == 0 {
			continue
		}
		for k := range groups[i].members {
			m := &groups[i].members[k]
			if m.cpu > n.cpu {
				break
			}
			if m.ram <= n.ram {
				sum += left * m.weight
			}
		}
	}
	return sum
}

// roomsOf sums over the kinds, times their tasks, what each could use of the node's
// free GPUs and what as many tasks of it would take as fit there.
func (st *nodeStore) roomsOf(n *nodeState, d *demand) (sum int64) {
	c, groups := &st.classes[n.class], d.byClass[n.class]
	for i := range groups {
		g := &groups[i]
		left, fit := n.usableBy(c, g)
		if left == 0 {
			continue
		}
		for k := range g.members {
			m := &g.members[k]
			if m.cpu > n.cpu {
				break
			}
			if m.ram > n.ram {
				continue
			}
			tasks := fit
			if m.cpu > 0 {
				tasks = min(tasks, n.cpu/m.cpu)
			}
			if m.ram > 0 {
				tasks = min(tasks, n.ram/m.ram)
			}
			sum += m.weight * (left + tasks*g.each)
		}
	}
	return sum
}

// usable is what is free of a node, and usableOf it, from memory.
func (st *nodeStore) usable(id int, d *demand) *fragNode {
	n, e := &st.nodes[id], &st.frag.usable[id]
	if e.version != n.version+1 {
		d.computed++
		if *e = (fragNode{version: n.version + 1, free: n.left()}); e.free > 0 {
			e.usable = st.usableOf(n, d)
		}
	}
	return e
}

// Fragmentation is how much of the free GPUs is of use.
type Fragmentation struct {
	Free   cluster.Milli // on nodes that take jobs
	Usable cluster.Milli // ... by the tasks submitted last, on average; Free where none was submitted yet
}

// Rate is the part of what is free that is of no use, between 0 and 1.
func (f Fragmentation) Rate() float64 {
	if f.Free == 0 {
		return 0
	}
	return 1 - float64(f.Usable)/float64(f.Free)
}

// Fragmentation says how much of the free GPUs the tasks that were submitted
// last could use on average (D-fgd: free less the fragments).
func (e *Engine) Fragmentation() (f Fragmentation) {
	rest := int64(0) // what is less than a milli-GPU
	e.fragmentation(func(_ int, n *fragNode, weight int64) {
		f.Free += n.free
		if weight > 0 {
			f.Usable += n.usable / weight
			rest += n.usable % weight
			f.Usable, rest = f.Usable+rest/weight, rest%weight
		} else {
			f.Usable += n.free
		}
	})
	return f
}

// FragmentationByNode is Fragmentation node by node, in the order of Nodes.
func (e *Engine) FragmentationByNode() []Fragmentation {
	list := make([]Fragmentation, len(e.st.nodes))
	e.fragmentation(func(id int, n *fragNode, weight int64) {
		if list[id] = (Fragmentation{n.free, n.free}); weight > 0 {
			list[id].Usable = n.usable / weight
		}
	})
	return list
}

// fragmentation calls f for each node that takes jobs, with the tasks that count.
func (e *Engine) fragmentation(f func(id int, n *fragNode, weight int64)) {
	d := e.demandNow()
	e.st.frag.fresh(d, len(e.st.nodes))
	for id := range e.st.nodes {
		if e.st.nodes[id].indexed {
			f(id, e.st.usable(id, d), d.weight)
		}
	}
}

// Candidates calls f for each node on which the set might run, in order, until f
// returns false.
func (s *Site) Candidates(set int, f func(node int) bool) { s.nodes(s.stage.of(set), f) }

// FreeMilli returns what is free of a node's GPUs, in milli-GPU.
func (s *Site) FreeMilli(node int) cluster.Milli { return s.in.nodes[node].left() }

// Free appends what is free of each GPU of a node to buf, in milli-GPU.
func (s *Site) Free(node int, buf []int64) []int64 {
	n := &s.in.nodes[node]
	for i := range n.devs {
		buf = append(buf, n.leftOn(i))
	}
	return buf
}

// FreeCPU returns what is free of a node's CPU; 0 where it is not modelled.
func (s *Site) FreeCPU(node int) cluster.Milli {
	n := &s.in.nodes[node]
	if n.spec.CPU == 0 {
		return 0
	}
	return n.cpu
}

// Sizes returns the sizes of the tasks on a node: bit 0 stands for shares and
// slices, bit k for tasks of k GPUs (63: that many or more).
func (s *Site) Sizes(node int) (mask uint64) {
	for k, n := range s.in.nodes[node].sizes {
		if n > 0 {
			mask |= 1 << k
		}
	}
	return mask
}

// Devices returns the devices of a node that have room for a share of one device;
// none where tasks ask for anything else.
func (s *Site) Devices(node, set int) (mask uint64) {
	n, r := &s.in.nodes[node], &s.req[set].Request
	if !oneShare(r) {
		return 0
	}
	for m := n.whole() & s.devices(n); m != 0; m &= m - 1 {
		dev := bits.TrailingZeros64(m)
		if _, ok := s.deviceLeft(n, dev, r); ok && n.leftOn(dev) > 0 {
			mask |= 1 << dev
		}
	}
	return mask
}

// Growth returns what one more task of the set costs on a node, and for a share of
// one device on which it costs least (of equal devices the fullest, then the first);
// -1: any. ok is false where there is no room. The caller still has to check Room.
// Fragments: by how much they grow, in milli-GPU times tasks. Rooms: what is lost of
// them, in steps of 60 milli-GPU of the mean over the tasks.
func (s *Site) Growth(node, set int, measure Measure) (growth int64, dev int, ok bool) {
	d := s.e.demandNow()
	n, r := &s.in.nodes[node], &s.req[set].Request
	c := &s.in.frag
	c.fresh(d, len(s.in.nodes))
	if on := s.devices(n); on != anyDevice {
		e := s.growth(node, set, d, on, measure)
		return e.value, int(e.device), e.device != noRoom
	}
	if s.row == nil || s.rowSet != set || s.rowRev != d.rev || s.rowOf != measure {
		s.row, s.rowSet, s.rowRev, s.rowOf = c.row(r, s.e.ownerOf(s.job), measure), set, d.rev, measure
	}
	if r.Profile != "" && s.row.wanted != s.e.wanted.rev { // where slices go depends on who is in line
		s.row.wanted = s.e.wanted.rev
		clear(s.row.nodes)
	}
	e := &s.row.nodes[node]
	if e.version != n.version+1 {
		*e = s.growth(node, set, d, anyDevice, measure)
		e.version = n.version + 1
	}
	return e.value, int(e.device), e.device != noRoom
}

// growth computes an entry of a row: it tries, looks and takes back.
func (s *Site) growth(node, set int, d *demand, on uint64, measure Measure) fragEntry {
	st, r := s.in, &s.req[set].Request
	n := &st.nodes[node]
	if st.roomOn(n, r, 1, on) < 1 {
		return fragEntry{device: noRoom}
	}
	d.computed++
	before, step := int64(0), 2*roomStep*max(1, d.weight)
	if measure == Fragments {
		before = st.usable(node, d).usable
	} else {
		before = st.roomsOf(n, d)
	}
	try := func(take func()) int64 {
		mark, allocs := s.Mark()
		take()
		taken := cluster.Milli(0)
		for i := allocs; i < len(s.allocs); i++ {
			taken += s.allocs[i].Milli()
		}
		g := int64(0)
		if measure == Fragments {
			g = before - st.usableOf(n, d) - taken*d.weight
		} else {
			g = (before - st.roomsOf(n, d) + step - 1) / step
		}
		s.Undo(mark, allocs)
		return g
	}
	if !oneShare(r) {
		return fragEntry{value: try(func() { s.takeOn(node, set, 1, Fullest, 1) }), device: -1}
	}
	best := fragEntry{device: noRoom}
	for m := s.Devices(node, set); m != 0; m &= m - 1 {
		dev := bits.TrailingZeros64(m)
		if s.alike(n, dev, on) {
			continue
		}
		g := try(func() { s.TakeDevice(node, set, dev) })
		if best.device < 0 || g < best.value || g == best.value && n.devs[dev].milli < n.devs[best.device].milli {
			best.value, best.device = g, int16(dev)
		}
	}
	return best
}

// alike reports whether an earlier device has as much free as this one.
func (s *Site) alike(n *nodeState, dev int, on uint64) bool {
	c := &s.in.classes[n.class]
	for i := range dev {
		if on>>i&1 == 1 && n.leftOn(i) == n.leftOn(dev) && n.devs[i].mem == n.devs[dev].mem && n.devs[i].slots == n.devs[dev].slots && n.isCut(i) == n.isCut(dev) &&
			c.seats(&n.devs[i]) == c.seats(&n.devs[dev]) {
			return true
		}
	}
	return false
}

// oneShare reports whether tasks take a share of one device.
func oneShare(r *cluster.Request) bool { return r.Fractional() && r.Profile == "" && r.GPUs == 1 }

// TakeDevice binds one task of a set to a node, its share to one device; the
// caller has checked that it has room. Tasks that take anything else than a share
// of one device are bound as Take does it.
func (s *Site) TakeDevice(node, set, dev int) {
	r := &s.req[set].Request
	if dev < 0 || !oneShare(r) {
		s.Take(node, set, 1)
		return
	}
	s.bind(&Alloc{Node: int32(node), Set: int32(set), Tasks: 1, GPUs: 1 << dev, Share: int32(r.Share), Mem: r.Memory, CPU: r.CPU, RAM: r.RAM, User: s.e.ownerOf(s.job), Tenant: tenantOf(s.job)})
}

// checkFragments computes again what is remembered of nodes.
func (e *Engine) checkFragments() error {
	c, d := &e.st.frag, &e.demand
	if c.rev != d.rev {
		return nil // it will be forgotten
	}
	for id := range c.usable {
		n := &e.st.nodes[id]
		if m := &c.usable[id]; m.version == n.version+1 && (m.usable != e.st.usableOf(n, d) || m.free != n.left()) {
			return fmt.Errorf("node %d: %d free and %d usable are remembered, recomputed %d and %d", id, m.free, m.usable, n.left(), e.st.usableOf(n, d))
		}
	}
	return nil
}

// fragmentsText says how much is free where the job may run, and how much of that is on
// nodes, or devices, that one of its tasks could use; "": all is, or nothing is free.
func (e *Engine) fragmentsText(j *jobState, s *shape) string {
	free, usable := cluster.Milli(0), cluster.Milli(0)
	for id := range e.st.nodes {
		n := &e.st.nodes[id]
		if !n.indexed || !s.any.has(n.class) {
			continue
		}
		c, most := &e.st.classes[n.class], cluster.Milli(0)
		for k := range s.sets {
			r := &s.sets[k].Request
			if r.GPUs == 0 || !s.suits[k].has(n.class) || r.CPU > n.cpu || r.RAM > n.ram {
				continue
			}
			g := groupOf(r, e.sharer(j.spec, r), &c.model)
			sum, _ := n.usableBy(c, &g)
			most = max(most, sum)
		}
		free, usable = free+n.left(), usable+most
	}
	if j.milli == 0 || free-usable < cluster.Whole/100 { // a GPU that is all slices lacks some thousandths of what they count for
		return ""
	}
	gpus := func(milli cluster.Milli) string { return fmt.Sprintf("%.4g", float64(milli)/float64(cluster.Whole)) }
	are := "GPUs are"
	if free == cluster.Whole {
		are = "GPU is"
	}
	return fmt.Sprintf("fragments: %s %s free where it may run, %s of that in pieces that one of its tasks could use", gpus(free), are, gpus(usable))
}
