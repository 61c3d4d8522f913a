package defrag

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/placement"
)

// stay is how long a job is expected to hold part of a node.
type stay struct {
	job    cluster.JobID
	end    cluster.Time
	allocs []inventory.Alloc // on that node
}

// emptying is a node that could be emptied.
type emptying struct {
	node   int32
	movers []Mover
	cost   time.Duration
	top    time.Duration // so much is gained at most: where they go nothing is
}

// Compaction is what is known of a cluster whose nodes might be emptied.
type Compaction struct {
	by    Compact
	until cluster.Time
	stays [][]stay        // by node
	value []time.Duration // by node, as they are
}

// Compaction is one for a gain up to an instant, without jobs.
func (f *Finder) Compaction(by Compact, until cluster.Time) *Compaction {
	return &Compaction{by: by, until: until, stays: make([][]stay, len(f.st.Nodes()))}
}

// Add notes that a job is on nodes until an instant.
func (c *Compaction) Add(id cluster.JobID, allocs []inventory.Alloc, end cluster.Time) {
	for i := range allocs {
		a := &allocs[i]
		l := c.stays[a.Node]
		if k := len(l); k == 0 || l[k-1].job != id {
			l = append(l, stay{job: id, end: end})
		}
		l[len(l)-1].allocs = append(l[len(l)-1].allocs, *a)
		c.stays[a.Node] = l
	}
}

// valueOf is what a node is worth up to the horizon, in GPU time, if the jobs on it end as expected. It sorts them.
func (f *Finder) valueOf(c *Compaction, id int32, stays []stay) time.Duration {
	n := &f.st.Nodes()[id]
	if !n.TakesJobs() {
		return 0
	}
	slices.SortStableFunc(stays, func(a, b stay) int { return cmp.Compare(a.end, b.end) })
	d := f.places.Demand()
	f.st.Memory().Fresh(d, len(f.st.Nodes()))
	mark, at, sum := f.st.Mark(), f.world.Now, int64(0)
	for i := 0; ; i++ {
		end := c.until
		if i < len(stays) {
			end = min(c.until, max(at, stays[i].end))
		}
		milli := cluster.Milli(0)
		switch u := f.st.Usable(int(id), d); {
		case c.by == EmptyNodes && i == len(stays), c.by == UsableGPUs && d.Weight == 0:
			milli = u.Free()
		case c.by == UsableGPUs:
			milli = u.Usable() / d.Weight
		}
		sum += milli * int64(end.Sub(at)/time.Millisecond)
		if at = end; i == len(stays) {
			break
		}
		f.st.ReleaseAll(stays[i].allocs)
	}
	f.st.Rollback(mark)
	return times(time.Microsecond, min(sum, math.MaxInt64/int64(time.Microsecond))) // milli-GPU x ms
}

// Empty finds the node whose emptying gains most above its cost, by moves for most at most, and writes that down; nil:
// there is none.
func (f *Finder) Empty(m *Moves, c *Compaction, movers []Mover, most cluster.Milli) (best *Relocation) {
	for id := range f.st.Nodes() {
		c.value = append(c.value, f.valueOf(c, int32(id), slices.Clone(c.stays[id])))
	}
	list := f.emptyable(c, movers, most)
	var gain time.Duration
	var from int32
	for i := range list[:min(len(list), mostBlocks)] {
		x := &list[i]
		if best != nil && x.top-x.cost <= gain-best.cost {
			break
		}
		if way, g := f.tryEmptying(c, x); way != nil && (best == nil || g-way.cost > gain-best.cost) {
			best, gain, from = way, g, x.node
		}
	}
	if best == nil {
		return nil
	}
	n := f.st.Nodes()[from].Spec()
	m.Empties, m.GPUs, m.Cost, m.Benefit = n.Name, n.GPUs, best.cost, max(0, gain)
	for i := range best.Movers {
		m.Moves = append(m.Moves, f.moveOf(&best.Movers[i]))
	}
	m.weigh()
	return best
}

// emptyable lists the nodes whose jobs may all be moved, by what emptying them can gain
// at most.
func (f *Finder) emptyable(c *Compaction, movers []Mover, most cluster.Milli) (list []emptying) {
	for id, on := range f.byNode(movers) {
		n := &f.st.Nodes()[id]
		if len(on) == 0 || len(on) != len(c.stays[id]) || !n.TakesJobs() || len(n.Stopping()) > 0 || n.Frozen() > 0 {
			continue
		}
		x, mark := emptying{node: int32(id)}, f.st.Mark()
		for _, i := range on {
			x.movers = append(x.movers, movers[i])
			x.cost += movers[i].cost
			f.st.ReleaseAll(movers[i].Job.Allocs)
		}
		if toll(x.movers) > most {
			f.st.Rollback(mark)
			continue
		}
		for _, i := range nodesLeft(x.movers) {
			x.top += f.valueOf(c, i, c.without(i, x.movers)) - c.value[i]
		}
		f.st.Rollback(mark)
		list = append(list, x)
	}
	slices.SortStableFunc(list, func(a, b emptying) int { return cmp.Compare(b.top-b.cost, a.top-a.cost) })
	return list
}

// nodesLeft lists the nodes on which some jobs are, in order.
func nodesLeft(movers []Mover) (list []int32) {
	for i := range movers {
		for k := range movers[i].Job.Allocs {
			list = append(list, movers[i].Job.Allocs[k].Node)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// without is the stays on a node but those of some jobs.
func (c *Compaction) without(id int32, movers []Mover) (list []stay) {
	for _, s := range c.stays[id] {
		if !slices.ContainsFunc(movers, func(m Mover) bool { return m.Job.Spec.ID == s.job }) {
			list = append(list, s)
		}
	}
	return list
}

// tryEmptying finds room for the jobs of a node on others in use, the largest job
// first, and says what is gained then. The books are as before when it returns.
func (f *Finder) tryEmptying(c *Compaction, x *emptying) (*Relocation, time.Duration) {
	mark := f.st.Mark()
	defer f.st.Rollback(mark)
	f.hideIdle(c, x.node)
	way := &Relocation{Movers: slices.Clone(x.movers), cost: x.cost}
	for i := range way.Movers {
		f.st.ReleaseAll(way.Movers[i].Job.Allocs)
	}
	largestFirst(way.Movers)
	r := placement.Request{In: f.st, Placer: f.Placer}
	r.Avoid = &f.avoid
	after := Compaction{stays: make([][]stay, len(f.st.Nodes()))}
	for _, id := range nodesLeft(way.Movers) {
		after.stays[id] = c.without(id, way.Movers)
	}
	changed := nodesLeft(way.Movers)
	for i := range way.Movers {
		m, ok := &way.Movers[i], false
		if m.Dest, ok = f.destination(r, m.Job); !ok {
			return nil, 0
		}
		for k := range m.Dest {
			if id := m.Dest[k].Node; !slices.Contains(changed, id) {
				changed = append(changed, id)
				after.stays[id] = slices.Clone(c.stays[id])
			}
		}
		delay := m.stop + m.Job.Spec.Checkpoint.Restart + m.lost
		after.Add(m.Job.Spec.ID, m.Dest, m.Job.ExpectedEnd(f.world.Now).Add(delay))
	}
	gain := time.Duration(0)
	for _, id := range changed {
		gain += f.valueOf(c, id, after.stays[id]) - c.value[id]
	}
	return way, gain
}

// hideIdle marks as to be avoided a node, and those without jobs or from which a job is still leaving.
func (f *Finder) hideIdle(c *Compaction, node int32) {
	y := &f.avoid
	y.Reset(len(f.st.Nodes()))
	for id := range c.stays {
		if int32(id) == node || len(c.stays[id]) == 0 || len(f.st.Nodes()[id].Stopping()) > 0 {
			y.Avoid(int32(id), true)
		}
	}
}
