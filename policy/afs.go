package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

var afs = Info{
	Name: "afs",
	About: "elastic jobs share the GPUs: each goes to the job that makes most of it now, weighing who would end first " +
		"against who speeds up more (AFS-L); without estimates all count as equally long (AFS-P)",
	Source: "C-optimus-afs: AFS-L, Elastic Resource Sharing for Distributed Deep Learning (NSDI'21)",
	Needs:  "elastic jobs (min..max tasks); run times for AFS-L; speeds by size, else they are taken as linear",
	Knobs:  []Knob{{"round", "0s", "plan at multiples of this only, so that jobs are resized less often; 0s: whenever a job comes or ends"}},
	New: func(k *Knobs) (engine.Policy, error) {
		round, err := k.round()
		if err != nil {
			return nil, err
		}
		return &planner{name: k.label(), plan: afsPlan, traits: engine.Traits{Preempts: true, Backfill: engine.Skip, Round: round, Anywhere: true}}, nil
	},
}

// round reads the knob of that name: how often a policy plans.
func (k *Knobs) round() (time.Duration, error) {
	d, err := k.duration("round")
	if err == nil && d != 0 && d < time.Second {
		return 0, cluster.Unknown("round", k.text("round"), []string{"0s", "1s or more"})
	}
	return d, err
}

// afsPlan gives the GPUs one size step at a time. The comparison is not an
// order: the next step goes to whoever is left after being compared with all
// others in turn, as in the paper's algorithm. Of the jobs that have nothing yet
// only the shortest is compared: it wins against each of them.
func afsPlan(v engine.View, jobs []engine.JobView) engine.Plan {
	list := claims(v, jobs)
	free := totalGPUs(v)
	idle := shortestFirst(list)
	var served []*claim // who has something and may get more, in the order in which they got it
	for free > 0 {
		for len(idle) > 0 && idle[0].stepGPUs() > free {
			idle = idle[1:] // free only falls
		}
		var best *claim
		if len(idle) > 0 {
			best = idle[0]
		}
		served = slices.DeleteFunc(served, func(c *claim) bool {
			n, g := c.next()
			return n == 0 || g > free
		})
		for _, c := range served {
			if best == nil || afsPrefers(v, c, best) {
				best = c
			}
		}
		if best == nil {
			break
		}
		n, g := best.next()
		if best.tasks == 0 {
			idle, served = idle[1:], append(served, best)
		}
		best.tasks = n
		free -= g
	}
	return elasticPlan(v, list, cluster.Never)
}

// shortestFirst lists claims by what is left of them, then by number.
func shortestFirst(list []claim) []*claim {
	order := make([]*claim, len(list))
	for i := range list {
		order[i] = &list[i]
	}
	slices.SortStableFunc(order, func(a, b *claim) int { return cmp.Compare(a.left, b.left) })
	return order
}

// afsPrefers reports whether y gets the next GPUs rather than x. The gain of
// the longer job is relative to its speed after, that of the shorter one to its
// speed before: the asymmetry is the paper's. A step of several GPUs counts by
// what each of them brings.
func afsPrefers(v engine.View, y, x *claim) bool {
	if x.tasks == 0 && y.tasks == 0 {
		return y.left < x.left
	}
	short, long := x, y
	if y.length(v) < x.length(v) {
		short, long = y, x
	}
	if short.tasks == 0 {
		return y == short // only an idle one has no end: both have none
	}
	after, gainLong := long.gain(v)
	_, gainShort := short.gain(v)
	if gainLong/after > gainShort/short.speed(v, short.tasks) {
		return y == long
	}
	return y == short
}

// gain is the job's speed after its next step, and what each GPU of it brings.
func (c *claim) gain(v engine.View) (after, perGPU float64) {
	n, gpus := c.next()
	after = c.speed(v, n)
	return after, (after - c.speed(v, c.tasks)) / float64(max(1, gpus))
}

// length is how long the job has left at its present size.
func (c *claim) length(v engine.View) float64 {
	if c.tasks == 0 {
		return math.Inf(1)
	}
	return c.left / c.speed(v, c.tasks)
}
