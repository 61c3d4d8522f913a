// Package preempt chooses which jobs leave for which. It decides nothing else: the engine tells them to.
package preempt

import (
	"slices"

	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
)

// Reclaiming: which lent nodes are given back, so that few jobs are preempted (Lyra,
// EuroSys'23). The set that preempts fewest is hard to find; the greedy one keeps jobs together
// that share nodes.

// borrower is a job on lent nodes.
type borrower struct {
	span    int // nodes on which it is, lent or not
	surplus int // tasks that it can do without
	gone    bool
}

// load is what a borrower has on one lent node: tasks that it can do without as far as it has a surplus; 0: it
// cannot do without what it has there.
type load struct{ job, tasks int }

// wholeCost is what it costs to preempt a job; it divides by all numbers up to 32.
const wholeCost = 144_403_552_893_600

// Lent is nodes of a loan with the jobs on them.
type Lent struct {
	nodes []int32 // ascending
	jobs  []borrower
	loads [][]load // by index of the node
	taken []bool   // likewise
}

// NewLent is lent nodes, by number, without jobs.
func NewLent(nodes []int32) *Lent { return &Lent{nodes: nodes, loads: make([][]load, len(nodes))} }

// Add adds what a job of a shape has on the nodes; false: nothing. Without a shape it leaves with all that it has.
func (l *Lent) Add(j *job.State, s *shape.Shape) (found bool) {
	var on []int32
	number := len(l.jobs)
	shrinks := s != nil && j.State == job.Running && !j.Resizing && s.Min < s.Max
	for i := range j.Allocs {
		a := &j.Allocs[i]
		if !slices.Contains(on, a.Node) {
			on = append(on, a.Node)
		}
		at, ok := slices.BinarySearch(l.nodes, a.Node)
		if !ok {
			continue
		}
		found = true
		loads := l.loads[at]
		tasks := int(a.Tasks)
		if !shrinks || a.Set != 0 || a.Share != 0 && s.Sets[0].Request.GPUs > 1 {
			tasks = 0
		}
		switch last := len(loads) - 1; {
		case last < 0 || loads[last].job != number:
			l.loads[at] = append(loads, load{number, tasks})
		case tasks == 0 || loads[last].tasks == 0:
			loads[last].tasks = 0
		default:
			loads[last].tasks += tasks
		}
	}
	if found {
		b := borrower{span: len(on)}
		if shrinks {
			b.surplus = int(j.Tasks - s.Min)
		}
		l.jobs = append(l.jobs, b)
	}
	return found
}

// Reclaim chooses n nodes to give back, by number, in the order in which they are chosen.
func (l *Lent) Reclaim(n int) (back []int32) {
	for _, i := range l.reclaim(n) {
		back = append(back, l.nodes[i])
	}
	return back
}

// Preempted reports whether the i-th job that was added leaves all of its nodes.
func (l *Lent) Preempted(i int) bool { return l.jobs[i].gone }

// reclaim chooses n nodes, by index: those without load first, then those whose load is surplus, then where preempting
// costs least, a job's cost divided by the number of its nodes; of equal ones the first. It marks the preempted jobs
// gone: none of them could stay without too few nodes becoming free.
func (l *Lent) reclaim(n int) (back []int) {
	l.taken = make([]bool, len(l.loads))
	var gone []int
	for len(back) < n {
		best, least := -1, int64(0)
		for i := range l.loads {
			if l.taken[i] {
				continue
			}
			if cost := l.cost(i); best < 0 || cost < least {
				best, least = i, cost
			}
		}
		if best < 0 {
			break
		}
		l.taken[best] = true
		back = append(back, best)
		gone = l.vacate(best, gone)
	}
	for _, j := range gone {
		back = l.retain(j, back)
	}
	return back
}

// cost is what it costs to have a node: 0 without load, 1 if its load is surplus.
func (l *Lent) cost(node int) (sum int64) {
	for _, x := range l.loads[node] {
		switch b := &l.jobs[x.job]; {
		case b.gone:
		case x.tasks > 0 && x.tasks <= b.surplus:
			sum = max(sum, 1)
		default:
			sum += wholeCost / int64(b.span)
		}
	}
	return sum
}

// vacate has all jobs leave a node, and appends those that are preempted for it to gone.
func (l *Lent) vacate(node int, gone []int) []int {
	loads := l.loads[node]
	l.loads[node] = nil
	for _, x := range loads {
		switch b := &l.jobs[x.job]; {
		case b.gone:
			l.loads[node] = append(l.loads[node], x)
		case x.tasks > 0 && x.tasks <= b.surplus:
			b.surplus -= x.tasks
			b.span--
		default:
			b.gone = true
			gone = append(gone, x.job)
			l.loads[node] = append(l.loads[node], x)
		}
	}
	return gone
}

// retain lets a preempted job stay if as many nodes as it was to leave have become free by those preempted after it.
func (l *Lent) retain(job int, back []int) []int {
	on := func(node int) bool {
		return slices.ContainsFunc(l.loads[node], func(x load) bool { return x.job == job })
	}
	var lost, free []int
	for i := range l.loads {
		switch {
		case l.taken[i] && on(i):
			lost = append(lost, i)
		case !l.taken[i] && !on(i) && l.cost(i) == 0:
			free = append(free, i)
		}
	}
	if len(free) < len(lost) {
		return back
	}
	l.jobs[job].gone = false
	for k, i := range lost {
		l.taken[i], l.taken[free[k]] = false, true
		back[slices.Index(back, i)] = free[k]
	}
	return back
}
