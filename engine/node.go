package engine

import (
	"math"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// notModelled is the free CPU or RAM of a node that states none: never a bottleneck.
const notModelled = math.MaxInt64 / 4

// device is a GPU that is, or can be, shared.
type device struct {
	milli   int32 // free share, milli-GPU
	slots   uint8 // MIG memory slices in use
	compute uint8 // MIG compute slices in use
	tenants int16
	guests  int8        // jobs beside whoever holds it whole
	media   bool        // its media engines are in use
	mem     cluster.MiB // free
	user    string      // whose shares are on it, where that matters
}

// nodeState is a node as the engine sees it: what is free after everything
// that the engine decided (devices of a stopping job count as free here; who
// gets them waits until they really are, see jobState.waits).
type nodeState struct {
	spec     cluster.Node
	class    int32
	pos      int32 // index within the class
	nfree    int16 // wholly free, healthy devices
	indexed  bool  // in the class's buckets: up and not draining
	drained  bool  // by a person, until it is taken back: also through an outage
	lent     bool  // of a loan (loan.go)
	given    bool  // given back to who lends it
	resized  bool  // its size is that of an event, not of the configuration
	free     uint64
	hosts    uint64 // devices that a job holds whole, not as a guest
	guested  uint64 // devices on which guests are
	healthy  uint64
	fixed    *fixed        // MIG instances that stay as they are; nil: they are made as needed
	cpu      cluster.Milli // free
	ram      cluster.MiB   // free
	devs     []device
	stopping []cluster.JobID // jobs that still hold devices here physically
	frozen   int32           // allocations here whose jobs are suspended and have their memory here
	split    bool            // its NVLink domains are islands inside it
	nvlink   int32           // domain ids; equal ids are near
	rack     int32
	fabric   int32
	version  uint64 // names its state: grows with each change, and comes back with what is undone
	sizes    sizes
	tenants  []tenant // whose shares are on which device, in no order
}

// tenant is a share of a device.
type tenant struct {
	device int8
	job    int32 // Alloc.Tenant
}

// sizes counts the tasks on a node by size: shares and slices, of one GPU, of two ...
type sizes [64]int32

// class is the set of nodes that no job can tell apart by its constraints:
// same GPU model, same partitions, same node size.
type class struct {
	model   cluster.GPUModel
	gpus    int           // per node
	cpu     cluster.Milli // largest total of a node
	ram     cluster.MiB
	parts   uint64 // partitions that contain it
	nodes   []int32
	buckets []bitset // by number of wholly free devices; positions of indexed nodes
	partial bitset   // positions of indexed nodes with a partly used device
	split   bool     // some of its nodes have islands
	free    int      // wholly free devices on indexed nodes
	clients int      // shares of a device, at most; 0: as many as there is room for
}

// seats is how many more shares a device takes: under MPS its server has so many clients
// at most (A-timeslicing-mps).
func (c *class) seats(d *device) int {
	if c.clients == 0 {
		return math.MaxInt32
	}
	return max(0, c.clients-int(d.tenants))
}

func (c *class) grow(n int) {
	for i := range c.buckets {
		c.buckets[i].grow(n)
	}
	c.partial.grow(n)
}

func (b *bitset) grow(n int) {
	for len(b.words) < (n+63)/64 {
		b.words = append(b.words, 0)
	}
	for len(b.sum) < (len(b.words)+63)/64 {
		b.sum = append(b.sum, 0)
	}
}

// nodeStore is all nodes with their index, and the log that undoes tentative
// changes. What-if is: mark, change, look, rollback.
type nodeStore struct {
	nodes   []nodeState
	classes []class
	undo    []undoRec
	changes uint64 // counts versions of nodes
	asleep  int    // nodes that are
	frag    fragCache
	kinds   kindsMemo
}

type undoRec struct {
	alloc   Alloc
	taken   bool
	version uint64 // of the node before
}

// changed gives a node a new version.
func (st *nodeStore) changed(n *nodeState) {
	st.changes++
	n.version = st.changes
}

func (st *nodeStore) index(n *nodeState, in bool) {
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
	st.indexPartial(n)
}

func (st *nodeStore) indexPartial(n *nodeState) {
	c := &st.classes[n.class]
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

// setFree changes the mask of wholly free devices and keeps the index right.
func (st *nodeStore) setFree(n *nodeState, free uint64) {
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

// take books an allocation; release is its exact inverse. Both log, so that
// rollback can undo them.
func (st *nodeStore) take(a *Alloc) { st.book(a, true) }

func (st *nodeStore) release(a *Alloc) { st.book(a, false) }

func (st *nodeStore) releaseAll(allocs []Alloc) {
	for i := range allocs {
		st.release(&allocs[i])
	}
}

func (st *nodeStore) book(a *Alloc, taken bool) {
	n := &st.nodes[a.Node]
	st.undo = append(st.undo, undoRec{*a, taken, n.version})
	st.apply(a, taken)
	st.changed(n)
}

func (st *nodeStore) mark() int { return len(st.undo) }

// rollback undoes everything since the mark.
func (st *nodeStore) rollback(mark int) {
	for i := len(st.undo) - 1; i >= mark; i-- {
		u := &st.undo[i]
		st.apply(&u.alloc, !u.taken)
		st.nodes[u.alloc.Node].version = u.version
	}
	st.undo = st.undo[:mark]
}

// commit forgets how to undo: the changes stay.
func (st *nodeStore) commit() { st.undo = st.undo[:0] }

func (st *nodeStore) apply(a *Alloc, taken bool) {
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
			st.setFree(n, n.free|a.GPUs&n.whole()&^n.hosts&^n.guested)
		}
		return
	}
	st.applyShared(n, a, taken)
}

// sizeOf is how many GPUs each task of an allocation has; 0: a share or a slice.
func sizeOf(a *Alloc) int {
	if a.Share > 0 {
		return 0
	}
	return min(63, bits.OnesCount64(a.GPUs)/int(max(1, a.Tasks)))
}

// applyWhole books who is on whole devices: one that holds them, and guests.
func (n *nodeState) applyWhole(a *Alloc, taken bool) {
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
func (st *nodeStore) applyShared(n *nodeState, a *Alloc, taken bool) {
	i := bits.TrailingZeros64(a.GPUs)
	d := &n.devs[i]
	if a.Tenant != 0 {
		n.applyTenant(tenant{int8(i), a.Tenant}, taken)
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
			if n.whole()&a.GPUs != 0 {
				st.setFree(n, n.free|a.GPUs)
			}
		}
	}
	st.indexPartial(n)
}

func (n *nodeState) applyTenant(t tenant, taken bool) {
	if taken {
		n.tenants = append(n.tenants, t)
		return
	}
	i, last := slices.Index(n.tenants, t), len(n.tenants)-1
	n.tenants[i] = n.tenants[last]
	n.tenants = n.tenants[:last]
}

// room returns how many tasks fit on the node now (at most most).
func (st *nodeStore) room(n *nodeState, r *cluster.Request, most int) int {
	return st.roomOn(n, r, most, anyDevice)
}

// anyDevice is the mask that excludes none.
const anyDevice = ^uint64(0)

// roomOn is room on some of the node's devices.
func (st *nodeStore) roomOn(n *nodeState, r *cluster.Request, most int, on uint64) int {
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
		return min(fit, n.freeOn(on)/r.GPUs)
	}
	var fits [cluster.MaxGPUsPerNode]int16
	return distinct(fits[:len(n.devs)], st.sharesOn(n, r, on, &fits), r.GPUs, fit)
}

// roomSlices counts how many instances of the profile can be created, greedily.
func (st *nodeStore) roomSlices(n *nodeState, r *cluster.Request, most int, on uint64) int {
	model := &st.classes[n.class].model
	p, ok := model.Profile(r.Profile)
	if !ok {
		return 0
	}
	count := 0
	for i := range n.devs {
		d := &n.devs[i]
		if n.stays(i) {
			if n.healthy&on&n.fixed.cut>>i&1 == 1 {
				count += n.idleInstances(i, p.Name)
			}
			continue
		}
		if n.healthy&on>>i&1 == 0 || d.tenants > 0 && d.slots == 0 || n.free>>i&1 == 0 && d.tenants == 0 && !n.isCut(i) {
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

// lossOfStart weighs the future instances that become impossible when the profile is created
// at start: first those that jobs in line ask for (wanted, by profile; nil: none), then all, by
// memory slices (A-mig: least lost options keeps 4g possible).
func lossOfStart(m *cluster.GPUModel, p *cluster.SliceProfile, slots uint8, start int, wanted []int64) int64 {
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
	return asked<<8 + loss // all together are less than a hundred
}
