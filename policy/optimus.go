package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var optimus = Info{
	Name:   "optimus",
	About:  "elastic jobs share the GPUs: each gets its least, then each GPU goes where it shortens a job most",
	Source: "Optimus (EuroSys'18), the all-reduce form with workers only",
	Needs:  "elastic jobs (min..max tasks), run times (progress corrects them), speeds by size, else they are taken as linear",
	Trials: []Trial{{Given: Elastic | Estimates | Short}},
	Knobs:  []Knob{{"round", "10m", "plan at multiples of this; 0s: whenever a job comes or ends"}},
	New: func(k *Knobs) sched.Policy {
		round := k.round()
		return &planner{name: k.label(), plan: optimusPlan(round),
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Round: round, Anywhere: true}}
	},
}

// optimusPlan plans in rounds: remaining work changes as jobs progress.
func optimusPlan(round time.Duration) func(v sched.View, jobs []sched.JobView) sched.Plan {
	return func(v sched.View, jobs []sched.JobView) sched.Plan {
		next := cluster.Never
		if round > 0 {
			next = v.Now().Add(round)
		}
		return elasticPlan(v, optimusSizes(v, jobs), next)
	}
}

// optimusSizes is greedy by time saved per GPU: R/f(k) - R/f(k+1). Ties go to the job that was
// submitted first.
func optimusSizes(v sched.View, jobs []sched.JobView) []claim {
	list := claims(v, jobs)
	free := keep(list, totalGPUs(v))
	give := func(c *claim) {
		n, g := c.next()
		c.tasks = n
		free -= g
	}
	order := make([]int, len(list)) // by submission; with equal submission the shorter first
	for i := range order {
		order[i] = i
	}
	byArrival := func(a, b int) int {
		x, y := &list[a], &list[b]
		return cmp.Or(cmp.Compare(x.j.Spec().Submit, y.j.Spec().Submit), cmp.Compare(x.left, y.left))
	}
	if !slices.IsSortedFunc(order, byArrival) { // they come by number
		slices.SortStableFunc(order, byArrival)
	}
	for _, i := range order {
		if _, g := list[i].next(); list[i].tasks == 0 && g <= free {
			give(&list[i])
		}
	}
	var open []int // has something and can grow
	for i := range list {
		if n, _ := list[i].next(); list[i].tasks > 0 && n > 0 {
			open = append(open, i)
		}
	}
	for {
		best, most := -1, 0.0
		for _, i := range open {
			c := &list[i]
			n, g := c.next()
			if n == 0 || g > free {
				continue
			}
			if saved := (c.left/c.speed(v, c.tasks) - c.left/c.speed(v, n)) / float64(max(1, g)); saved > most {
				best, most = i, saved
			}
		}
		if best < 0 {
			return list
		}
		give(&list[best])
	}
}
