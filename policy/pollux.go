package policy

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/solve"
)

var pollux = Info{
	Name: "pollux",
	About: "elastic jobs share the GPUs: each round the sizes are those with the highest harmonic mean of the jobs' speedups over " +
		"their fair shares, changes of size reduced by the cost of a restart",
	Source: "Pollux (OSDI'21); the search for sizes is ours",
	Needs:  "elastic jobs (min..max tasks), speeds by size, else they are taken as linear; checkpoints: jobs are stopped and resized",
	Trials: []Trial{{Given: Elastic | Short}},
	Knobs: []Knob{
		{"round", "1m", "sizes are chosen at multiples of this; jobs start at rounds only"},
		{"restart", "30s", "least assumed cost of a start or a change of size; a job's own checkpoint and restart count if they take longer"},
		{"grow", "2", "a job gets at most this many times the largest number of tasks it has had; 0: no limit"},
	},
	New: func(k *Knobs) sched.Policy {
		r := newPolluxRules(k)
		return &planner{name: k.label(), plan: r.plan,
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Round: r.round, Gated: true, Anywhere: true}}
	},
}

type polluxRules struct {
	round, restart time.Duration
	grow           int64
}

// newPolluxRules reads the knobs.
func newPolluxRules(k *Knobs) polluxRules {
	r := polluxRules{round: k.turns(), restart: k.duration("restart", 0), grow: k.int("grow", 0, 1000)}
	if r.grow == 1 {
		k.fail("grow=%q: want 2 to 1000, or 0 for no limit", k.text("grow"))
	}
	return r
}

// resizable is a job while sizes are chosen.
type resizable struct {
	claim
	restarts int64 // starts and resizes after its first start
	largest  int   // the most tasks it has had
	last     int64 // tasks at the last plan
	vain     bool  // the last plan gave it GPUs, but it found no room
	fixed    bool  // its size is fixed
	sizes    []int // possible sizes, in tasks; the first is 0
}

// sizing is memory for plans of sizes, reused from plan to plan.
type sizing[T any] struct {
	list    []T
	line    leastFirst
	owners  []int // job of each menu
	menus   [][]solve.Choice
	choices []solve.Choice
	chooser solve.Chooser
	sizes   []int
	memos   []int64
}

// begin clears the memory for n jobs.
func (m *sizing[T]) begin(n int) []T {
	m.line.begin()
	m.choices, m.sizes, m.memos = m.choices[:0], m.sizes[:0], m.memos[:0]
	m.list = slices.Grow(m.list[:0], n)[:n]
	clear(m.list)
	return m.list
}

// choose makes a choice for each job in line, tier by tier, from its menu and as far as the GPUs of each kind are free.
func (m *sizing[T]) choose(free []int, menu func(at int) []solve.Choice, take func(at, n int)) {
	m.line.order()
	for tier := cluster.Critical; tier <= cluster.BestEffort; tier++ {
		m.owners, m.menus = m.owners[:0], m.menus[:0]
		for _, l := range m.line.line {
			if l.tier == tier {
				m.owners, m.menus = append(m.owners, int(l.at)), append(m.menus, menu(int(l.at)))
			}
		}
		for i, n := range m.chooser.Choose(m.menus, free) {
			x := &m.menus[i][n]
			free[x.Kind] -= x.GPUs
			take(m.owners[i], n)
		}
	}
}

// menu returns memory for the n choices of the next menu.
func (m *sizing[T]) menu(n int) []solve.Choice {
	from := len(m.choices)
	m.choices = append(m.choices, make([]solve.Choice, n)...)
	return m.choices[from:]
}

// recall reads the job's memo and counts restarts since the last plan.
func (c *resizable) recall() {
	if old := c.j.Target(); old != nil && len(old.Memo) == 3 {
		c.restarts, c.largest, c.last = old.Memo[0], int(old.Memo[1]), old.Memo[2]
		c.vain = !old.Idle && c.now == 0
	}
	if c.now > 0 && c.largest > 0 && int64(c.now) != c.last {
		c.restarts++
	}
	c.largest, c.last = max(c.largest, c.now), int64(c.now)
	c.fixed = stays(c.j)
	if c.j.Spec().Tier == cluster.Critical && c.now == 0 {
		c.most = c.least // it keeps what it gets, so it gets no more than its least
	}
}

// rank is the job's rank. A job that found no room, since the idle GPUs are on several nodes, may
// preempt others, which find a place elsewhere; but not jobs that would lose all of their work, or
// two of them would stop each other forever.
func (c *resizable) rank() int64 {
	if c.fixed || c.vain && c.tasks > 0 {
		return -1
	}
	return 0
}

// memo is the job's memo for the next plan.
func (m *sizing[T]) memo(c *resizable) []int64 {
	from := len(m.memos)
	m.memos = append(m.memos, c.restarts, int64(c.largest), c.last)
	return m.memos[from:]
}

// penalty is the factor on choices that restart the job: (age - restarts*cost) / (age + cost), with
// an age of at least a round, and never so small that idle GPUs would be worth nothing.
func (r *polluxRules) penalty(v sched.View, c *resizable) float64 {
	spec := c.j.Spec()
	return max(restartFactor(max(v.Now().Sub(spec.Submit), r.round), c.restarts,
		max(r.restart, spec.Checkpoint.Cost+spec.Checkpoint.Restart)), leastPenalty)
}

// restartFactor is the share of its time that a job of that age would have had for work if it
// restarted once more.
func restartFactor(age time.Duration, restarts int64, cost time.Duration) float64 {
	lost := time.Duration(min(restarts, math.MaxInt64/int64(max(1, cost)))) * cost
	return float64(max(age-lost, 0)) / float64(age+cost)
}

const leastPenalty = 0.1

// none is added to speedups, so that the cost of a job that gets nothing is large but finite, as in
// the published policy.
const none = 0.001

// limit is the largest size that the job may have in this round.
func (r *polluxRules) limit(c *resizable) int {
	if r.grow == 0 {
		return c.most
	}
	return min(c.most, max(c.least, int(r.grow)*c.largest))
}

// sizesOf appends the job's possible sizes: 0, its least, and so on; from forty-eight tasks on in
// larger steps, since one task more or less hardly matters.
func (r *polluxRules) sizesOf(c *resizable, sizes []int) []int {
	if c.least == c.most && c.now <= c.most {
		return append(sizes, 0, c.least)
	}
	from, most := len(sizes), r.limit(c)
	sizes = append(sizes, 0)
	for n := c.least; n <= most; n += max(1, n/16-1) {
		if sizes = append(sizes, n); n < c.now && n+max(1, n/16-1) > c.now {
			sizes = append(sizes, c.now)
		}
	}
	if last := sizes[len(sizes)-1]; last < most {
		sizes = append(sizes, most)
	}
	slices.Sort(sizes[from:])
	return sizes[:from+len(slices.Compact(sizes[from:]))]
}

// fairSpeed is the job's speed with its fair share of GPUs. If its least exceeds that, the job is
// taken to run at its least for part of the time.
func (c *resizable) fairSpeed(v sched.View, fair int) float64 {
	if c.j.GPUs(c.most) <= fair {
		return c.speed(v, c.most)
	}
	if g := c.j.GPUs(c.least); g > fair {
		return c.speed(v, c.least) * float64(fair) / float64(g)
	}
	return c.speed(v, c.least-1+sort.Search(c.most-c.least+1, func(i int) bool { return c.j.GPUs(c.least+i) > fair }))
}

// menu makes choices of a job's sizes: the cost is one over the speedup, so that the least sum is
// the highest harmonic mean.
func (r *polluxRules) menu(v sched.View, m *polluxSizing, c *resizable, fair int) []solve.Choice {
	from := len(m.sizes)
	m.sizes = r.sizesOf(c, m.sizes)
	c.sizes = m.sizes[from:]
	base, penalty := c.fairSpeed(v, fair), r.penalty(v, c)
	menu := m.menu(len(c.sizes))
	for i, n := range c.sizes {
		up := 0.0
		if n > 0 {
			up = c.speed(v, n) / base
			menu[i].GPUs = c.j.GPUs(n)
		}
		if n != c.now {
			up *= penalty
		}
		menu[i].Cost = 1 / (up + none)
	}
	return menu
}

type polluxSizing = sizing[resizable]

// plan chooses sizes tier by tier: a job takes nothing from one of a higher tier.
func (r *polluxRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	m := sched.Memory[polluxSizing](v)
	list, kinds, total := m.begin(len(jobs)), v.Kinds(), totalGPUs(v)
	free, fair := total, max(1, (total+len(jobs)-1)/len(jobs))
	for i := range list {
		c := &list[i]
		c.begin(v, kinds, jobs[i])
		if c.recall(); c.fixed {
			c.tasks = c.now
			free -= c.j.GPUs(c.now)
		} else {
			m.line.join(i, c.j)
		}
	}
	m.choose([]int{max(0, free)}, func(at int) []solve.Choice { return r.menu(v, m, &list[at], fair) },
		func(at, n int) { list[at].tasks = list[at].sizes[n] })
	return r.targets(v, m)
}

// targets makes targets of the sizes.
func (r *polluxRules) targets(v sched.View, m *polluxSizing) sched.Plan {
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(m.list))}
	for i := range m.list {
		c, t := &m.list[i], &p.Targets[i]
		t.Tasks, t.Least, t.Idle, t.Memo, t.Rank = c.tasks, c.least, c.tasks == 0, m.memo(c), c.rank()
		if c.tasks < c.most && !c.fixed || c.tasks != c.now {
			p.Next = v.Now().Add(r.round) // it may get more
		}
	}
	return p
}
