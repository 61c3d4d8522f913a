package policy

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine/sched"
)

// drawer is a planner that draws the jobs to which it gives GPUs from pools.
type drawer struct {
	planner
	pool    func(v sched.View, j sched.JobView) (class int64, at sched.Key, ok bool)
	nothing func(j sched.JobView) sched.Target
}

// Pool implements sched.Drawer.
func (d *drawer) Pool(v sched.View, j sched.JobView) (class int64, at sched.Key, ok bool) {
	return d.pool(v, j)
}

// Nothing implements sched.Drawer.
func (d *drawer) Nothing(j sched.JobView) sched.Target { return d.nothing(j) }

// always gives all jobs in a pool the same target.
func always(t sched.Target) func(sched.JobView) sched.Target {
	return func(sched.JobView) sched.Target { return t }
}

// poolOf is a pool while a plan draws from it, with its head as a claim.
type poolOf struct {
	sched.Pool
	head   claim
	passed int // jobs passed over
}

// mostPassed bounds the cost of a plan if no job of a long pool may run.
const mostPassed = 32

// poolsOf lists the pools that are not empty.
func poolsOf(v sched.View, kinds []sched.Kind) []poolOf {
	open := v.Pools()
	list := make([]poolOf, 0, len(open))
	for i := range open {
		if j, ok := open[i].Head(); ok {
			list = append(list, poolOf{Pool: open[i], head: claimOf(v, kinds, j)})
		}
	}
	return list
}

// handOut gives GPUs to jobs in an order: first each its least, then each more. The jobs are those
// of the list and those in pools, whose order must be that of their pools; ties go to the lower
// number. A job for which may is false gets nothing. At most mostPassed such jobs are passed over
// in each pool, since later ones ask for the same but may be shorter. It returns the jobs drawn
// from pools, including those passed over, which have no tasks.
func handOut(v sched.View, list []*claim, free int, may func(c *claim, free int) bool,
	order func(a, b *claim) int) (drawn []*claim) {
	before := func(a, b *claim) int { return cmp.Or(order(a, b), cmp.Compare(a.j.Spec().ID, b.j.Spec().ID)) }
	slices.SortFunc(list, before)
	kinds := v.Kinds()
	pools := poolsOf(v, kinds)
	served := make([]*claim, 0, len(list)+len(pools))
	draw := func(i int) (more bool) {
		r := &pools[i]
		r.Draw()
		j, ok := r.Head()
		if ok {
			r.head = claimOf(v, kinds, j)
		}
		return ok
	}
	give := func(c *claim) bool {
		n, g := c.next()
		if n == 0 || g > free {
			return false
		}
		c.tasks, free = n, free-g
		return true
	}
	for next := firstPool(pools, before); len(list) > 0 || next >= 0; {
		if next < 0 || len(list) > 0 && before(list[0], &pools[next].head) < 0 {
			if c := list[0]; c.stepGPUs() > free || may(c, free) {
				give(c)
				served = append(served, c)
			}
			list = list[1:]
			continue
		}
		r := &pools[next]
		more := false
		switch c := r.head; {
		case c.stepGPUs() > free:
		case !may(&c, free):
			if r.passed++; r.passed <= mostPassed {
				drawn, more = append(drawn, &c), draw(next)
			}
		case give(&c):
			drawn, served, more = append(drawn, &c), append(served, &c), draw(next)
		}
		if !more {
			pools = slices.Delete(pools, next, next+1) // later jobs of the pool do not fit either
		}
		next = firstPool(pools, before)
	}
	for again := true; again; {
		again = false
		for _, c := range served {
			again = give(c) || again
		}
	}
	return drawn
}

// firstPool is the index of the pool whose head comes first; -1: none.
func firstPool(pools []poolOf, before func(a, b *claim) int) int {
	best := -1
	for i := range pools {
		if best < 0 || before(&pools[i].head, &pools[best].head) < 0 {
			best = i
		}
	}
	return best
}
