package engine

import "slices"

// Reclaiming: which lent nodes are given back, so that few jobs are preempted (Lyra,
// EuroSys'23). The set that preempts fewest is hard to find; the greedy one keeps jobs together
// that share nodes.

// borrower is a job on lent nodes.
type borrower struct {
	span    int // nodes on which it is, lent or not
	surplus int // tasks that it can do without
	gone    bool
}

// load is what a borrower has on one lent node: so many tasks that it could do without if it has
// the surplus, or others (tasks 0).
type load struct{ job, tasks int }

// wholeCost is what it costs to preempt a job; it divides by all numbers up to 32.
const wholeCost = 144_403_552_893_600

// lentNodes are nodes with those who are on them, in the order of the nodes' numbers.
type lentNodes struct {
	jobs  []borrower
	loads [][]load
	taken []bool
}

// reclaim chooses n nodes: those without load first, and those whose load is surplus, which
// goes, then where jobs preempted cost least, each divided by the nodes that it is on; of equal ones the first. It
// returns them in the order in which they are chosen. Who is preempted is marked gone: of these none could stay without
// there being too few nodes.
func (l *lentNodes) reclaim(n int) (back []int) {
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
		back = l.spare(j, back)
	}
	return back
}

// cost is what it costs to have a node: 0 without load, 1 if its load is surplus.
func (l *lentNodes) cost(node int) (sum int64) {
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

// vacate has everybody leave a node, and adds those that are preempted for it.
func (l *lentNodes) vacate(node int, gone []int) []int {
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

// spare lets a job stay that need not go any more, since as many nodes have become free by
// those that were preempted after it.
func (l *lentNodes) spare(job int, back []int) []int {
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
