package policy

import (
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/solve"
)

var sia = Info{
	Name: "sia",
	About: "elastic jobs on GPUs of several models: each round every job is matched with a model and a size, so that the sum of " +
		"powers of speeds, each relative to the job's slowest choice, is least; changes are reduced by the cost of a restart",
	Source: "Sia (SOSP'23); the search is ours",
	Needs:  "elastic jobs (min..max tasks), speeds per GPU model and size; checkpoints: jobs are stopped, moved and resized",
	Trials: []Trial{{Given: Elastic | Speeds | Short}},
	Knobs: []Knob{
		{"round", "1m", "jobs are matched at multiples of this; they start at rounds only"},
		{"restart", "30s", "least assumed cost of a change; a job's own checkpoint and restart count if they take longer"},
		{"grow", "2", "a job gets at most this many times the largest number of tasks it has had; 0: no limit"},
	},
	New: func(k *Knobs) sched.Policy {
		r := &siaRules{newPolluxRules(k)}
		return &planner{name: k.label(), plan: r.plan,
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Round: r.round, Gated: true, Anywhere: true}}
	},
}

// siaRules are Sia's; knobs and memos are those of pollux.
type siaRules struct{ polluxRules }

// Costs in the objective, as published: of a job that gets nothing, and of each choice that is
// given up or taken.
const (
	siaQueued = 1.1
	siaChange = 0.01
)

// match is a GPU model and a size; a job's first match is nothing.
type match struct {
	kind, tasks int
	speed       float64
}

// siaConfig reports whether a number of GPUs is a configuration for nodes with perNode GPUs: a
// power of two within a node, or whole nodes.
func siaConfig(gpus, perNode int) bool {
	return gpus <= perNode && gpus&(gpus-1) == 0 || gpus%max(1, perNode) == 0
}

// matches appends the job's possible matches: on each model that it accepts, its least and each
// configuration that is one of its sizes, and always its present match.
func (r *siaRules) matches(v sched.View, c *resizable, kinds []sched.Kind, list []match) []match {
	most := r.limit(c)
	list = append(list, match{})
	for k, kind := range kinds {
		if !c.j.Accepts(kind.GPU) {
			continue
		}
		has := c.now > 0 && kind.GPU == c.j.GPU()
		for n := c.least; n <= most && c.j.GPUs(n) <= kind.GPUs; n++ {
			if n == c.least || siaConfig(c.j.GPUs(n), kind.PerNode) || has && n == c.now {
				list = append(list, match{k, n, float64(max(1, v.Speed(c.j, kind.GPU, n)))})
			}
		}
	}
	return list
}

// siaMenu makes choices of matches: the cost is (factor * speed)^(-1/2), with the speed in units of
// the slowest match, times the GPUs of the job's least. now is the job's present match; 0: it
// waits. The factor applies only to running jobs, since a waiting job has to start whatever it gets
// (ours). It also applies to stopping them (ours): otherwise a job would be stopped for nothing,
// only to start elsewhere in the next round.
func siaMenu(menu []solve.Choice, list []match, now int, least float64, factor float64,
	gpus func(tasks int) int) []solve.Choice {
	slowest := math.Inf(1)
	for _, m := range list[1:] {
		slowest = min(slowest, m.speed)
	}
	menu[0].Cost = siaQueued
	if now > 0 {
		menu[0].Cost /= math.Sqrt(factor)
	}
	for i := 1; i < len(list); i++ {
		up := least * list[i].speed / slowest
		if now > 0 && i != now {
			up *= factor
		}
		menu[i] = solve.Choice{Kind: list[i].kind, GPUs: gpus(list[i].tasks), Cost: 1 / math.Sqrt(up)}
	}
	for i := range menu {
		if i == now {
			continue
		}
		if i > 0 {
			menu[i].Cost += siaChange
		}
		if now > 0 {
			menu[i].Cost += siaChange
		}
	}
	return menu
}

// siaJob is a job while matches are made.
type siaJob struct {
	resizable
	list []match
	kind int // of its match
}

// siaSizing is memory reused from plan to plan.
type siaSizing struct {
	sizing[siaJob]
	matches []match
}

// offer is the job's menu.
func (r *siaRules) offer(v sched.View, m *siaSizing, c *siaJob, kinds []sched.Kind) []solve.Choice {
	from := len(m.matches)
	m.matches = r.matches(v, &c.resizable, kinds, m.matches)
	c.list = m.matches[from:]
	now := 0
	for i, m := range c.list {
		if c.now > 0 && m.tasks == c.now && kinds[m.kind].GPU == c.j.GPU() {
			now = i
		}
	}
	return siaMenu(m.menu(len(c.list)), c.list, now, float64(max(1, c.j.GPUs(c.least))), r.penalty(v, &c.resizable),
		c.j.GPUs)
}

// plan makes matches tier by tier.
func (r *siaRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	kinds := v.Kinds()
	if len(kinds) == 0 {
		kinds = []sched.Kind{{}} // all jobs are without GPUs
	}
	m := sched.Memory[siaSizing](v)
	list, free := m.begin(len(jobs)), make([]int, len(kinds))
	m.matches = m.matches[:0]
	for k := range kinds {
		free[k] = kinds[k].GPUs
	}
	for i := range list {
		c := &list[i]
		c.begin(v, kinds, jobs[i])
		if c.recall(); !c.fixed {
			m.line.join(i, c.j)
			continue
		}
		c.tasks = c.now
		if c.kind = slices.IndexFunc(kinds, func(k sched.Kind) bool { return k.GPU == c.j.GPU() }); c.kind >= 0 {
			free[c.kind] = max(0, free[c.kind]-c.j.GPUs(c.now))
		}
	}
	m.choose(free, func(at int) []solve.Choice { return r.offer(v, m, &list[at], kinds) }, func(at, n int) {
		c := &list[at]
		c.kind, c.tasks = c.list[n].kind, c.list[n].tasks
	})
	return r.targets(v, m, kinds)
}

// targets makes targets of matches. Ranks are those of pollux.
func (r *siaRules) targets(v sched.View, m *siaSizing, kinds []sched.Kind) sched.Plan {
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(m.list))}
	for i := range m.list {
		c, t := &m.list[i], &p.Targets[i]
		t.Tasks, t.Least, t.Idle, t.Memo, t.Rank = c.tasks, c.tasks, c.tasks == 0, m.memo(&c.resizable), c.rank()
		if c.tasks > 0 && c.kind >= 0 && c.j.GPUs(c.tasks) > 0 {
			t.GPU = kinds[c.kind].GPU
		}
		if !c.fixed {
			p.Next = v.Now().Add(r.round) // a change may pay off later, since its cost falls
		}
	}
	return p
}
