package placement

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// Placer decides where a job runs. It binds tasks with Site.Take until all are bound, or returns
// false; the engine then undoes what was taken.
type Placer interface {
	Name() string
	Place(s *Site) bool
}

// Pick says which of several nodes with room a placer prefers.
type Pick uint8

// The preferences. Ties go to the node that joined first.
const (
	First    Pick = iota // the node that joined first
	Fullest              // fewest free GPUs, then least free CPU (best fit)
	Emptiest             // most free GPUs, then most free CPU (worst fit)
)

// Site is the interface of a placer to the search for one job; all changes are tentative. Node
// numbers are dense, in the order in which nodes joined.
type Site struct {
	r      Request
	f      *Finder
	job    *job.State
	req    []cluster.TaskSet // what to place (elastic jobs: at the size tried)
	stage  shape.Stage       // candidate classes of this attempt
	within inventory.Domain
	awake  bool             // sleeping nodes are excluded
	quiet  bool             // ... and those whose own links other jobs use
	home   inventory.Domain // where a growing gang must stay
	allocs []inventory.Alloc
	most   *shape.Bounds      // nil: the job has no bounds
	has    []inventory.Alloc  // what a growing job already holds
	own    uint64             // devices of the task being bound: its shares are on distinct ones
	row    *inventory.FragRow // Growth's cache for the set rowSet, under demand rowRev
	rowSet int
	rowRev int64
	rowOf  inventory.Measure

	company *links.Company // with which the job would share the network; nil: it is not known
}

// Job returns the job that is being placed.
func (s *Site) Job() sched.JobView { return s.f.World.Job(s.job) }

// View returns the engine's state for reading.
func (s *Site) View() sched.View { return s.f.World.View() }

// Memory returns memory that a placer reuses, with its last content: nothing may depend on that.
func Memory[T any](s *Site) *T {
	m, ok := s.f.memory.(*T)
	if !ok {
		m = new(T)
		s.f.memory = m
	}
	return m
}

// Topology returns how near to one another the gang's tasks must be, as the job asks or a plan
// demands (Target.Within).
func (s *Site) Topology() cluster.Topology { return s.f.World.Shapes.Get(s.job.Shape).Topo }

// Sets returns the task sets to place.
func (s *Site) Sets() []cluster.TaskSet { return s.req }

// Within restricts Find, Most and Nodes to a domain; the zero Domain lifts it.
func (s *Site) Within(d inventory.Domain) { s.within = d }

// Mark returns a point to which Undo takes changes back.
func (s *Site) Mark() (inventory.Mark, int) { return s.r.In.Mark(), len(s.allocs) }

// Undo takes back every Take since the mark.
func (s *Site) Undo(mark inventory.Mark, allocs int) {
	s.r.In.Rollback(mark)
	s.allocs = s.allocs[:allocs]
}

// Room returns how many tasks of a set fit on a node now, at most most.
func (s *Site) Room(node, set, most int) int {
	n := &s.r.In.Nodes()[node]
	r := &s.req[set].Request
	k := s.r.In.RoomOn(n, r, most, s.devices(n))
	if h := s.r.Reserved; k > 0 && h != nil {
		k = min(k, h.room(int32(node), s.bound(int32(node)), r, most))
	}
	if k > 0 && s.most != nil {
		k = min(k, s.bounded(int32(node)))
	}
	return k
}

// bound sums what is bound on a node so far.
func (s *Site) bound(node int32) (sum inventory.Alloc) {
	for i := range s.allocs {
		if a := &s.allocs[i]; a.Node == node {
			sum.GPUs |= a.GPUs
			sum.CPU += a.CPU
			sum.RAM += a.RAM
		}
	}
	return sum
}

// FreeGPUs returns the wholly free GPUs of a node, if they suit the gang.
func (s *Site) FreeGPUs(node int) int {
	n := &s.r.In.Nodes()[node]
	if s.stage.Sets != nil && !s.stage.GPUs.Has(n.Class()) {
		return 0
	}
	return int(n.FreeGPUs())
}

// Node returns what a node is. It must not be changed.
func (s *Site) Node(node int) *cluster.Node { return s.r.In.Nodes()[node].Spec() }

// DomainOf returns the domain of a node at a level.
func (s *Site) DomainOf(node int, l cluster.Level) inventory.Domain {
	return s.r.In.Nodes()[node].Domain(int32(node), l)
}

// Domains calls f for each domain of a level that is on the node, with its wholly free GPUs there:
// several if the node has NVLink islands.
func (s *Site) Domains(node int, l cluster.Level, f func(d inventory.Domain, free int)) {
	n := &s.r.In.Nodes()[node]
	if l != cluster.LevelNVLink || !n.Split() {
		f(n.Domain(int32(node), l), s.FreeGPUs(node))
		return
	}
	for i := range n.Islands() {
		f(inventory.IslandDomain(int32(node), i), min(s.FreeGPUs(node), n.FreeOn(n.Island(i))))
	}
}

// Farthest is the farthest level of the topology of which the nodes name domains, at least that of fabrics.
func Farthest(s *Site) cluster.Level { return inventory.Farthest(s.r.In) }

// Islands reports whether a candidate node has NVLink islands: then one task may span several
// NVLink domains.
func (s *Site) Islands() bool {
	for _, ci := range s.stage.Classes {
		if s.r.In.Classes()[ci].Split() {
			return true
		}
	}
	return false
}

func (s *Site) inside(node int32) bool {
	switch {
	case s.r.Avoid != nil && s.r.Avoid.off(node), s.awake && s.r.In.Nodes()[node].Spec().Asleep > 0,
		s.quiet && s.company.On(node):
		return false
	case s.most != nil && s.most.Within != nil && !s.most.Within.In.Has(node), s.r.Shut.Has(node):
		return false
	}
	return s.inDomain(s.within, node) && s.inDomain(s.home, node)
}

func (s *Site) inDomain(d inventory.Domain, node int32) bool {
	if d.Level == cluster.LevelAny {
		return true
	}
	if at, _, ok := d.Island(); ok {
		return at == node
	}
	return s.r.In.Nodes()[node].Domain(node, d.Level).ID == d.ID
}

// devices is the mask of the devices to which the search is restricted, on a node inside.
func (s *Site) devices(n *inventory.Node) uint64 {
	on := s.within.Devices(n) & s.home.Devices(n)
	if s.f.Sharing == cluster.MPS {
		on &^= n.Others(s.job.Spec.User)
	}
	if len(n.Tenants()) > 0 {
		on &^= s.f.Speeds.Shunned(n, s.job)
	}
	return on
}

// Owner is the user to whom a job's shares belong, if users' shares are kept apart.
func (f *Finder) Owner(j *cluster.Job) string {
	if f.Sharing != cluster.MPS {
		return ""
	}
	return j.User
}

// only returns the single node to which the search is restricted, if it is.
func (s *Site) only() (int32, bool) {
	if s.within.Level == cluster.LevelNode {
		return s.within.ID, true
	}
	node, _, ok := s.within.Island()
	return node, ok
}

// one is Find if only one node is searched.
func (s *Site) one(id int32, set, n int) int {
	nd := &s.r.In.Nodes()[id]
	if nd.TakesJobs() && s.inside(id) && slices.Contains(s.stage.Of(set), nd.Class()) && s.Room(int(id), set, n) >= n {
		return int(id)
	}
	return -1
}

// Nodes calls f for each candidate node in order until f returns false. This is
// the linear scan for placers that score every node.
func (s *Site) Nodes(f func(node int) bool) { s.nodes(s.stage.Classes, f) }

func (s *Site) nodes(classes []int32, f func(node int) bool) {
	if id, ok := s.only(); ok {
		if n := &s.r.In.Nodes()[id]; n.TakesJobs() && s.inside(id) && slices.Contains(classes, n.Class()) {
			f(int(id))
		}
		return
	}
	if len(classes) == 1 {
		for _, id := range s.r.In.Classes()[classes[0]].Nodes() {
			if s.r.In.Nodes()[id].TakesJobs() && s.inside(id) && !f(int(id)) {
				return
			}
		}
		return
	}
	var mask [4]uint64
	for _, c := range classes {
		mask[c>>6] |= 1 << (c & 63)
	}
	for id := range s.r.In.Nodes() {
		n := &s.r.In.Nodes()[id]
		if n.TakesJobs() && mask[n.Class()>>6]>>(n.Class()&63)&1 == 1 && s.inside(int32(id)) && !f(id) {
			return
		}
	}
}

// Find returns the preferred node with room for n tasks of the set, awake ones first; -1: none.
func (s *Site) Find(set, n int, pick Pick) int {
	if s.awake || s.r.In.Asleep() == 0 {
		return s.find(set, n, pick)
	}
	s.awake = true
	node := s.find(set, n, pick)
	if s.awake = false; node >= 0 {
		return node
	}
	return s.find(set, n, pick)
}

func (s *Site) find(set, n int, pick Pick) int {
	r := &s.req[set].Request
	if s.most != nil && n > s.most.Each() {
		return -1
	}
	if id, ok := s.only(); ok {
		return s.one(id, set, n)
	}
	if r.Fractional() || r.Profile != "" {
		return s.findShared(set, n, pick)
	}
	need := n * r.GPUs
	best, bestFree := int32(-1), 0
	var bestCPU cluster.Milli
	for _, ci := range s.stage.Of(set) {
		c := &s.r.In.Classes()[ci]
		if need > c.GPUs() {
			continue
		}
		for i := need; i <= c.GPUs(); i++ {
			k := i
			if pick == Emptiest {
				k = c.GPUs() + need - i
			}
			if best >= 0 && (pick == Fullest && k > bestFree || pick == Emptiest && k < bestFree) {
				break
			}
			node, cpu := s.scan(c, k, set, n, pick)
			if node < 0 {
				continue
			}
			if best < 0 || pick != First && k != bestFree || better(pick, node, cpu, best, bestCPU) {
				best, bestFree, bestCPU = node, k, cpu
			}
			if pick != First {
				break // the other buckets of this class are worse
			}
		}
	}
	return int(best)
}

// better compares two nodes of equally many free GPUs (or any two, for First).
func better(pick Pick, a int32, aCPU cluster.Milli, b int32, bCPU cluster.Milli) bool {
	if pick != First && aCPU != bCPU {
		return (aCPU < bCPU) == (pick == Fullest)
	}
	return a < b
}

// scan looks through one bucket of a class for the preferred node with room.
func (s *Site) scan(c *inventory.Class, k, set, n int, pick Pick) (int32, cluster.Milli) {
	b := &c.Buckets()[k]
	if b.Len() == 0 {
		return -1, 0
	}
	r := &s.req[set].Request
	_, _, narrow := s.home.Island()
	// then every node of the bucket has room
	plain := r.CPU == 0 && r.RAM == 0 && s.r.Reserved == nil && s.most == nil && !narrow
	best, bestCPU := int32(-1), cluster.Milli(0)
	for pos := b.Next(0); pos >= 0; pos = b.Next(pos + 1) {
		id := c.Nodes()[pos]
		if !s.inside(id) || !plain && s.Room(int(id), set, n) < n {
			continue
		}
		if r.CPU == 0 || pick == First {
			return id, 0
		}
		if cpu := s.r.In.Nodes()[id].CPU(); best < 0 || better(pick, id, cpu, best, bestCPU) {
			best, bestCPU = id, cpu
		}
	}
	return best, bestCPU
}

// findShared prefers nodes with room on devices that are already shared over nodes where a whole
// device must be opened (Emptiest: the other way round).
func (s *Site) findShared(set, n int, pick Pick) int {
	best, bestScore := -1, int64(0)
	s.nodes(s.stage.Of(set), func(node int) bool {
		if s.Room(node, set, n) < n {
			return true
		}
		score := s.sharedScore(node, set)
		if pick == Emptiest {
			score = -score
		}
		if best < 0 || pick != First && score < bestScore {
			best, bestScore = node, score
		}
		return pick != First
	})
	return best
}

// sharedScore is lower the less is left on the device that would be used: partly used devices
// first, then whole devices on the fullest node.
func (s *Site) sharedScore(node, set int) int64 {
	dev := s.pickDevice(node, set, Fullest)
	if dev < 0 {
		return 2 * noTenants
	}
	n := &s.r.In.Nodes()[node]
	d := &n.Devices()[dev]
	switch r := &s.req[set].Request; {
	case d.Tenants() == 0:
		return noTenants + int64(n.FreeGPUs())<<10
	case r.Profile != "":
		return s.spoils(n, dev, r)<<4 + d.FreeSlots()
	}
	return int64(d.Milli())
}

// Together reports whether everything bound so far is in one domain of a level. Domains of
// different levels need not be nested.
func (s *Site) Together(l cluster.Level) bool { return s.r.In.Together(s.allocs, l) }

// Spread returns the number of nodes on which tasks are bound so far.
func (s *Site) Spread() int {
	n := 0
	for i := range s.allocs {
		if !s.uses(s.allocs[:i], s.allocs[i].Node) {
			n++
		}
	}
	return n
}

func (s *Site) uses(allocs []inventory.Alloc, node int32) bool {
	for i := range allocs {
		if allocs[i].Node == node {
			return true
		}
	}
	return false
}

// FindOther is Find among the nodes without tasks bound so far, by a scan.
func (s *Site) FindOther(set, n int, pick Pick) int {
	if !s.awake && s.r.In.Asleep() > 0 {
		s.awake = true
		node := s.FindOther(set, n, pick)
		if s.awake = false; node >= 0 {
			return node
		}
	}
	best, bestFree := -1, 0
	s.nodes(s.stage.Of(set), func(node int) bool {
		if s.uses(s.allocs, int32(node)) || s.Room(node, set, n) < n {
			return true
		}
		free := s.FreeGPUs(node)
		if best < 0 || pick == Fullest && free < bestFree || pick == Emptiest && free > bestFree {
			best, bestFree = node, free
		}
		return true
	})
	return best
}

// Most returns the node with room for the most tasks of the set (at most most), the fullest among
// equals, and their number; -1 if none fits.
func (s *Site) Most(set, most int) (node, tasks int) {
	r := &s.req[set].Request
	if s.most != nil {
		most = min(most, s.most.Each())
	}
	if r.GPUs > 0 && !r.Fractional() && r.Profile == "" {
		for n := most; n > 0; n = bestPossible(s, set, n-1) {
			if node := s.Find(set, n, Fullest); node >= 0 {
				return node, n
			}
		}
		return -1, 0
	}
	room := 0
	s.nodes(s.stage.Of(set), func(node int) bool {
		room = max(room, s.Room(node, set, most))
		return room < most
	})
	if room == 0 {
		return -1, 0
	}
	return s.Find(set, room, Fullest), room // the fullest of those with that room
}

// bestPossible returns the largest n' <= n such that some node has enough free GPUs for n' tasks,
// so that Most skips hopeless sizes.
func bestPossible(s *Site, set, n int) int {
	top, gpus := 0, s.req[set].Request.GPUs
	for _, ci := range s.stage.Of(set) {
		c := &s.r.In.Classes()[ci]
		for k := c.GPUs(); k > 0; k-- {
			if c.Buckets()[k].Len() > 0 {
				top = max(top, k/gpus)
				break
			}
		}
	}
	return min(n, top)
}

// Take binds n tasks of a set to a node; the caller has checked Room.
func (s *Site) Take(node, set, n int) { s.TakeOn(node, set, n, Fullest) }

// TakeOn is Take with a preference among shared devices.
func (s *Site) TakeOn(node, set, n int, pick Pick) {
	unbound := 0 // used only for shares of several GPUs
	if r := &s.req[set].Request; r.Fractional() && r.GPUs > 1 {
		unbound = s.unbound(set)
	}
	s.takeOn(node, set, n, pick, unbound)
}

// takeOn is TakeOn with the number of tasks of the set that are not bound yet.
func (s *Site) takeOn(node, set, n int, pick Pick, unbound int) {
	r := &s.req[set].Request
	st := s.r.In
	if !r.Fractional() && r.Profile == "" {
		a := inventory.Alloc{Node: int32(node), Set: int32(set), Tasks: int32(n),
			CPU: r.CPU * int64(n), RAM: r.RAM * int64(n)}
		if k := n * r.GPUs; k > 0 {
			a.GPUs = st.Nodes()[node].PickWhole(k, s.devices(&st.Nodes()[node]))
		}
		s.bind(&a)
		return
	}
	for t := range n {
		s.own = 0
		scarce, few := s.scarce(node, set, unbound-t)
		for i := range r.GPUs {
			if few == 0 {
				s.own |= scarce
			}
			dev := s.pickDevice(node, set, pick)
			a := inventory.Alloc{Node: int32(node), Set: int32(set), GPUs: 1 << dev, Share: int32(r.Share),
				Mem: r.Memory, User: s.f.Owner(s.job.Spec), Tenant: s.job.Tenant()}
			if i == 0 { // CPU and RAM count once for each task
				a.Tasks, a.CPU, a.RAM = 1, r.CPU, r.RAM
			}
			if r.Profile != "" {
				s.sliceAlloc(&a, r)
			}
			s.bind(&a)
			if s.own |= a.GPUs; scarce&a.GPUs != 0 {
				few--
			}
		}
	}
	s.own = 0
}

func (s *Site) bind(a *inventory.Alloc) {
	s.r.In.Take(a)
	s.allocs = append(s.allocs, *a)
}

// pickDevice chooses the device for one share or slice: the fullest with room (Emptiest: the
// emptiest), else a whole one; -1: none. A slice goes where it spoils least for others, then to the
// fullest (NVIDIA's MIG user guide), and opens a device only if no other has room, since that could
// be used whole.
func (s *Site) pickDevice(node, set int, pick Pick) int {
	r := &s.req[set].Request
	n := &s.r.In.Nodes()[node]
	best, bestLeft := -1, int64(0)
	on := n.Healthy() & s.devices(n)
	for i := range n.Devices() {
		if on>>i&1 == 0 {
			continue
		}
		d := &n.Devices()[i]
		if n.Free()>>i&1 == 0 && d.Tenants() == 0 && !n.IsCut(i) || s.own>>i&1 == 1 {
			continue
		}
		left, ok := s.DeviceLeft(n, i, r)
		if !ok {
			continue
		}
		switch {
		case r.Profile == "" && pick == Emptiest:
			left = -left
		case r.Profile == "":
		case pick == Emptiest:
			left = -left<<46 + s.spoils(n, i, r)
		case d.Slots() == 0:
			left = noTenants
		default:
			left += s.spoils(n, i, r) << 4
		}
		if best < 0 || left < bestLeft {
			best, bestLeft = i, left
		}
	}
	return best
}

// DeviceLeft returns what is left of a device after the request (lower is fuller); false: no room.
func (s *Site) DeviceLeft(n *inventory.Node, dev int, r *cluster.Request) (int64, bool) {
	d := &n.Devices()[dev]
	if r.Profile == "" {
		if n.IsCut(dev) || d.Slots() != 0 || int64(d.Milli()) < r.Share || d.Mem() < r.Memory ||
			s.r.In.Classes()[n.Class()].Seats(d) == 0 {
			return 0, false
		}
		return int64(d.Milli()) - r.Share, true
	}
	if d.Tenants() > 0 && d.Slots() == 0 {
		return 0, false // shared by fractions: not in MIG mode
	}
	model := s.r.In.Classes()[n.Class()].Model()
	p, ok := model.Profile(r.Profile)
	if !ok {
		return 0, false
	}
	if n.StartOn(model, p, dev, nil) < 0 {
		return 0, false
	}
	return d.FreeSlots(), true
}

// noTenants exceeds what any slice spoils: an empty device is used only if no other has room.
const noTenants = 1 << 50

// spoils is what a slice costs others on a device (LossOfStart); 0 if its instances cannot be
// changed.
func (s *Site) spoils(n *inventory.Node, dev int, r *cluster.Request) int64 {
	if n.Stays(dev) {
		return 0
	}
	model := s.r.In.Classes()[n.Class()].Model()
	p, _ := model.Profile(r.Profile)
	d := &n.Devices()[dev]
	wanted := s.f.WantedOf(n.Class())
	return inventory.LossOfStart(model, p, d.Slots(), inventory.StartOf(model, p, d, wanted), wanted)
}

func (s *Site) sliceAlloc(a *inventory.Alloc, r *cluster.Request) {
	n := &s.r.In.Nodes()[a.Node]
	model := s.r.In.Classes()[n.Class()].Model()
	p, _ := model.Profile(r.Profile)
	dev := bits.TrailingZeros64(a.GPUs)
	start, d := n.StartOn(model, p, dev, s.f.WantedOf(n.Class())), &n.Devices()[dev]
	a.Slots = p.Mask(start)
	a.Compute, a.Media = uint8(p.Compute), p.Media()
	a.Share = int32(int64(p.Compute) * cluster.Whole / int64(model.Compute))
	a.Mem, a.User, a.Tenant = min(p.Memory, d.Mem()), "", 0
}

// Bound returns what is bound so far. It must not be changed.
func (s *Site) Bound() []inventory.Alloc { return s.allocs }

// Allowed is the mask of a node's devices that the search may use.
func (s *Site) Allowed(node int) uint64 { return s.devices(&s.r.In.Nodes()[node]) }

// Names that placers know as the search's.

// Domain restricts a search to one domain of a topology level.
type Domain = inventory.Domain

// The measures of a node's free GPUs.
const (
	Fragments = inventory.Fragments
	Rooms     = inventory.Rooms
)
