package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/solve"
)

var pollux = Info{
	Name: "pollux",
	About: "elastic jobs share the GPUs: each round the sizes are those with the highest harmonic mean of the jobs' speedups over " +
		"their fair shares, changes of size counting as less by what a restart costs",
	Source: "C-pollux-sia, G-pollux-simulator section 11: Pollux (OSDI'21); the search for sizes is ours",
	Needs:  "elastic jobs (min..max tasks), speeds by size, else they are taken as linear; checkpoints: jobs are stopped and resized",
	Knobs: []Knob{
		{"round", "1m", "sizes are chosen at multiples of this; jobs start at rounds only"},
		{"restart", "30s", "what a start or a change of size is reckoned to cost at least; a job's own checkpoint and restart count if they take longer"},
		{"grow", "2", "a job gets at most so many times the tasks that it has had at most; 0: no such limit"},
	},
	New: func(k *Knobs) (engine.Policy, error) {
		r := &polluxRules{}
		err := r.read(k)
		return &planner{name: k.label(), plan: r.plan, traits: engine.Traits{Preempts: true, Backfill: engine.Skip, Round: r.round, Gated: true}}, err
	},
}

type polluxRules struct {
	round, restart time.Duration
	grow           int64
}

// read reads the knobs.
func (r *polluxRules) read(k *Knobs) (err error) {
	if r.round, err = k.round(); err != nil {
		return err
	}
	if r.round == 0 {
		return fmt.Errorf("round=%q: sizes are chosen in rounds of 1s or more", k.text("round"))
	}
	if r.restart, err = k.duration("restart"); err != nil {
		return err
	}
	if r.grow, err = k.int("grow"); err == nil && r.grow != 0 && (r.grow < 2 || r.grow > 1000) {
		err = fmt.Errorf("grow=%q: want 2 to 1000, or 0 for no limit", k.text("grow"))
	}
	return err
}

// resizable is a job while sizes are chosen.
type resizable struct {
	claim
	restarts int64 // how often it was started or resized after its first start
	largest  int   // tasks that it has had at most
	last     int64 // tasks that it had at the last plan
	vain     bool  // the last plan gave it something, and it found no room
	fixed    bool  // it keeps what it has
	sizes    []int // what it could have: the tasks of its choices, the first is 0
}

// recall reads what the last plan left of the job, and counts what happened since.
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
		c.most = c.least // it keeps what it gets, so it gets no more than it must
	}
}

// rank is the job's place in the line. One that found no room, since what is idle lies on
// several nodes, may preempt others, who find a place elsewhere; but nobody who would lose
// all of its work by that, or two of these would stop each other for ever.
func (c *resizable) rank() int64 {
	if c.fixed || c.vain && c.tasks > 0 {
		return -1
	}
	return 0
}

// memo is what the next plan is to know.
func (c *resizable) memo() []int64 { return []int64{c.restarts, int64(c.largest), c.last} }

// penalty is the factor that a choice loses by which the job would have to start
// anew: (age - restarts*cost) / (age + cost), as if it had been here for a round
// at least, and never so little that idle GPUs were worth nothing to it.
func (r *polluxRules) penalty(v engine.View, c *resizable) float64 {
	spec := c.j.Spec()
	return max(restartFactor(max(v.Now().Sub(spec.Submit), r.round), c.restarts, max(r.restart, spec.Checkpoint.Cost+spec.Checkpoint.Restart)), leastPenalty)
}

// restartFactor is the part of its time that a job of that age would have had for
// work if it started once more.
func restartFactor(age time.Duration, restarts int64, cost time.Duration) float64 {
	lost := time.Duration(min(restarts, math.MaxInt64/int64(max(1, cost)))) * cost
	return float64(max(age-lost, 0)) / float64(age+cost)
}

const leastPenalty = 0.1

// none is added to speedups, so that a job that gets nothing costs a lot, but not
// infinitely much: as in the published policy.
const none = 0.001

// limit is the largest size that the job may have in this round.
func (r *polluxRules) limit(c *resizable) int {
	if r.grow == 0 {
		return c.most
	}
	return min(c.most, max(c.least, int(r.grow)*c.largest))
}

// sizesOf lists the sizes that a job could have: none, its least, and so on; from
// forty-eight on by larger steps, since one task more or less hardly matters.
func (r *polluxRules) sizesOf(c *resizable) []int {
	sizes, most := []int{0}, r.limit(c)
	for n := c.least; n <= most; n += max(1, n/16-1) {
		if sizes = append(sizes, n); n < c.now && n+max(1, n/16-1) > c.now {
			sizes = append(sizes, c.now)
		}
	}
	if last := sizes[len(sizes)-1]; last < most {
		sizes = append(sizes, most)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// fairSpeed is how fast the job would be with its fair share of GPUs. A job that
// takes more than that would have its least for a part of the time.
func (c *resizable) fairSpeed(v engine.View, fair int) float64 {
	n := c.least - 1 + sort.Search(c.most-c.least+1, func(i int) bool { return c.j.GPUs(c.least+i) > fair })
	if n < c.least {
		return c.speed(v, c.least) * float64(fair) / float64(c.j.GPUs(c.least))
	}
	return c.speed(v, n)
}

// menu makes choices of a job's sizes: one over the speedup, so that the least sum
// is the highest harmonic mean.
func (r *polluxRules) menu(v engine.View, c *resizable, fair int) []solve.Choice {
	c.sizes = r.sizesOf(c)
	base := c.fairSpeed(v, fair)
	menu := make([]solve.Choice, len(c.sizes))
	for i, n := range c.sizes {
		up := 0.0
		if n > 0 {
			up = c.speed(v, n) / base
			menu[i].GPUs = c.j.GPUs(n)
		}
		if n != c.now {
			up *= r.penalty(v, c)
		}
		menu[i].Cost = 1 / (up + none)
	}
	return menu
}

// plan chooses sizes, tier by tier: a job takes nothing from one of a higher tier.
func (r *polluxRules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	list := make([]resizable, len(jobs))
	claimAll(v, jobs, func(i int) *claim { return &list[i].claim })
	total := totalGPUs(v)
	free, fair := total, max(1, (total+len(jobs)-1)/len(jobs))
	order := make([]*resizable, 0, len(list)) // of equal ones who has had least
	for i := range list {
		c := &list[i]
		if c.recall(); c.fixed {
			c.tasks = c.now
			free -= c.j.GPUs(c.now)
		} else {
			order = append(order, c)
		}
	}
	slices.SortStableFunc(order, func(a, b *resizable) int {
		return cmp.Or(cmp.Compare(a.j.Attained(), b.j.Attained()), cmp.Compare(a.j.Spec().Submit, b.j.Spec().Submit))
	})
	for tier := cluster.Critical; tier <= cluster.BestEffort; tier++ {
		var who []*resizable
		var menus [][]solve.Choice
		for _, c := range order {
			if c.j.Spec().Tier == tier {
				who, menus = append(who, c), append(menus, r.menu(v, c, fair))
			}
		}
		for i, n := range solve.Choose(menus, []int{max(0, free)}) {
			who[i].tasks = who[i].sizes[n]
			free -= menus[i][n].GPUs
		}
	}
	return r.targets(v, list)
}

// targets makes targets of the sizes.
func (r *polluxRules) targets(v engine.View, list []resizable) engine.Plan {
	p := engine.Plan{Next: cluster.Never, Targets: v.Targets(len(list))}
	for i := range list {
		c := &list[i]
		t := engine.Target{Tasks: c.tasks, Least: c.least, Idle: c.tasks == 0, Memo: c.memo()}
		t.Rank = c.rank()
		if c.tasks < c.most && !c.fixed || c.tasks != c.now {
			p.Next = v.Now().Add(r.round) // it could have more
		}
		p.Targets[i] = t
	}
	return p
}
