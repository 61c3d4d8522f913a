package defrag

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/shape"
)

// block is where a gang could be: a domain of a topology level, or anywhere.
type block struct {
	inventory.Domain
	movers []Mover       // that hold devices there, by cost
	least  time.Duration // they cost at least, where that is known
}

const (
	exactMovers = 8  // of so many in a block every choice is tried
	mostBlocks  = 64 // so many are tried, the cheapest first
)

// vacateAny looks for the cheapest way among blocks.
func (f *Finder) vacateAny(h *search, blocks []block) {
	for i := range blocks[:min(len(blocks), mostBlocks)] {
		b := &blocks[i]
		if h.best != nil && b.least > h.best.cost {
			break
		}
		f.vacate(h, b)
	}
}

// blocks lists where the gang could be, the cheapest first as far as is known.
func (f *Finder) blocks(s *shape.Shape, movers []Mover) (list []block) {
	level := cluster.LevelNode
	switch {
	case s.Topo.Required && s.Topo.Level != cluster.LevelAny && (s.Min > 1 || s.Topo.Level == cluster.LevelNVLink):
		level = s.Topo.Level
	case s.Min > 1:
		level = cluster.LevelAny
	}
	at := map[inventory.Domain]int{} // looked up only
	movers = f.gather(movers)
	on := f.byNode(movers)
	add := func(id int32, d inventory.Domain) {
		k, ok := at[d]
		if !ok {
			k = len(list)
			at[d] = k
			list = append(list, block{Domain: d})
		}
		b := &list[k]
		for _, i := range on[id] {
			if f.gpusIn(&movers[i], d) > 0 &&
				!(len(movers[i].on()) > 1 &&
					slices.ContainsFunc(b.movers, func(m Mover) bool { return m.Job == movers[i].Job })) {
				b.movers = append(b.movers, movers[i])
			}
		}
	}
	for id := range f.st.Nodes() {
		n := &f.st.Nodes()[id]
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
		f.priceBlock(s, &list[i])
	}
	list = slices.DeleteFunc(list, func(b block) bool { return len(b.movers) == 0 || b.least == cluster.MaxDuration })
	slices.SortStableFunc(list, func(a, b block) int { return cmp.Compare(a.least, b.least) })
	return list
}

// byNode lists for each node the movers that hold devices there, by index.
func (f *Finder) byNode(movers []Mover) [][]int {
	on := make([][]int, len(f.st.Nodes()))
	for i := range movers {
		for _, a := range movers[i].on() {
			if l := on[a.Node]; len(l) == 0 || l[len(l)-1] != i {
				on[a.Node] = append(l, i)
			}
		}
	}
	return on
}

// priceBlock sorts the movers of a block by cost. Within one node it is known what room there costs at least
// (MaxDuration: there cannot be any).
func (f *Finder) priceBlock(s *shape.Shape, b *block) {
	slices.SortStableFunc(b.movers, func(x, y Mover) int { return cmp.Compare(x.cost, y.cost) })
	if id, _, ok := b.Single(); ok {
		n := &f.st.Nodes()[id]
		b.least, _ = f.cheapest(portions(b.movers), b.Domain, s.GPUs-n.FreeOn(b.Devices(n)))
	}
}

// gpusIn counts the GPUs in a domain that are free when a mover leaves.
func (f *Finder) gpusIn(v *Mover, d inventory.Domain) (k int) {
	on := v.on()
	for i := range on {
		a := &on[i]
		if n := &f.st.Nodes()[a.Node]; d.Covers(n, a.Node) {
			k += bits.OnesCount64(a.GPUs & d.Devices(n))
		}
	}
	return k
}

// cheapest chooses the jobs of least cost that together hold at least so many GPUs
// in a domain: the knapsack, exactly. MaxDuration: they do not.
func (f *Finder) cheapest(movers []Mover, d inventory.Domain, gpus int) (cost time.Duration, chosen []int) {
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
		w := f.gpusIn(&movers[i], d)
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
func (f *Finder) vacate(h *search, b *block) {
	if _, _, ok := b.Single(); ok && len(b.movers) <= exactMovers {
		for _, c := range f.choices(h.s.GPUs, b, h.most, false) { // the cheapest first
			if !h.better(c.cost, len(c.movers)) {
				return
			}
			f.tryMoves(h, b.Domain, c.movers)
		}
		return
	}
	f.tryWithout(h, b.Domain, b.movers, func(movers []Mover) []Mover { return f.chooseNodes(h.s, b, movers, h.most) })
}

// choice is jobs that may leave a block together.
type choice struct {
	movers []Mover
	cost   time.Duration
	at     inventory.Domain
}

// choices lists the sets of movers whose departure from a block within one node leaves so many GPUs free, moves for
// most at most, the cheapest first; least: without those of which one need not leave.
func (f *Finder) choices(gpus int, b *block, most cluster.Milli, least bool) (list []choice) {
	at, _, _ := b.Single()
	free := f.st.Nodes()[at].FreeOn(b.Devices(&f.st.Nodes()[at]))
	held := make([]int, len(b.movers))
	for i := range b.movers {
		held[i] = f.gpusIn(&b.movers[i], b.Domain)
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
		leavers := make([]Mover, 0, bits.OnesCount(uint(mask)))
		for i := range b.movers {
			if mask>>i&1 == 1 {
				leavers = append(leavers, b.movers[i])
			}
		}
		if leavers = each(leavers); toll(leavers) <= most {
			list = append(list, choice{movers: leavers, cost: costOf(leavers), at: b.Domain})
		}
	}
	sortChoices(list)
	return list
}

func sortChoices(list []choice) {
	slices.SortStableFunc(list, func(x, y choice) int {
		return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(len(x.movers), len(y.movers)))
	})
}

// chooseNodes chooses the movers that leave a block, moves for most at most: task by task where the next one costs
// least.
func (f *Finder) chooseNodes(s *shape.Shape, b *block, movers []Mover, most cluster.Milli) (chosen []Mover) {
	type offer struct {
		id     int32
		extra  int // GPUs of the tasks that it was chosen for
		cost   time.Duration
		movers []int
		known  bool
	}
	r, missing, on := &s.Sets[0].Request, int(s.Min), f.byNode(movers)
	var nodes []offer
	part := func(id int32) inventory.Domain {
		if at, island, ok := b.Single(); ok && island && at == id {
			return b.Domain
		}
		return inventory.Domain{Level: cluster.LevelNode, ID: id}
	}
	for id := range f.st.Nodes() {
		n := &f.st.Nodes()[id]
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
				o.cost, o.movers = f.nextTask(r.GPUs, o.id, part(o.id), o.extra, movers, on[o.id], taken)
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
		for _, i := range nodes[best].movers {
			chosen, taken[i] = append(chosen, movers[i]), true
			for k := range nodes { // a mover on several nodes leaves them all
				nodes[k].known = nodes[k].known && !inventory.OnNode(movers[i].on(), nodes[k].id)
			}
		}
	}
	if chosen = each(chosen); toll(chosen) > most {
		return nil
	}
	return chosen
}

// nextTask is what room for one more task on a node costs, and which movers leave for it, by index.
func (f *Finder) nextTask(gpus int, id int32, d inventory.Domain, extra int, movers []Mover, on []int,
	taken []bool) (time.Duration, []int) {
	n := &f.st.Nodes()[id]
	need := gpus + extra - n.FreeOn(d.Devices(n))%gpus
	var left []Mover
	var index []int
	for _, i := range on {
		if taken[i] {
			need -= f.gpusIn(&movers[i], d)
		} else {
			left, index = append(left, movers[i]), append(index, i)
		}
	}
	cost, leavers := f.cheapest(left, d, need)
	for k := range leavers {
		leavers[k] = index[leavers[k]]
	}
	return cost, leavers
}
