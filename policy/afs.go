package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var afs = Info{
	Name: "afs",
	About: "elastic jobs share the GPUs: each goes to the job that gains most from it now, weighing which job would end " +
		"first against which speeds up more (AFS-L); without estimates all count as equally long (AFS-P)",
	Source: "AFS-L: Elastic Resource Sharing for Distributed Deep Learning (NSDI'21)",
	Needs:  "elastic jobs (min..max tasks); run times for AFS-L; speeds by size, else they are taken as linear",
	Trials: []Trial{{Given: Elastic | Short}},
	Knobs: []Knob{{"round", "0s",
		"plan at multiples of this only, so that jobs are resized less often; 0s: whenever a job comes or ends"}},
	New: func(k *Knobs) sched.Policy {
		return &planner{name: k.label(), plan: afsPlan,
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Round: k.round(), Anywhere: true}}
	},
}

// round reads the knob "round": the interval between plans; 0: none.
func (k *Knobs) round() time.Duration {
	d := k.duration("round", 0)
	if d > 0 && d < time.Second {
		k.check(cluster.Unknown("round", k.text("round"), []string{"0s", "1s or more"}))
	}
	return d
}

// afsPlan hands out the GPUs one size step at a time. The comparison is not transitive: as in the
// paper's algorithm, the next step goes to the job left over after comparing all in turn. Of the
// jobs that have nothing yet only the shortest takes part: it wins against each of the others.
func afsPlan(v sched.View, jobs []sched.JobView) sched.Plan {
	list := claims(v, jobs)
	afsSizes(v, list, keep(list, totalGPUs(v)))
	return elasticPlan(v, list, cluster.Never)
}

// taker is a candidate for the next step with the figures by which it is compared. They change only
// when it gets a step; there are as many comparisons as GPUs times takers.
type taker struct {
	c      *claim
	gpus   int     // of its next step
	length float64 // remaining time at its present size
	before float64 // gain per GPU of the next step, relative to the speed before it
	after  float64 // ... and after it
}

// takes makes a taker of a claim; false: there is no next step.
func (c *claim) takes(v sched.View) (t taker, ok bool) {
	n, gpus := c.next()
	if n == 0 {
		return t, false
	}
	after, gain := c.gain(v)
	t = taker{c: c, gpus: gpus, length: c.length(v), after: gain / after}
	if c.tasks > 0 {
		t.before = gain / c.speed(v, c.tasks)
	}
	return t, true
}

// afsSizes gives the GPUs to claims that have nothing yet; the others keep what they have.
func afsSizes(v sched.View, list []claim, free int) {
	idle := shortestFirst(list)
	var served []taker // has something and can grow, in the order of their first step
	widest := 0        // the largest step among served
	for free > 0 {
		for len(idle) > 0 && idle[0].stepGPUs() > free {
			idle = idle[1:] // free never rises
		}
		if widest > free {
			served = slices.DeleteFunc(served, func(t taker) bool { return t.gpus > free })
			widest = free
		}
		best, most := -1, taker{}
		if len(idle) > 0 && len(served) > 0 {
			most, _ = idle[0].takes(v)
		} else if len(idle) > 0 {
			most = taker{c: idle[0], gpus: idle[0].stepGPUs()} // without competition
		}
		for i := range served {
			if most.c == nil || served[i].rather(&most) {
				best, most = i, served[i]
			}
		}
		if most.c == nil {
			return
		}
		most.c.tasks, _ = most.c.next()
		free -= most.gpus
		t, ok := most.c.takes(v)
		switch {
		case best < 0:
			if idle = idle[1:]; ok {
				served = append(served, t)
			}
		case ok:
			served[best] = t
		default:
			served = slices.Delete(served, best, best+1)
		}
		widest = max(widest, t.gpus)
	}
}

// rather reports whether y, which has something, gets the next GPUs rather than x. The gain of the
// longer job is relative to its speed after the step, that of the shorter job to its speed before:
// the asymmetry is the paper's. A step of several GPUs counts by its gain per GPU.
func (y *taker) rather(x *taker) bool {
	switch {
	case y.length < x.length:
		return !(x.after > y.before)
	case x.c.tasks == 0: // x never ends; if y does not either, its speed is 0
		return false
	}
	return y.after > x.before
}

// shortestFirst orders the claims that have nothing yet by remaining work, then by number.
func shortestFirst(list []claim) []*claim {
	order := make([]*claim, 0, len(list))
	for i := range list {
		if list[i].tasks == 0 {
			order = append(order, &list[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *claim) int { return cmp.Compare(a.left, b.left) })
	return order
}

// gain returns the job's speed after its next step and the gain per GPU of that step.
func (c *claim) gain(v sched.View) (after, perGPU float64) {
	n, gpus := c.next()
	after = c.speed(v, n)
	return after, (after - c.speed(v, c.tasks)) / float64(max(1, gpus))
}

// length is the job's remaining time at its present size.
func (c *claim) length(v sched.View) float64 {
	if c.tasks == 0 {
		return math.Inf(1)
	}
	return c.left / c.speed(v, c.tasks)
}
