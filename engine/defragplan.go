package engine

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// The search for moves: for each block in which the gang could be,
// the cheapest jobs whose departure lets it fit there and that find room
// elsewhere, the largest first, each where it leaves least.

// mover is a running job that may be moved, or (all) several that together leave GPUs of
// a node of which they have parts.
type mover struct {
	j    *job.State
	all  []mover // they; then only cost and gpu count besides
	gpu  [1]inventory.Alloc
	how  job.How
	stop time.Duration     // until it has left
	lost time.Duration     // work
	cost time.Duration     // GPU time
	dest []inventory.Alloc // where it goes
	wait time.Duration     // from now until those who have that have left it
	link int               // 0: it moves for the gang; else for one that moves, of the link before
}

// relocation is a way to let a gang start.
type relocation struct {
	movers []mover
	allocs []inventory.Alloc // the gang's
	cost   time.Duration
}

// block is where a gang could be: a domain of a topology level, or anywhere.
type block struct {
	inventory.Domain
	movers []mover       // who holds devices there, and may be moved; by cost
	least  time.Duration // they cost at least, where that is known
}

const (
	exactMovers = 8  // of so many in a block every choice is tried
	mostBlocks  = 64 // so many are tried, the cheapest first
)

// findMoves returns the cheapest way to let the job start, or says why there is none.
func (e *Engine) findMoves(r placement.Request, j *job.State, s *shape.Shape) (way *relocation, text string) {
	d := &e.defrag
	left := e.movesLeft()
	if left <= 0 {
		return nil, e.onTheWay()
	}
	movers, kept := e.movable(j.Spec.Tier)
	if len(movers) == 0 {
		return nil, "no running job may be moved" + kept
	}
	h := &hunt{r: r, j: j, s: s, movers: movers, most: left, work: chainWork}
	var look func()
	switch {
	case !s.Partly():
		blocks := e.blocks(s, movers)
		look = func() { e.vacateAny(h, blocks) }
	case s.Min > 1:
		look = func() { e.makeGangRoom(h) }
	default:
		look = func() { e.makeRoom(h, e.partChoices(r, s, j, movers, left)) }
	}
	look()
	if h.deep = d.Chain - 1; h.deep > 0 && d.Moves > 1 { // chains that cost less, or where there is nothing else
		look()
	}
	if h.best == nil {
		return nil, "no moves make room: those who could leave find no room elsewhere, or are too few" + kept
	}
	return h.best, ""
}

// vacateAny looks for the cheapest way among blocks.
func (e *Engine) vacateAny(h *hunt, blocks []block) {
	for i := range blocks[:min(len(blocks), mostBlocks)] {
		b := &blocks[i]
		if h.best != nil && b.least > h.best.cost {
			break
		}
		e.vacate(h, b)
	}
}

// movable lists the running jobs of a tier or a lower one that may be moved, by number,
// and says what keeps others where they are.
func (e *Engine) movable(tier cluster.Tier) (list []mover, kept string) {
	young, often := 0, 0
	e.byKey().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		switch {
		case !e.mayMove(v) || v.Tier() < tier:
		case !e.mayStop(v):
			young++
		case v.MovedSince(e.w.Now.Add(-keepMoves)) >= e.defrag.PerHour:
			often++
		default:
			list = append(list, e.moverOf(v))
		}
		return true
	})
	slices.SortFunc(list, func(a, b mover) int { return cmp.Compare(a.j.Spec.ID, b.j.Spec.ID) })
	if young > 0 {
		kept += fmt.Sprintf("; %s within the minimum run time", words.Jobs(young))
	}
	if often > 0 {
		kept += fmt.Sprintf("; %s moved %d times within the hour", words.Jobs(often), e.defrag.PerHour)
	}
	return list, kept
}

// mayMove reports whether a job may be moved at all: it runs on whole GPUs of its
// own, or on shares or slices that it asked for where the engine chooses their GPUs; one kind of
// task, at a size that it may keep, no plan says in which partition, and it comes back when it is stopped.
func (e *Engine) mayMove(v *job.State) bool {
	s := e.shapes.At(v.Base)
	r := &s.Sets[0].Request
	return v.State == job.Running && e.staysPlanned(v) && v.Spec.Tier != cluster.Critical && !v.Spec.NoRequeue &&
		!v.Spec.Hold && len(s.Sets) == 1 &&
		r.GPUs > 0 && (!shape.IsPart(r) || !e.cfg.Unshared) && !e.shapes.Get(v.Base).OnInstance(v.Allocs) &&
		(v.Target == nil || v.Target.Partition == "") && !v.Hosted() && len(v.Guests) == 0 && !v.Packed &&
		!v.Resizing &&
		(e.limits.closed == 0 || !e.isClosed(int(v.Queue)))
}

// staysPlanned reports whether a job would come back where it goes, as far as the plan in
// force says.
func (e *Engine) staysPlanned(v *job.State) bool {
	return e.plans.planner == nil ||
		v.Target != nil && !v.Idle() && v.Target.Beside == 0 && !e.astray(v) && e.mayBe(v, v.Tasks)
}

// mayBe reports whether so many tasks are a size that a job asks for, by its plan if there is one.
func (e *Engine) mayBe(v *job.State, tasks int32) bool {
	s := e.shapes.At(v.Asks())
	return s.Min <= tasks && tasks <= s.Max
}

// moverOf says what moving a job costs (Daly 2006): GPUs x (checkpoint + restore
// + lost work). Suspending it would keep it where it is.
func (e *Engine) moverOf(v *job.State) mover {
	c, grace := &v.Spec.Checkpoint, e.cfg.Stop[v.Spec.Tier].Grace
	m := mover{j: v, how: e.howToStop(v)}
	if m.how == job.Suspend {
		if m.how = job.Checkpoint; c.None {
			m.how = job.Kill
		}
	}
	if m.how == job.Checkpoint && !v.IgnoresCheckpoint {
		m.stop = min(c.Cost, grace)
	}
	if m.how == job.Kill || v.IgnoresCheckpoint || c.Cost > grace { // it does not get as far as to write one
		m.lost = v.UnsavedAt(e.w.Now)
	}
	m.cost = gpusTime(m.stop+c.Restart+m.lost, v.Milli)
	return m
}

// blocks lists where the gang could be, the cheapest first as far as is known.
func (e *Engine) blocks(s *shape.Shape, movers []mover) (list []block) {
	level := cluster.LevelNode
	switch {
	case s.Topo.Required && s.Topo.Level != cluster.LevelAny && (s.Min > 1 || s.Topo.Level == cluster.LevelNVLink):
		level = s.Topo.Level
	case s.Min > 1:
		level = cluster.LevelAny
	}
	at := map[inventory.Domain]int{} // looked up only
	movers = e.gather(movers)
	on := e.byNode(movers)
	add := func(id int32, d inventory.Domain) {
		k, ok := at[d]
		if !ok {
			k = len(list)
			at[d] = k
			list = append(list, block{Domain: d})
		}
		b := &list[k]
		for _, i := range on[id] {
			if e.gpusIn(&movers[i], d) > 0 &&
				!(len(movers[i].on()) > 1 &&
					slices.ContainsFunc(b.movers, func(m mover) bool { return m.j == movers[i].j })) {
				b.movers = append(b.movers, movers[i])
			}
		}
	}
	for id := range e.st.Nodes() {
		n := &e.st.Nodes()[id]
		switch {
		case !n.TakesJobs() || !s.Any.Has(n.Class()):
		case level == cluster.LevelAny:
			list = append(list[:0], block{movers: slices.Clone(movers)})
		case level == cluster.LevelNVLink && n.Split():
			for i := range n.Islands() {
				add(int32(id), inventory.IslandDomain(int32(id), i))
			}
		default:
			add(int32(id), n.Domain(int32(id), level))
		}
	}
	for i := range list {
		e.priceBlock(s, &list[i])
	}
	list = slices.DeleteFunc(list, func(b block) bool { return len(b.movers) == 0 || b.least == cluster.MaxDuration })
	slices.SortStableFunc(list, func(a, b block) int { return cmp.Compare(a.least, b.least) })
	return list
}

// byNode lists for each node who holds devices there, by index.
func (e *Engine) byNode(movers []mover) [][]int {
	on := make([][]int, len(e.st.Nodes()))
	for i := range movers {
		for _, a := range movers[i].on() {
			if l := on[a.Node]; len(l) == 0 || l[len(l)-1] != i {
				on[a.Node] = append(l, i)
			}
		}
	}
	return on
}

// priceBlock sorts who may leave a block by cost. Within one node it is known what room
// there costs at least (MaxDuration: there cannot be any).
func (e *Engine) priceBlock(s *shape.Shape, b *block) {
	slices.SortStableFunc(b.movers, func(x, y mover) int { return cmp.Compare(x.cost, y.cost) })
	if id, _, ok := b.Single(); ok {
		n := &e.st.Nodes()[id]
		b.least, _ = e.cheapest(portions(b.movers), b.Domain, s.GPUs-n.FreeOn(b.Devices(n)))
	}
}

// gpusIn counts the GPUs in a domain that are free when somebody leaves.
func (e *Engine) gpusIn(v *mover, d inventory.Domain) (k int) {
	on := v.on()
	for i := range on {
		a := &on[i]
		if n := &e.st.Nodes()[a.Node]; d.Covers(n, a.Node) {
			k += popcount(a.GPUs & d.Devices(n))
		}
	}
	return k
}

// cheapest chooses the jobs of least cost that together hold at least so many GPUs
// in a domain: the knapsack, exactly. MaxDuration: they do not.
func (e *Engine) cheapest(movers []mover, d inventory.Domain, gpus int) (cost time.Duration, chosen []int) {
	if gpus <= 0 {
		return 0, nil
	}
	best := make([]time.Duration, gpus+1) // by GPUs still needed; what is more counts as all
	from := make([][]int, gpus+1)
	for k := range best {
		best[k] = cluster.MaxDuration
	}
	best[0] = 0
	for i := range movers {
		w := e.gpusIn(&movers[i], d)
		for k := gpus; k > 0; k-- {
			rest := max(0, k-w)
			if best[rest] == cluster.MaxDuration {
				continue
			}
			if c := best[rest] + movers[i].cost; w > 0 && c < best[k] {
				best[k], from[k] = c, append(slices.Clone(from[rest]), i)
			}
		}
	}
	return best[gpus], from[gpus]
}

// vacate looks for the cheapest way to have the gang in a block, if it costs less than the
// best one so far.
func (e *Engine) vacate(h *hunt, b *block) {
	if _, _, ok := b.Single(); ok && len(b.movers) <= exactMovers {
		for _, c := range e.choices(h.s.GPUs, b, h.most, false) { // the cheapest first
			if !h.better(c.cost, len(c.who)) {
				return
			}
			e.tryMoves(h, b.Domain, c.who)
		}
		return
	}
	e.tryWithout(h, b.Domain, b.movers, func(movers []mover) []mover { return e.chooseNodes(h.s, b, movers, h.most) })
}

// tryWithout tries those who are chosen to leave a domain, and chooses again without whom
// there was no room for elsewhere.
func (e *Engine) tryWithout(h *hunt, d inventory.Domain, movers []mover, choose func([]mover) []mover) {
	movers = slices.Clone(movers)
	for range exactMovers {
		chosen, before := choose(movers), h.best
		if len(chosen) == 0 {
			return
		}
		stuck := e.tryMoves(h, d, chosen)
		if stuck == nil || h.best != before {
			return
		}
		movers = slices.DeleteFunc(movers, func(m mover) bool { return m.has(stuck) })
	}
}

// choice is jobs that may leave a block together.
type choice struct {
	who  []mover
	cost time.Duration
	at   inventory.Domain
}

// choices lists who may leave a block within one node so that there are so many GPUs,
// moves for most at most, the cheapest first; least: nobody of them in vain.
func (e *Engine) choices(gpus int, b *block, most cluster.Milli, least bool) (list []choice) {
	at, _, _ := b.Single()
	free := e.st.Nodes()[at].FreeOn(b.Devices(&e.st.Nodes()[at]))
	held := make([]int, len(b.movers))
	for i := range b.movers {
		held[i] = e.gpusIn(&b.movers[i], b.Domain)
	}
	for mask := 1; mask < 1<<len(b.movers); mask++ {
		room, smallest, whole := free, gpus, cluster.Milli(0)
		for i := range b.movers {
			if mask>>i&1 == 1 {
				room, smallest = room+held[i], min(smallest, held[i])
				if b.movers[i].all == nil {
					whole += toll(b.movers[i : i+1])
				}
			}
		}
		if whole > most || room < gpus || least && room-smallest >= gpus {
			continue
		}
		who := make([]mover, 0, bits.OnesCount(uint(mask)))
		for i := range b.movers {
			if mask>>i&1 == 1 {
				who = append(who, b.movers[i])
			}
		}
		if who = each(who); toll(who) <= most {
			list = append(list, choice{who: who, cost: costOf(who), at: b.Domain})
		}
	}
	sortChoices(list)
	return list
}

func sortChoices(list []choice) {
	slices.SortStableFunc(list, func(x, y choice) int {
		return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(len(x.who), len(y.who)))
	})
}

// chooseNodes chooses who leaves a block, moves for most at most: task by task where the next
// one costs least.
func (e *Engine) chooseNodes(s *shape.Shape, b *block, movers []mover, most cluster.Milli) (chosen []mover) {
	type offer struct {
		id    int32
		extra int // GPUs of the tasks that it was chosen for
		cost  time.Duration
		who   []int
		known bool
	}
	r, missing, on := &s.Sets[0].Request, int(s.Min), e.byNode(movers)
	var nodes []offer
	part := func(id int32) inventory.Domain {
		if at, island, ok := b.Single(); ok && island && at == id {
			return b.Domain
		}
		return inventory.Domain{Level: cluster.LevelNode, ID: id}
	}
	for id := range e.st.Nodes() {
		n := &e.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) || !b.Covers(n, int32(id)) {
			continue
		}
		nodes = append(nodes, offer{id: int32(id)})
		missing -= n.FreeOn(part(int32(id)).Devices(n)) / r.GPUs
	}
	taken := make([]bool, len(movers))
	for ; missing > 0; missing-- {
		best := -1
		for k := range nodes {
			if o := &nodes[k]; !o.known {
				o.cost, o.who = e.nextTask(r.GPUs, o.id, part(o.id), o.extra, movers, on[o.id], taken)
				o.known = true
			}
			if nodes[k].cost < cluster.MaxDuration && (best < 0 || nodes[k].cost < nodes[best].cost) {
				best = k
			}
		}
		if best < 0 || toll(each(chosen)) > most {
			return nil
		}
		nodes[best].extra += r.GPUs
		nodes[best].known = false
		for _, i := range nodes[best].who {
			chosen, taken[i] = append(chosen, movers[i]), true
			for k := range nodes { // who is on several nodes leaves them all
				nodes[k].known = nodes[k].known && !holdsNodeOf(movers[i].on(), nodes[k].id)
			}
		}
	}
	if chosen = each(chosen); toll(chosen) > most {
		return nil
	}
	return chosen
}

// nextTask is what room for one more task on a node costs, and who leaves for it.
func (e *Engine) nextTask(gpus int, id int32, d inventory.Domain, extra int, movers []mover, on []int,
	taken []bool) (time.Duration, []int) {
	n := &e.st.Nodes()[id]
	need := gpus + extra - n.FreeOn(d.Devices(n))%gpus
	var left []mover
	var index []int
	for _, i := range on {
		if taken[i] {
			need -= e.gpusIn(&movers[i], d)
		} else {
			left, index = append(left, movers[i]), append(index, i)
		}
	}
	cost, who := e.cheapest(left, d, need)
	for k := range who {
		who[k] = index[who[k]]
	}
	return cost, who
}

// tryMoves places the gang in a block that some jobs leave, and them elsewhere, and notes
// that if it is the best way so far. The books are as before when it returns. Who finds
// no room is stuck.
func (e *Engine) tryMoves(h *hunt, d inventory.Domain, chosen []mover) (stuck *job.State) {
	mark := e.st.Mark()
	defer e.st.Rollback(mark)
	for i := range chosen {
		e.st.ReleaseAll(chosen[i].j.Allocs)
	}
	allocs, ok := e.find.PlaceWithin(h.r, h.j, h.s, h.s.Min, d)
	if !ok {
		return nil
	}
	allocs = slices.Clone(allocs)
	e.holdSlack(h.j, allocs, 1)
	defer e.holdSlack(h.j, allocs, -1)
	todo := slices.Clone(chosen)
	largestFirst(todo)
	return e.settle(h, allocs, nil, todo)
}

func largestFirst(movers []mover) {
	slices.SortStableFunc(movers, func(a, b mover) int {
		return cmp.Or(cmp.Compare(extentOf(b.j), extentOf(a.j)), cmp.Compare(a.j.Spec.ID, b.j.Spec.ID))
	})
}
