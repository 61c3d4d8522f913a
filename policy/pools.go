package policy

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine/sched"
)

// drawer is a planner that draws from pools whom it gives something.
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

// always is the same target for everybody in a pool.
func always(t sched.Target) func(sched.JobView) sched.Target {
	return func(sched.JobView) sched.Target { return t }
}

// poolOf is a pool while a plan draws from it, with its head as a claim.
type poolOf struct {
	sched.Pool
	head   claim
	passed int // so many were passed over
}

// mostPassed bounds what a plan costs where nobody of a long pool may run.
const mostPassed = 32

// poolsOf lists the pools from which a plan may draw.
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

// handOut gives GPUs to jobs in an order: each its least, then each more. They are those
// of the list and those in pools, which the order has as their pools do; of equals the lower
// number comes first; who may not gets nothing. In each pool mostPassed at most who may not are
// passed over, since others may, which ask for the same but take less long. Who is drawn from a pool is
// returned, too, those included that were passed over: they have no tasks.
func handOut(v sched.View, list []*claim, free int, may func(c *claim, free int) bool, order func(a, b *claim) int) (drawn []*claim) {
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
			pools = slices.Delete(pools, next, next+1) // who comes later in it finds no more
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

// firstPool is the pool whose head comes first; -1: there is none.
func firstPool(pools []poolOf, before func(a, b *claim) int) int {
	best := -1
	for i := range pools {
		if best < 0 || before(&pools[i].head, &pools[best].head) < 0 {
			best = i
		}
	}
	return best
}
