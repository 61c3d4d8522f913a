package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

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
	nodes    []nodeState
	classes  []class
	domains  map[string]int32 // names of racks, fabrics and NVLink domains to ids; looked up only
	undo     []undoRec
	notes    []note
	recharge func(job int32, sign int64) // undoes a note: books what a job holds in its queue (1), or takes it back (-1)
	commits  int                         // so many that forgot something
	changes  uint64                      // counts versions of nodes
	asleep   int                         // nodes that are
	frag     fragCache
	kinds    kindsMemo
}

type undoRec struct {
	alloc   Alloc
	taken   bool
	version uint64 // of the node before
}

// MaxKinds bounds the kinds of node (GPU model, GPUs per node, partitions): a set of them is four machine words.
const MaxKinds = 256

// add adds a node with GPUs of a model. It is in some partitions, a bit each, and a device of it takes shares
// of so many clients at most (0: of any number). first: the node is the first of its class.
func (st *nodeStore) add(n cluster.Node, model cluster.GPUModel, parts uint64, clients int) (first bool, err error) {
	ns := nodeState{spec: n, drained: n.State == cluster.Draining}
	if ns.fixed, err = fixedOf(&n, &model); err != nil {
		return false, err
	}
	ns.class = int32(slices.IndexFunc(st.classes, func(c class) bool {
		return c.model.Name == model.Name && c.gpus == n.GPUs && c.parts == parts
	}))
	if first = ns.class < 0; first {
		if len(st.classes) == MaxKinds {
			return false, fmt.Errorf("more than %d kinds of node (GPU model x GPUs per node x partitions)", MaxKinds)
		}
		ns.class = int32(len(st.classes))
		st.classes = append(st.classes, class{model: model, gpus: n.GPUs, parts: parts, buckets: make([]bitset, n.GPUs+1), clients: clients})
	}
	ns.empty(&model)
	ns.setHealthy(n.Bad)
	ns.rack, ns.fabric = st.domain("rack", n.Rack), st.domain("fabric", n.Fabric)
	if n.NVLink != "" {
		ns.nvlink = st.domain("nvlink", n.NVLink)
	} else {
		ns.nvlink, ns.split = st.domain("node", n.Name), ns.islands() > 1
	}
	c := &st.classes[ns.class]
	ns.pos = int32(len(c.nodes))
	c.nodes = append(c.nodes, int32(len(st.nodes)))
	c.cpu, c.ram, c.split = max(c.cpu, ns.cpu), max(c.ram, ns.ram), c.split || ns.split
	c.grow(len(c.nodes))
	st.nodes = append(st.nodes, ns)
	if n.Asleep > 0 {
		st.asleep++
	}
	st.index(&st.nodes[len(st.nodes)-1], n.State == cluster.Up)
	return first, nil
}

// empty makes a node one on which nothing is.
func (n *nodeState) empty(model *cluster.GPUModel) {
	n.cpu, n.ram = cmp.Or(n.spec.CPU, notModelled), cmp.Or(n.spec.RAM, notModelled)
	n.devs = make([]device, n.spec.GPUs)
	for i := range n.devs {
		n.devs[i] = device{milli: int32(cluster.Whole), mem: model.Memory}
	}
	n.hosts, n.guested, n.tenants, n.sizes, n.stopping, n.frozen = 0, 0, nil, sizes{}, nil, 0
}

// setHealthy makes all of the devices healthy but some, of a node on which nothing is and that is not in the index.
func (n *nodeState) setHealthy(bad uint64) {
	n.healthy = (uint64(1)<<n.spec.GPUs - 1) &^ bad
	n.free = n.whole()
	n.nfree = int16(bits.OnesCount64(n.free))
}

// domain numbers the named domain; nodes that name none share one domain.
func (st *nodeStore) domain(level, name string) int32 {
	if st.domains == nil {
		st.domains = map[string]int32{}
	}
	key := level + "/" + name
	id, ok := st.domains[key]
	if !ok {
		id = int32(len(st.domains))
		st.domains[key] = id
	}
	return id
}

// blank makes a store of the same nodes as they would be empty and healthy.
func (st *nodeStore) blank() *nodeStore {
	b := &nodeStore{nodes: make([]nodeState, len(st.nodes)), classes: make([]class, len(st.classes))}
	for i := range st.classes {
		c := st.classes[i]
		c.free = 0
		c.buckets = make([]bitset, c.gpus+1)
		c.partial = bitset{}
		b.classes[i] = c
		b.classes[i].grow(len(c.nodes))
	}
	for i := range st.nodes {
		n := &b.nodes[i]
		*n = st.nodes[i]
		n.indexed = false
		n.empty(&b.classes[n.class].model)
		n.setHealthy(0)
		b.index(n, true)
	}
	return b
}

// setState notes whether a node is up, draining or down.
func (st *nodeStore) setState(id int32, s cluster.NodeState) {
	n := &st.nodes[id]
	n.spec.State = s
	st.index(n, s == cluster.Up)
}

// setDrained notes that a person drained a node, or took it back.
func (st *nodeStore) setDrained(id int32, drained bool) { st.nodes[id].drained = drained }

// setLent notes that a node is of a loan, setGiven that it is given back to who lends it.
func (st *nodeStore) setLent(id int32) { st.nodes[id].lent = true }

func (st *nodeStore) setGiven(id int32, given bool) { st.nodes[id].given = given }

// setAsleep notes that a node is switched off and takes so long to wake; 0: that it is on.
func (st *nodeStore) setAsleep(id int32, wake time.Duration) {
	n := &st.nodes[id]
	if n.spec.Asleep > 0 {
		st.asleep--
	}
	if n.spec.Asleep = wake; wake > 0 {
		st.asleep++
	}
}

// spoil marks devices of a node bad. Nothing is on them.
func (st *nodeStore) spoil(id int32, mask uint64) {
	n := &st.nodes[id]
	n.healthy &^= mask
	st.setFree(n, n.free&^mask)
	st.changed(n)
	st.indexPartial(n)
}

// heal marks devices of a node healthy; held reports whether a job has a device (one bit) whole.
func (st *nodeStore) heal(id int32, mask uint64, held func(dev uint64) bool) {
	n := &st.nodes[id]
	back := mask & (uint64(1)<<n.spec.GPUs - 1) &^ n.healthy
	n.healthy |= back
	for i := range n.devs {
		if dev := uint64(1) << i; back&n.whole()&dev != 0 && n.devs[i].tenants == 0 && !held(dev) {
			st.setFree(n, n.free|dev)
		}
	}
	st.changed(n)
	st.indexPartial(n)
}

// resume sets a node on which nothing is to the health that a snapshot has of it.
func (st *nodeStore) resume(id int32, bad uint64) {
	n := &st.nodes[id]
	n.healthy = (uint64(1)<<n.spec.GPUs - 1) &^ bad
	st.setFree(n, n.whole())
	st.changed(n)
}

// leaving notes that a job still holds devices of a node that the books have promised on.
func (st *nodeStore) leaving(id int32, job cluster.JobID) {
	if n := &st.nodes[id]; !slices.Contains(n.stopping, job) {
		n.stopping = append(n.stopping, job)
	}
}

// left is the inverse of leaving.
func (st *nodeStore) left(id int32, job cluster.JobID) {
	n := &st.nodes[id]
	n.stopping = without(n.stopping, job)
}

// freeze notes that the memory of a suspended job is where it has these allocations, thaw that it no longer is.
func (st *nodeStore) freeze(allocs []Alloc) {
	for i := range allocs {
		st.nodes[allocs[i].Node].frozen++
	}
}

func (st *nodeStore) thaw(allocs []Alloc) {
	for i := range allocs {
		st.nodes[allocs[i].Node].frozen--
	}
}

// note is a job whose queue was charged for what it holds (sign 1), or no longer is (-1).
type note struct {
	job, sign int32
}

// Mark is a point to which changes are taken back: of nodes, their devices and slices, and of what queues use.
type Mark struct {
	undo, notes, commits int
}

// billWith sets what undoes notes (note).
func (st *nodeStore) billWith(recharge func(job int32, sign int64)) { st.recharge = recharge }

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

// note logs that what a job holds was booked in its queue (sign 1) or taken back (-1), so that a rollback undoes that,
// too. Until then, or the commit, the job must keep its size, its weight, its queue and what it has.
func (st *nodeStore) note(job cluster.JobID, sign int64) {
	st.notes = append(st.notes, note{int32(job), int32(sign)})
}

func (st *nodeStore) mark() Mark { return Mark{len(st.undo), len(st.notes), st.commits} }

// rollback undoes everything since the mark.
func (st *nodeStore) rollback(m Mark) {
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

// commit forgets how to undo: the changes stay.
func (st *nodeStore) commit() {
	if st.tentative() {
		st.commits++
		st.undo, st.notes = st.undo[:0], st.notes[:0]
	}
}

// tentative reports whether there are changes that were not committed.
func (st *nodeStore) tentative() bool { return len(st.undo) > 0 || len(st.notes) > 0 }

// taken appends what was taken and not released since the mark to buf; nothing may have been released since.
func (st *nodeStore) taken(buf []Alloc, since Mark) []Alloc {
	for i := since.undo; i < len(st.undo); i++ {
		buf = append(buf, st.undo[i].alloc)
	}
	return buf
}

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
