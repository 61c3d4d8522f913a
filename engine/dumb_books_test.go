package engine_test

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// books is what is held: a list, added up again for every question.
type books struct {
	nodes []cluster.Node
	held  [][]engine.Alloc // by node
	keep  map[int]amount   // what promises leave on a node; looked up only
	off   map[int]bool     // nodes that a promise shall keep off; looked up only
	mps   bool             // the shares of one device are of one user
	user  string           // for which a place is looked for
	d     *dumb
	job   *dumbJob // whose place is looked for
	never uint64   // devices that are not chosen for shares
}

func newBooks(nodes []cluster.Node) books {
	return books{nodes: nodes, held: make([][]engine.Alloc, len(nodes))}
}

func (b *books) take(allocs []engine.Alloc) {
	for _, a := range allocs {
		b.held[a.Node] = append(slices.Clip(b.held[a.Node]), a)
	}
}

func (b *books) give(allocs []engine.Alloc) {
	for _, a := range allocs {
		i := slices.Index(b.held[a.Node], a)
		b.held[a.Node] = slices.Delete(slices.Clone(b.held[a.Node]), i, i+1)
	}
}

func (b *books) clone() books {
	c := *b
	c.held = slices.Clone(b.held) // the lists themselves are never written to
	return c
}

// free is the wholly free devices of a node.
func (b *books) free(node int) uint64 {
	n := &b.nodes[node]
	m := (uint64(1)<<n.GPUs - 1) &^ n.Bad
	for _, a := range b.held[node] {
		m &^= a.GPUs
	}
	for i := range n.GPUs {
		if cutAt(n, i) {
			m &^= 1 << i
		}
	}
	return m
}

func cutAt(n *cluster.Node, dev int) bool {
	cut, _ := instancesOf(n, dev)
	return cut
}

// partition is what a geometry is read from.
type partition struct {
	model, text string
	gpus        int
}

// partitions are geometries by what they were read from: reading takes longer than all else that the twin does.
var partitions sync.Map

// instancesOf lists the MIG instances that stay as they are on a device; cut: it
// has nothing else.
func instancesOf(n *cluster.Node, dev int) (cut bool, list []cluster.Instance) {
	if n.MIG == "" {
		return false, nil
	}
	from := partition{n.Model, n.MIG, n.GPUs}
	known, ok := partitions.Load(from)
	if !ok {
		geometry, _, err := n.Geometry(modelOf(n))
		if err != nil {
			panic(err)
		}
		known, _ = partitions.LoadOrStore(from, geometry)
	}
	geometry := known.([][]cluster.Instance)
	return geometry[dev] != nil, geometry[dev]
}

func (b *books) cpu(node int) int64 {
	left := capacityOf(b.nodes[node].CPU)
	for _, a := range b.held[node] {
		left -= a.CPU
	}
	return left
}

func (b *books) ram(node int) int64 {
	left := capacityOf(b.nodes[node].RAM)
	for _, a := range b.held[node] {
		left -= a.RAM
	}
	return left
}

// capacityOf takes a node that states nothing for one with plenty.
func capacityOf(v int64) int64 {
	if v == 0 {
		return math.MaxInt64 / 4
	}
	return v
}

var models = cluster.Models()

func modelOf(n *cluster.Node) *cluster.GPUModel {
	for i := range models {
		if models[i].Name == n.Model {
			return &models[i]
		}
	}
	panic("there is no model " + n.Model)
}

// gpu is one device as it is: what is left, and which jobs are on it.
type gpu struct {
	milli, mem     int64
	slots          uint8
	compute        int
	media          bool
	tenants, whole int
	user           string // of the shares on it
}

func (b *books) gpu(node, i int) gpu {
	g := gpu{milli: cluster.Whole, mem: modelOf(&b.nodes[node]).Memory}
	for _, a := range b.held[node] {
		switch {
		case a.GPUs>>i&1 == 0:
		case a.Share == 0:
			g.whole++
		default:
			g.milli -= int64(a.Share)
			g.mem -= a.Mem
			g.slots |= a.Slots
			g.compute += int(a.Compute)
			g.media = g.media || a.Media
			g.tenants++
			g.user = a.User
		}
	}
	return g
}

// pickGPU chooses the device for one share or slice: the fullest with room, or
// the emptiest; the first of those that are alike. A slice goes where it does least harm,
// then to the fullest, to one without any last. -1: there is none.
func (b *books) pickGPU(node int, r *cluster.Request, not uint64, emptiest bool) int {
	best, bestLeft := -1, int64(0)
	for i := range b.nodes[node].GPUs {
		g := b.gpu(node, i)
		if (b.nodes[node].Bad|not|b.never)>>i&1 == 1 || g.whole > 0 {
			continue
		}
		var left int64
		if r.Profile == "" {
			if cutAt(&b.nodes[node], i) || g.slots != 0 || g.milli < r.Share || g.mem < r.Memory || b.another(&g) ||
				b.full(node, &g) || b.disturbed(node, i) {
				continue
			}
			left = g.milli - r.Share
		} else {
			start, harm := b.startAt(node, i, &g, r)
			if g.tenants > 0 && g.slots == 0 || start < 0 {
				continue
			}
			switch left = int64(8 - bits.OnesCount8(g.slots)); {
			case emptiest:
				left = left<<46 - harm
			case g.slots == 0:
				left = 1 << 50
			default:
				left += 16 * harm
			}
		}
		if emptiest {
			left = -left
		}
		if best < 0 || left < bestLeft {
			best, bestLeft = i, left
		}
	}
	return best
}

// full reports whether MPS takes no more clients on a device.
func (b *books) full(node int, g *gpu) bool {
	most, stated := b.d.clients[b.nodes[node].Model]
	if !stated {
		most = 48
	}
	return b.d.mps && g.tenants >= most
}

// another reports whether a device's shares are of another user.
func (b *books) another(g *gpu) bool { return b.mps && g.tenants > 0 && g.user != b.user }

// wantedOn is how many slices of each profile jobs in line ask for that suit a node.
func (b *books) wantedOn(node int) []int64 {
	m := modelOf(&b.nodes[node])
	list := make([]int64, len(m.Profiles))
	for _, j := range b.d.jobs {
		for i := 0; j != nil && j.eligible && i < len(j.Tasks); i++ {
			n, p := int64(j.Tasks[i].Count), -1
			if name := j.Tasks[i].Request.Profile; name != "" {
				if q, ok := m.Profile(name); ok {
					p = slices.IndexFunc(m.Profiles, func(x cluster.SliceProfile) bool { return x.Name == q.Name })
				}
			}
			if i == 0 && j.Elastic.Max > 0 {
				n = int64(j.Elastic.Min)
			}
			if p >= 0 && b.d.suits(j, i, node) {
				list[p] += n
			}
		}
	}
	return list
}

// startAt is the memory slice at which a new instance does least harm, and the harm:
// slices of instances that become impossible, first of those that jobs in line ask for, the highest of equals.
// Where the instances stay as they are, the first free one of the profile; no harm is done.
func (b *books) startAt(node, dev int, g *gpu, r *cluster.Request) (start int, harm int64) {
	m := modelOf(&b.nodes[node])
	p, ok := m.Profile(r.Profile)
	_, list := instancesOf(&b.nodes[node], dev)
	if b.nodes[node].MIG != "" && (len(list) != 1 || list[0].Profile != cluster.AsNeeded) {
		for _, in := range list {
			if ok && in.Profile == p.Name && g.slots&p.Mask(in.Start) == 0 {
				return in.Start, 0
			}
		}
		return -1, 0
	}
	if !ok || g.compute+p.Compute > m.Compute || p.Media() && g.media {
		return -1, 0
	}
	best, bestHarm, wanted := -1, int64(0), b.wantedOn(node)
	for _, s := range p.Starts {
		if g.slots&p.Mask(s) != 0 {
			continue
		}
		harm = 0
		for i := range m.Profiles {
			for _, t := range m.Profiles[i].Starts {
				q := m.Profiles[i].Mask(t)
				if g.slots&q == 0 && q&p.Mask(s) != 0 {
					harm += int64(m.Profiles[i].Slots) * (256*wanted[i] + 1)
				}
			}
		}
		if best < 0 || harm <= bestHarm {
			best, bestHarm = s, harm
		}
	}
	return best, bestHarm
}

// one binds one task of shares or a slice; nil: there is no room.
func (b *books) one(node, set int, r *cluster.Request, emptiest bool) (allocs []engine.Alloc) {
	own, then := uint64(0), b.clone()
	if b.cpu(node) < r.CPU || b.ram(node) < r.RAM {
		return nil
	}
	for k := range r.GPUs {
		i := then.pickGPU(node, r, own, emptiest)
		if i < 0 {
			return nil
		}
		a := engine.Alloc{Node: int32(node), Set: int32(set), GPUs: 1 << i, Share: int32(r.Share), Mem: r.Memory}
		if r.Profile == "" {
			a.Tenant = 1 + int32(b.job.ID)
		}
		if b.mps && r.Profile == "" {
			a.User = b.user
		}
		if k == 0 {
			a.Tasks, a.CPU, a.RAM = 1, r.CPU, r.RAM
		}
		if r.Profile != "" {
			m, g := modelOf(&b.nodes[node]), then.gpu(node, i)
			p, _ := m.Profile(r.Profile)
			start, _ := then.startAt(node, i, &g, r)
			a.Slots, a.Compute, a.Media = p.Mask(start), uint8(p.Compute), p.Media()
			a.Share, a.Mem = int32(p.Compute*1000/m.Compute), min(p.Memory, g.mem)
		}
		then.take([]engine.Alloc{a})
		allocs, own = append(allocs, a), own|a.GPUs
	}
	return allocs
}

// partial says that a request does not take whole devices.
func partial(r *cluster.Request) bool { return r.Fractional() || r.Profile != "" }

// room is how many tasks fit on a node, at most so many; bound is what the job
// itself has there already.
func (b *books) room(node int, r *cluster.Request, most int, bound []engine.Alloc) int {
	n := most
	if r.CPU > 0 {
		n = min(n, int(b.cpu(node)/r.CPU))
	}
	if r.RAM > 0 {
		n = min(n, int(b.ram(node)/r.RAM))
	}
	switch {
	case partial(r) && r.GPUs > 1:
		n = b.distinct(node, r, n)
	case partial(r): // as many as can be bound, one after the other
		then, k := b.clone(), 0
		for ; k < n; k++ {
			a := then.one(node, 0, r, false)
			if a == nil {
				break
			}
			then.take(a)
		}
		n = k
	case r.GPUs > 0:
		n = min(n, bits.OnesCount64(b.free(node))/r.GPUs)
	}
	if keep, ok := b.keep[node]; ok {
		n = min(n, besidePromise(keep, r, node, bound))
	}
	return max(0, n)
}

// besidePromise is how many tasks fit into what promises leave of a node, beside
// what the job has bound there. A share counts as a device: it may open one.
func besidePromise(left amount, r *cluster.Request, node int, bound []engine.Alloc) int {
	n, used := math.MaxInt32, uint64(0)
	for _, a := range bound {
		if int(a.Node) == node {
			used |= a.GPUs
		}
	}
	left = left.minus(sum(bound, node))
	if r.CPU > 0 {
		n = min(n, int(left.cpu/r.CPU))
	}
	if r.RAM > 0 {
		n = min(n, int(left.ram/r.RAM))
	}
	if r.GPUs > 0 { // several shares on one device count once
		n = min(n, (left.gpus+sum(bound, node).gpus-bits.OnesCount64(used))/r.GPUs)
	}
	return n
}

// pickWhole chooses free devices: of the island with the fewest that suffice,
// the lowest.
func (b *books) pickWhole(node, k int) (m uint64) {
	n := &b.nodes[node]
	pool := b.free(node)
	if n.Islands > 1 {
		per, fewest := (n.GPUs+n.Islands-1)/n.Islands, math.MaxInt
		for i := range n.Islands {
			island := b.free(node) & ((uint64(1)<<per - 1) << (i * per))
			if c := bits.OnesCount64(island); c >= k && c < fewest {
				pool, fewest = island, c
			}
		}
	}
	for i := 0; bits.OnesCount64(m) < k; i++ {
		m |= pool & (1 << i)
	}
	return m
}

// exactly reports whether just these allocations are free.
func (b *books) exactly(allocs []engine.Alloc) bool {
	then := b.clone()
	for _, a := range allocs {
		node := int(a.Node)
		if then.cpu(node) < a.CPU || then.ram(node) < a.RAM {
			return false
		}
		if a.Share == 0 {
			if then.free(node)&a.GPUs != a.GPUs {
				return false
			}
		} else {
			g := then.gpu(node, bits.TrailingZeros64(a.GPUs))
			if g.whole > 0 || a.Slots == 0 && then.full(node, &g) || g.milli < int64(a.Share) || g.mem < a.Mem ||
				g.slots&a.Slots != 0 ||
				g.tenants > 0 && ((g.slots == 0) != (a.Slots == 0) || g.user != a.User) || g.media && a.Media {
				return false
			}
		}
		if a.Tenant != 0 {
			if then.job = then.d.jobs[a.Tenant-1]; then.disturbed(node, bits.TrailingZeros64(a.GPUs)) {
				return false
			}
		}
		then.take([]engine.Alloc{a})
	}
	return true
}

// kind is what no job can tell apart: model and size of a node.
func (d *dumb) kind(i int) kind {
	k := kind{model: d.nodes[i].Model, gpus: d.nodes[i].GPUs}
	for p := range d.parts {
		if slices.Contains(d.parts[p].Nodes, d.nodes[i].Name) {
			k.parts |= 1 << p
		}
	}
	return k
}

type kind struct {
	model string
	gpus  int
	parts uint64 // which partitions have it
	node  int    // 1 + a node: of it alone
}

// inSet: the node is one of those that the job names, if it names any.
func (d *dumb) inSet(j *dumbJob, i int) bool {
	return j.Nodes == "" || slices.Contains(d.sets[j.Nodes], d.nodes[i].Name)
}

// inPart reports whether a node is of a partition; "": of one that is default, or of
// any if none is.
func (d *dumb) inPart(name string, i int) bool {
	byDefault := slices.ContainsFunc(d.parts, func(p cluster.Partition) bool { return p.Default })
	return len(d.parts) == 0 || slices.ContainsFunc(d.parts, func(p cluster.Partition) bool {
		return slices.Contains(p.Nodes, d.nodes[i].Name) && (name == p.Name || name == "" && (p.Default || !byDefault))
	})
}

// fits reports whether a task of the set can ever run on nodes like this.
func (d *dumb) fits(j *dumbJob, set, i int) bool {
	m, r := modelOf(&d.nodes[i]), &j.Tasks[set].Request
	cpu, ram := int64(0), int64(0)
	for k := range d.nodes {
		if d.kind(k) == d.kind(i) {
			cpu, ram = max(cpu, capacityOf(d.nodes[k].CPU)), max(ram, capacityOf(d.nodes[k].RAM))
		}
	}
	_, ok := m.Profile(r.Profile)
	return d.inPart(j.part, i) && d.inSet(j, i) && d.nodes[i].GPUs >= r.GPUs && (r.GPUs == 0 || r.Memory <= m.Memory) &&
		cpu >= r.CPU && ram >= r.RAM && (r.Profile == "" || ok)
}

// whereFrom is what stages are made of, for given nodes: partition and model are the job's in this moment.
type whereFrom struct {
	spec         *cluster.Job
	part, narrow string
}

// stages are where the task sets can run, as long as no node and no set of nodes changes; not to be changed.
func (d *dumb) stages(j *dumbJob) [][][]int {
	of := whereFrom{j.Job, j.part, j.narrow}
	list, known := d.stagesOf[of]
	if !known {
		list = d.makeStages(j)
		if d.stagesOf == nil {
			d.stagesOf = map[whereFrom][][][]int{}
		}
		d.stagesOf[of] = list
	}
	return list
}

// suits: some stage has the node for the task set.
func (d *dumb) suits(j *dumbJob, set, i int) bool {
	return slices.ContainsFunc(d.stages(j), func(st [][]int) bool { return slices.Contains(st[set], i) })
}

// competes: a task with GPUs can run there; any task of a job without GPUs.
func (d *dumb) competes(j *dumbJob, i int) bool {
	for set := range j.Tasks {
		if j.bound(set) && d.suits(j, set, i) {
			return true
		}
	}
	return false
}

// isType: "A100" is the family of "A100-80GB".
func isType(model, want string) bool { return model == want || strings.HasPrefix(model, want+"-") }

// makeStages lists where the task sets can run, to be tried one after the other: by
// preferred GPU type, and for gangs by model, because a gang's GPUs are of one
// model. Types and models are a matter of the sets that have GPUs.
func (d *dumb) makeStages(j *dumbJob) (list [][][]int) {
	types, seen := j.types(), map[[2]int]bool{} // looked up only
	if len(types) == 0 {
		types = []string{""}
	}
	for _, typ := range types {
		models, fits := []string{}, make([][]int, len(j.Tasks))
		for set := range j.Tasks {
			for i, n := range d.nodes {
				if d.fits(j, set, i) &&
					(!j.bound(set) || !seen[[2]int{set, i}] && (typ == "" || isType(n.Model, typ))) {
					fits[set], seen[[2]int{set, i}] = append(fits[set], i), true
					if j.bound(set) && !slices.Contains(models, n.Model) {
						models = append(models, n.Model)
					}
				}
			}
		}
		if !j.gang() || j.GPUs() == 0 {
			models = []string{""} // any
		}
		for _, m := range models {
			stage, empty := slices.Clone(fits), false
			for set := range stage {
				stage[set] = slices.DeleteFunc(slices.Clone(fits[set]), func(i int) bool {
					return m != "" && j.bound(set) && d.nodes[i].Model != m
				})
				empty = empty || len(stage[set]) == 0
			}
			if !empty {
				list = append(list, stage)
			}
		}
	}
	return list
}

// bound: types and models matter to the task set.
func (j *dumbJob) bound(set int) bool { return j.GPUs() == 0 || j.Tasks[set].Request.GPUs > 0 }

func (j *dumbJob) gang() bool { return len(j.Tasks) > 1 || j.Tasks[0].Count > 1 }

// place finds devices for the whole gang, or nothing.
func (d *dumb) place(j *dumbJob, b books, blocked map[kind]bool) []engine.Alloc {
	b.mps, b.user, b.d, b.job = d.mps, j.User, d, j
	for _, known := range d.stages(j) {
		stage := slices.Clone(known)
		for set := range stage {
			stage[set] = slices.DeleteFunc(slices.Clone(stage[set]), func(i int) bool {
				return d.nodes[i].State != cluster.Up || blocked[d.kind(i)] || blocked[kind{node: i + 1}] || b.off[i]
			})
		}
		awake := make([][]int, len(stage)) // a job is on nodes that are awake, if it fits there
		for set := range stage {
			awake[set] = d.awake(stage[set])
		}
		for _, nodes := range [][][]int{awake, stage} {
			if allocs, ok := d.placeOn(j, b.clone(), nodes); ok {
				return allocs
			}
		}
	}
	return nil
}

func (d *dumb) awake(nodes []int) []int {
	return slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return d.nodes[i].Asleep > 0 })
}

// placeOn places the task sets, the hardest first: most GPUs, then CPU, then RAM.
func (d *dumb) placeOn(j *dumbJob, b books, stage [][]int) (allocs []engine.Alloc, ok bool) {
	order := make([]int, len(j.Tasks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, c int) int {
		x, y := &j.Tasks[a].Request, &j.Tasks[c].Request
		return cmp.Or(cmp.Compare(y.GPUs, x.GPUs), cmp.Compare(y.CPU, x.CPU), cmp.Compare(y.RAM, x.RAM))
	})
	for _, set := range order {
		s := site{d, j, b, stage[set], set, &j.Tasks[set].Request, allocs}
		if !s.fill(j.Tasks[set].Count) {
			return nil, false
		}
		b, allocs = s.b, s.allocs
	}
	return allocs, true
}

// site places one set of tasks.
type site struct {
	d      *dumb
	j      *dumbJob
	b      books
	nodes  []int
	set    int
	r      *cluster.Request
	allocs []engine.Alloc
}

func (s *site) fill(count int) bool {
	for left := count; left > 0; {
		node, n := -1, left
		switch s.d.placer {
		case "best-fit": // as many as fit on one node, on the fullest
			for ; n > 0 && node < 0; n-- {
				node = s.find(n, 1)
			}
			n++
		case "first-fit": // all on the first that holds them, if all are still to be placed
			if left == count {
				node = s.find(left, 0)
			}
			if node < 0 {
				if node = s.find(1, 0); node >= 0 {
					n = s.room(node, left)
				}
			}
		case "worst-fit":
			node, n = s.find(1, -1), 1
		}
		if node < 0 {
			return false
		}
		s.bind(node, n, left)
		left -= n
	}
	return true
}

// room is how many more tasks of the job fit on a node, which may take fewer of
// them than there is room for.
func (s *site) room(node, most int) int {
	n := s.b.room(node, s.r, most, s.allocs)
	for _, l := range s.d.limitsOf(s.j, node) {
		left := l.Tasks
		for _, a := range s.allocs {
			if slices.Contains(l.Nodes, s.d.nodes[a.Node].Name) {
				left -= int(a.Tasks)
			}
		}
		n = min(n, left)
	}
	return max(0, n)
}

// limitsOf lists what bounds a job on a node: as things are now, unless what is
// possible is asked for.
func (d *dumb) limitsOf(j *dumbJob, node int) (list []cluster.NodeLimit) {
	name := d.nodes[node].Name
	if j.PerNode > 0 {
		list = append(list, cluster.NodeLimit{Nodes: []string{name}, Tasks: j.PerNode})
	}
	for _, l := range j.NodeLimits {
		if slices.Contains(l.Nodes, name) && !d.possible {
			list = append(list, l)
		}
	}
	return list
}

// shut: a node takes nothing of the job.
func (d *dumb) shut(j *dumbJob, node int) bool {
	return slices.ContainsFunc(d.limitsOf(j, node), func(l cluster.NodeLimit) bool { return l.Tasks == 0 })
}

// find is the best node with room for n tasks; sign 1: the fullest, -1: the
// emptiest, 0: the first.
func (s *site) find(n, sign int) int {
	fit := slices.DeleteFunc(slices.Clone(s.nodes), func(i int) bool { return s.room(i, n) < n })
	if awake := s.d.awake(fit); len(awake) > 0 {
		fit = awake
	}
	slices.SortStableFunc(fit, func(a, b int) int {
		if partial(s.r) {
			return sign * cmp.Compare(s.openness(a), s.openness(b))
		}
		c := cmp.Compare(bits.OnesCount64(s.b.free(a)), bits.OnesCount64(s.b.free(b)))
		if c == 0 && s.r.CPU > 0 {
			c = cmp.Compare(s.b.cpu(a), s.b.cpu(b))
		}
		return c * sign
	})
	if len(fit) == 0 {
		return -1
	}
	return fit[0]
}

// openness is how little a share or slice would fill up: what is left of the
// partly used device that it would go to, or more than that where it opens a
// new one, the more the emptier the node.
func (s *site) openness(node int) int64 {
	i := s.b.pickGPU(node, s.r, 0, false)
	g := s.b.gpu(node, i)
	if g.tenants > 0 && s.r.Profile != "" {
		_, harm := s.b.startAt(node, i, &g, s.r)
		return 16*harm + 8 - int64(bits.OnesCount8(g.slots))
	}
	if g.tenants > 0 {
		return g.milli
	}
	return 1<<50 + int64(bits.OnesCount64(s.b.free(node)))
}

func (s *site) bind(node, n, unbound int) {
	if !partial(s.r) {
		a := engine.Alloc{Node: int32(node), Set: int32(s.set), Tasks: int32(n), CPU: s.r.CPU * int64(n),
			RAM: s.r.RAM * int64(n)}
		a.GPUs = s.b.pickWhole(node, n*s.r.GPUs)
		s.b.take([]engine.Alloc{a})
		s.allocs = append(s.allocs, a)
		return
	}
	for k := range n {
		a := s.one(node, unbound-k)
		s.b.take(a)
		s.allocs = append(s.allocs, a...)
	}
}
