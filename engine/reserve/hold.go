package reserve

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/shape"
)

// Hold is a window on the nodes on which a job can start soonest as far as is known: those with the fewest busy GPUs.
// Of nodes that are held the busy GPUs only become fewer, so the choice can change only to nodes that are nearer to
// being free. What becomes free there stays free until the job fits; others still run there if they end before that.
func (b *Book) Hold(j *job.State) (Window, bool) {
	s, st := b.World.Shapes.At(j.Shape), b.World.Store
	nodes := b.leastBusy(s)
	on := b.holdersOn(nodes)
	mark := st.Mark()
	with := func(k int) (allocs []inventory.Alloc, ok bool) { // the first k nodes are empty
		st.Rollback(mark)
		for i := range k {
			for _, h := range on[i] {
				st.Release(h.a)
			}
		}
		return b.Find.Place(b.anywhere(), j, s, s.Min)
	}
	defer func() { st.Rollback(mark) }()
	least, most := 0, min(1, len(nodes))
	for ; most < len(nodes); most = min(2*most, len(nodes)) {
		if _, ok := with(most); ok {
			break
		}
		least = most
	}
	k := least + sort.Search(most-least, func(i int) bool { _, ok := with(least + i); return ok })
	allocs, ok := with(k)
	if !ok {
		return Window{}, false
	}
	w := b.windowOf(j, s, b.World.Now, allocs)
	st.Rollback(mark)
	w.Hold, w.Until = true, cluster.Never
	for i := range w.nodes {
		p := &w.nodes[i]
		n := &st.Nodes()[p.node]
		p.gpus, p.cpu, p.ram = max(0, int32(n.FreeGPUs())-p.tookGPUs), max(0, n.CPU()-p.tookCPU),
			max(0, n.RAM()-p.tookRAM)
		if at := slices.Index(nodes[:k], p.node); at >= 0 {
			w.At = max(w.At, b.freeAt(p, on[at]))
		}
	}
	return w, true
}

// leastBusy lists the nodes that suit a shape and are not held for another job, those with the fewest busy GPUs first,
// then with the least CPU in use, then as they joined.
func (b *Book) leastBusy(s *shape.Shape) (nodes []int32) {
	held := map[int32]bool{} // looked up only
	for i := range b.windows {
		for k := 0; b.windows[i].Hold && k < len(b.windows[i].nodes); k++ {
			held[b.windows[i].nodes[k].node] = true
		}
	}
	all := b.World.Store.Nodes()
	for id := range all {
		if n := &all[id]; n.TakesJobs() && s.Any.Has(n.Class()) && s.Reaches(int32(id)) && !held[int32(id)] {
			nodes = append(nodes, int32(id))
		}
	}
	busy := func(id int32) (gpus int, cpu cluster.Milli) {
		n := &all[id]
		if n.Spec().CPU > 0 {
			cpu = n.Spec().CPU - n.CPU()
		}
		return bits.OnesCount64(n.Healthy()) - int(n.FreeGPUs()), cpu
	}
	slices.SortStableFunc(nodes, func(x, y int32) int {
		gx, cx := busy(x)
		gy, cy := busy(y)
		return cmp.Or(cmp.Compare(gx, gy), cmp.Compare(cx, cy))
	})
	return nodes
}

// holder is an allocation of a job that holds devices.
type holder struct {
	j *job.State
	a *inventory.Alloc
}

// holdersOn lists what jobs hold of some nodes, by the nodes' places in the list.
func (b *Book) holdersOn(nodes []int32) [][]holder {
	at, on := make([]int32, len(b.World.Store.Nodes())), make([][]holder, len(nodes))
	for i, id := range nodes {
		at[id] = int32(i) + 1
	}
	b.Around.Running().Walk(func(it order.Item) bool {
		j := b.Around.Jobs()[it.ID]
		for i := range j.Allocs {
			if k := at[j.Allocs[i].Node]; k > 0 {
				on[k-1] = append(on[k-1], holder{j, &j.Allocs[i]})
			}
		}
		return true
	})
	return on
}

// freeAt is the earliest instant at which a node can have the GPUs that a hold takes there, if jobs of which no end is
// known end at once, and the others when they are expected to.
func (b *Book) freeAt(p *portion, on []holder) cluster.Time {
	now, n := b.World.Now, &b.World.Store.Nodes()[p.node]
	lacks := int(p.tookGPUs) - int(n.FreeGPUs())
	type end struct {
		at   cluster.Time
		gpus int
	}
	var ends []end
	for _, h := range on {
		if h.a.Share > 0 || h.a.Beside || n.CPU() < p.tookCPU || n.RAM() < p.tookRAM {
			return now
		}
		gpus, at := bits.OnesCount64(h.a.GPUs), b.World.EndOf(h.j)
		if OutOfSight(now, at) {
			lacks -= gpus
			continue
		}
		ends = append(ends, end{at, gpus})
	}
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
	for i := 0; i < len(ends) && lacks > 0; i++ {
		if lacks -= ends[i].gpus; lacks <= 0 {
			return ends[i].at
		}
	}
	return now
}

// HeldSince is from when on nodes may be held for a job.
func (b *Book) HeldSince(j *job.State) cluster.Time { return j.StarvingSince.Add(b.HoldAfter) }

// HoldDue reports whether a job has been in line for so long that nodes may be held for it.
func (b *Book) HoldDue(j *job.State) bool { return b.HoldAfter > 0 && b.HeldSince(j) <= b.World.Now }
