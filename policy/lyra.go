package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/solve"
)

var lyra = Info{
	Name: "lyra",
	About: "the shortest job first, each with its least; what is left goes to elastic jobs so that their completion times shorten most together " +
		"(a knapsack); nothing that runs is preempted, but elastic jobs shrink to their least",
	Source: "Lyra (EuroSys'23)",
	Needs:  "elastic jobs (min..max tasks), run times (progress corrects them), speeds by size, else they are taken as linear",
	Trials: []Trial{{Given: Elastic | Estimates | Short}},
	Knobs: []Knob{
		{"round", "0s", "plan at multiples of this only, so that jobs are resized less often; 0s: whenever a job comes or ends"},
		{"sizes", "64", "number of sizes of a job that are weighed, evenly spread if it may have more"},
	},
	New: func(k *Knobs) sched.Policy {
		return &planner{name: k.label(), plan: lyraPlan(int(k.int("sizes", 1, 1000))),
			traits: sched.Traits{Backfill: sched.Skip, Round: k.round(), Anywhere: true}}
	},
}

// lyraPlan gives running jobs their least, then waiting jobs theirs, the shortest first; the
// knapsack divides what is left. No target is idle: all waiting jobs queue, the shortest first, so
// that GPUs that cannot be used as planned, being on several nodes, are used by others.
func lyraPlan(sizes int) func(v sched.View, jobs []sched.JobView) sched.Plan {
	return func(v sched.View, jobs []sched.JobView) sched.Plan {
		list := claims(v, jobs)
		lyraSurplus(v, list, lyraBase(v, list, totalGPUs(v)), sizes)
		p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(list))}
		for i := range list {
			c := &list[i]
			t := sched.Target{Tasks: max(c.tasks, c.least), Least: c.least}
			if c.now == 0 {
				t.Rank = int64(min(c.time(v, c.least)*1e6, unplanned-1))
			}
			p.Targets[i] = t
		}
		return p
	}
}

// lyraBase gives claims their least: running jobs first, then critical jobs, then the others by
// their run time at that size. It returns what is left.
func lyraBase(v sched.View, list []claim, free int) int {
	for i := range list {
		if c := &list[i]; c.now > 0 {
			c.tasks = c.least
			free -= c.j.GPUs(c.least)
		}
	}
	var line []int // the waiting jobs that fit; free never rises
	for i := range list {
		if c := &list[i]; c.now == 0 && c.j.GPUs(c.least) <= free {
			line = append(line, i)
		}
	}
	slices.SortFunc(line, func(x, y int) int {
		a, b := &list[x], &list[y]
		s, t := a.j.Spec(), b.j.Spec()
		return cmp.Or(cmp.Compare(s.Tier, t.Tier), cmp.Compare(a.time(v, a.least), b.time(v, b.least)),
			cmp.Compare(s.Submit, t.Submit), cmp.Compare(s.ID, t.ID))
	})
	for _, i := range line {
		if g := list[i].j.GPUs(list[i].least); g <= free {
			list[i].tasks = list[i].least
			free -= g
		}
	}
	return max(0, free)
}

// lyraSurplus gives what is left to jobs that have their least: k more tasks weigh as many GPUs as
// they take, and are worth the time that they save, JCT(least) - JCT(least+k).
func lyraSurplus(v sched.View, list []claim, free, sizes int) {
	var menus [][]solve.Choice
	var open []*claim
	for i := range list {
		c := &list[i]
		if c.tasks == 0 || c.least == c.most || c.j.GPUs(c.least+1)-c.j.GPUs(c.least) > free {
			continue
		}
		open = append(open, c)
		menus = append(menus, c.menu(v, free, sizes))
	}
	at, _ := solve.Knapsack(menus, free)
	for i, c := range open {
		c.tasks = c.least + c.extra(at[i], sizes)
		free -= menus[i][at[i]].GPUs
	}
	for _, c := range open { // sizes between those that were weighed
		for n, g := c.next(); c.most-c.least > sizes && n > 0 && g <= free && c.time(v, n) < c.time(v, c.tasks); n,
			g = c.next() {
			c.tasks = n
			free -= g
		}
	}
}

// time is the job's remaining time with so many tasks, in seconds; at most MaxInt32.
func (c *claim) time(v sched.View, tasks int) float64 {
	return min(c.left/max(c.speed(v, tasks), 1e-6), math.MaxInt32)
}

// menu lists the additional GPUs that a claim may get above its least, with the remaining time.
func (c *claim) menu(v sched.View, free, sizes int) []solve.Choice {
	base := c.j.GPUs(c.least)
	list := []solve.Choice{{Cost: c.time(v, c.least)}}
	for n := 1; ; n++ {
		k := c.extra(n, sizes)
		g := c.j.GPUs(c.least+k) - base
		if g > free || k == c.extra(n-1, sizes) {
			return list
		}
		list = append(list, solve.Choice{GPUs: g, Cost: c.time(v, c.least+k)})
	}
}

// extra is the number of tasks above the least at the n-th of at most that many sizes.
func (c *claim) extra(n, sizes int) int {
	if all := c.most - c.least; all > sizes {
		return min(n, sizes) * all / sizes
	}
	return min(n, c.most-c.least)
}
