package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// Compaction: while nobody waits for room, jobs are moved off nodes that
// others have room for, so that whole nodes are empty: for gangs to come, to be
// switched off or partitioned anew. Nodes that are empty stay so: the number of nodes
// in use falls with each one that is emptied.

// Compact is what nodes are emptied for.
type Compact uint8

// The gains, in GPU time up to the horizon, if who runs ends when that is expected and
// nobody comes.
const (
	NoCompact  Compact = iota // nodes are not emptied
	UsableGPUs                // of free GPUs, as far as they are of use to the tasks submitted last (FGD, ATC'23)
	EmptyNodes                // of the GPUs of nodes on which nobody is
)

// ParseCompact reads what nodes are emptied for.
func ParseCompact(s string) (Compact, error) {
	v, err := job.ParseName("gain to empty nodes for", s, compactNames)
	return Compact(v), err
}

// stay is how long a job is expected to hold part of a node.
type stay struct {
	job    cluster.JobID
	end    cluster.Time
	allocs []inventory.Alloc // on that node
}

// emptying is a node that could be emptied.
type emptying struct {
	node   int32
	movers []mover
	cost   time.Duration
	top    time.Duration // so much is gained at most: where they go nothing is
}

// compaction is what is known of a cluster whose nodes might be emptied.
type compaction struct {
	by    Compact
	until cluster.Time
	stays [][]stay        // by node
	value []time.Duration // by node, as they are
}

// compact empties nodes, if that is wanted in this pass and nobody waits for room.
func (e *Engine) compact(short bool) {
	d := &e.defrag
	if d.compacting == NoCompact {
		return
	}
	text := e.unmovable()
	if short {
		text = "no node is emptied while somebody waits for room"
	}
	for made := false; ; made = true {
		m := Moves{Job: cluster.NoJob, Without: cluster.Never, Start: cluster.Never, Weight: 1000, Text: text}
		var way *relocation
		if text == "" {
			m, way = e.planEmptying(m)
		}
		if way == nil && made {
			return
		}
		goes := way != nil && m.Worth
		e.spare(&m)
		if goes = goes && (m.Worth || d.look); goes {
			// also where somebody only looks: the next node is seen as it is then
			e.sendOff(way.movers, nil, cluster.NoJob)
		}
		m.Made = goes && !d.look
		if d.seen = append(d.seen, m); !goes {
			return
		}
	}
}

// planEmptying finds the node whose emptying gains most above its cost, or says why
// there is none.
func (e *Engine) planEmptying(m Moves) (Moves, *relocation) {
	left := e.movesLeft()
	if left <= 0 {
		m.Text = e.onTheWay()
		return m, nil
	}
	movers, kept := e.movable(cluster.Critical)
	// they would grow back onto the node
	movers = slices.DeleteFunc(movers, func(m mover) bool { return e.stretches(m.j) })
	c := e.lookAround(e.defrag.compacting)
	list := e.emptyable(c, movers, left)
	var best *relocation
	var gain time.Duration
	var from int32
	for i := range list[:min(len(list), mostBlocks)] {
		x := &list[i]
		if best != nil && x.top-x.cost <= gain-best.cost {
			break
		}
		if way, g := e.tryEmptying(c, x); way != nil && (best == nil || g-way.cost > gain-best.cost) {
			best, gain, from = way, g, x.node
		}
	}
	if best == nil {
		m.Text = fmt.Sprintf("no node can be emptied by up to %g moves to others in use",
			float64(left)/float64(cluster.Whole)) + kept
		return m, nil
	}
	n := &e.st.Nodes()[from]
	m.Empties, m.GPUs, m.Cost, m.Benefit = n.Spec().Name, n.Spec().GPUs, best.cost, max(0, gain)
	for i := range best.movers {
		m.Moves = append(m.Moves, e.moveOf(&best.movers[i]))
	}
	if m.Worth = m.Benefit > m.Cost; !m.Worth {
		m.Text = fmt.Sprintf("not worth it: %s of GPU time are lost for %s", gpuTime(m.Cost), gpuTime(m.Benefit))
	}
	return m, best
}

// lookAround collects who is where, and what each node is worth as it is.
func (e *Engine) lookAround(by Compact) *compaction {
	c := &compaction{by: by, until: e.w.Now.Add(e.defrag.Horizon), stays: make([][]stay, len(e.st.Nodes()))}
	e.byKey().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		c.add(v.Spec.ID, v.Allocs, e.endOf(v))
		return true
	})
	for _, id := range e.defrag.movers {
		v := e.jobs[id]
		c.add(id, v.Dest, e.w.Now.Add(v.ExpectedRun(e.limitOf(v))))
	}
	for id := range e.st.Nodes() {
		c.value = append(c.value, e.valueOf(c, int32(id), slices.Clone(c.stays[id])))
	}
	return c
}

// add notes that a job is on nodes until an instant.
func (c *compaction) add(id cluster.JobID, allocs []inventory.Alloc, end cluster.Time) {
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

// valueOf is what a node is worth up to the horizon, in GPU time, if those who hold it
// in the books end as expected. It sorts them.
func (e *Engine) valueOf(c *compaction, id int32, stays []stay) time.Duration {
	n := &e.st.Nodes()[id]
	if !n.TakesJobs() {
		return 0
	}
	slices.SortStableFunc(stays, func(a, b stay) int { return cmp.Compare(a.end, b.end) })
	d := e.find.Demand()
	e.st.Memory().Fresh(d, len(e.st.Nodes()))
	mark, at, sum := e.st.Mark(), e.w.Now, int64(0)
	for i := 0; ; i++ {
		end := c.until
		if i < len(stays) {
			end = min(c.until, max(at, stays[i].end))
		}
		milli := cluster.Milli(0)
		switch f := e.st.Usable(int(id), d); {
		case c.by == EmptyNodes && i == len(stays), c.by == UsableGPUs && d.Weight == 0:
			milli = f.Free()
		case c.by == UsableGPUs:
			milli = f.Usable() / d.Weight
		}
		sum += milli * int64(end.Sub(at)/time.Millisecond)
		if at = end; i == len(stays) {
			break
		}
		e.st.ReleaseAll(stays[i].allocs)
	}
	e.st.Rollback(mark)
	return times(time.Microsecond, min(sum, math.MaxInt64/int64(time.Microsecond))) // milli-GPU x ms
}

// emptyable lists the nodes whose jobs may all be moved, by what emptying them can gain
// at most.
func (e *Engine) emptyable(c *compaction, movers []mover, most cluster.Milli) (list []emptying) {
	for id, on := range e.byNode(movers) {
		n := &e.st.Nodes()[id]
		if len(on) == 0 || len(on) != len(c.stays[id]) || !n.TakesJobs() || len(n.Stopping()) > 0 || n.Frozen() > 0 {
			continue
		}
		x, mark := emptying{node: int32(id)}, e.st.Mark()
		for _, i := range on {
			x.movers = append(x.movers, movers[i])
			x.cost += movers[i].cost
			e.st.ReleaseAll(movers[i].j.Allocs)
		}
		if toll(x.movers) > most {
			e.st.Rollback(mark)
			continue
		}
		for _, i := range nodesLeft(x.movers) {
			x.top += e.valueOf(c, i, c.without(i, x.movers)) - c.value[i]
		}
		e.st.Rollback(mark)
		list = append(list, x)
	}
	slices.SortStableFunc(list, func(a, b emptying) int { return cmp.Compare(b.top-b.cost, a.top-a.cost) })
	return list
}

// nodesLeft lists the nodes on which some jobs are, in order.
func nodesLeft(movers []mover) (list []int32) {
	for i := range movers {
		for k := range movers[i].j.Allocs {
			list = append(list, movers[i].j.Allocs[k].Node)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// without is who is on a node besides some jobs.
func (c *compaction) without(id int32, movers []mover) (list []stay) {
	for _, s := range c.stays[id] {
		if !slices.ContainsFunc(movers, func(m mover) bool { return m.j.Spec.ID == s.job }) {
			list = append(list, s)
		}
	}
	return list
}

// tryEmptying finds room for the jobs of a node on others in use, the largest job
// first, and says what is gained then. The books are as before when it returns.
func (e *Engine) tryEmptying(c *compaction, x *emptying) (*relocation, time.Duration) {
	mark := e.st.Mark()
	defer e.st.Rollback(mark)
	e.hideIdle(c, x.node)
	way := &relocation{movers: slices.Clone(x.movers), cost: x.cost}
	for i := range way.movers {
		e.st.ReleaseAll(way.movers[i].j.Allocs)
	}
	largestFirst(way.movers)
	r := e.anywhere()
	r.Avoid = &e.keepOff
	after := compaction{stays: make([][]stay, len(e.st.Nodes()))}
	for _, id := range nodesLeft(way.movers) {
		after.stays[id] = c.without(id, way.movers)
	}
	changed := nodesLeft(way.movers)
	for i := range way.movers {
		m, ok := &way.movers[i], false
		if m.dest, ok = e.destination(r, m.j); !ok {
			return nil, 0
		}
		for k := range m.dest {
			if id := m.dest[k].Node; !slices.Contains(changed, id) {
				changed = append(changed, id)
				after.stays[id] = slices.Clone(c.stays[id])
			}
		}
		after.add(m.j.Spec.ID, m.dest, e.endOf(m.j).Add(m.stop+m.j.Spec.Checkpoint.Restart+m.lost))
	}
	gain := time.Duration(0)
	for _, id := range changed {
		gain += e.valueOf(c, id, after.stays[id]) - c.value[id]
	}
	return way, gain
}

// hideIdle marks as to be avoided a node, and those on which nobody is or from
// which somebody is still leaving.
func (e *Engine) hideIdle(c *compaction, node int32) {
	y := &e.keepOff
	y.Reset(len(e.st.Nodes()))
	for id := range c.stays {
		if int32(id) == node || len(c.stays[id]) == 0 || len(e.st.Nodes()[id].Stopping()) > 0 {
			y.Avoid(int32(id), true)
		}
	}
}
