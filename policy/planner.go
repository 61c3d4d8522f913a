package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// planner is a policy whose order is in the targets of its plans.
type planner struct {
	name   string
	traits sched.Traits
	plan   func(v sched.View, jobs []sched.JobView) sched.Plan
	fits   func(spec *cluster.Spec) error             // nil: it names nothing of a cluster
	words  func(t *sched.Target, plan []int64) string // nil: its memos say nothing to people
}

// Explain implements sched.Explainer.
func (p *planner) Explain(t *sched.Target, plan []int64) string {
	if p.words == nil {
		return ""
	}
	return p.words(t, plan)
}

func (p *planner) Name() string         { return p.name }
func (p *planner) Traits() sched.Traits { return p.traits }

// Fits implements sched.Fitter.
func (p *planner) Fits(spec *cluster.Spec) error {
	if p.fits == nil {
		return nil
	}
	return p.fits(spec)
}

// unplanned is the rank of a job that no plan has seen: it comes last.
const unplanned = math.MaxInt64 / 2

func (p *planner) Key(_ sched.View, j sched.JobView) sched.Key {
	if t := j.Target(); t != nil {
		return sched.Key{t.Rank}
	}
	return sched.Key{unplanned}
}

func (p *planner) Plan(v sched.View, jobs []sched.JobView) sched.Plan { return p.plan(v, jobs) }

// claim is an elastic job while a plan divides the GPUs: so many tasks of its
// first set as it has been given so far.
type claim struct {
	j           sched.JobView
	gpu         string
	tasks       int
	now         int // tasks that run
	least, most int
	left        float64     // work, in seconds at the reference speed
	known       [3]struct { // speeds asked for last
		tasks int
		speed float64
	}
	last int
}

// claims lists the jobs as claims of nothing yet, in memory that the next plan uses again. A job whose run time nobody
// knows is taken to have as much left as all the others that nobody knows.
func claims(v sched.View, jobs []sched.JobView) []claim {
	list := sched.Scratch[claim](v, len(jobs))
	claimAll(v, jobs, func(i int) *claim { return &list[i] })
	return list
}

// claimAll makes the claims where at says.
func claimAll(v sched.View, jobs []sched.JobView, at func(i int) *claim) {
	kinds := v.Kinds()
	for i, j := range jobs {
		*at(i) = claimOf(v, kinds, j)
	}
}

// claimOf is a job as a claim of nothing yet.
func claimOf(v sched.View, kinds []sched.Kind, j sched.JobView) (c claim) {
	c.begin(v, kinds, j)
	c.left = workLeft(j)
	return c
}

// begin makes an empty claim one of nothing yet, for plans that do not ask what is left of
// a job.
func (c *claim) begin(v sched.View, kinds []sched.Kind, j sched.JobView) {
	c.j, c.gpu = j, modelFor(v, kinds, j)
	if c.now, c.least, c.most = j.Tasks(); c.now > 0 && stays(j) {
		c.least, c.most = c.now, c.now // nobody takes from it, and it does not grow: others would pay for that, or it by starting anew
	}
}

// modelFor is the GPU model by whose speeds a job is planned for: that of what it holds, or the first that it may
// run on. Where nothing is known of speeds, it does not matter, and none is looked for.
func modelFor(v sched.View, kinds []sched.Kind, j sched.JobView) string {
	if !v.Measured() {
		return ""
	}
	gpu := j.GPU()
	for k := 0; gpu == "" && k < len(kinds); k++ {
		if j.Accepts(kinds[k].GPU) {
			gpu = kinds[k].GPU
		}
	}
	return gpu
}

// keep gives claims that are left where they are what they have, and returns what is left for the others.
func keep(list []claim, free int) int {
	for i := range list {
		if c := &list[i]; stays(c.j) {
			c.tasks = c.now
			free -= c.j.GPUs(c.now)
		}
	}
	return max(0, free)
}

// asked is how many tasks of its first set a job asks for, within its own bounds.
func asked(j sched.JobView) int {
	_, least, most := j.Tasks()
	return min(max(j.Spec().Tasks[0].Count, least), most)
}

// inOrder orders some of the jobs: the highest priority first, then who came first.
func inOrder(jobs []sched.JobView, line []int) {
	slices.SortFunc(line, func(x, y int) int {
		s, t := jobs[x].Spec(), jobs[y].Spec()
		return cmp.Or(cmp.Compare(t.Priority, s.Priority), cmp.Compare(s.Submit, t.Submit), cmp.Compare(s.ID, t.ID))
	})
}

// kindOf is which of the kinds has GPUs of a model; -1: none.
func kindOf(kinds []sched.Kind, gpu string) int {
	return slices.IndexFunc(kinds, func(k sched.Kind) bool { return k.GPU == gpu })
}

// find is where the job of a number is among those that are planned for, which come
// by number; -1: it is not.
func find(jobs []sched.JobView, id cluster.JobID) int {
	i, ok := slices.BinarySearchFunc(jobs, id, func(j sched.JobView, id cluster.JobID) int { return cmp.Compare(j.Spec().ID, id) })
	if !ok {
		return -1
	}
	return i
}

// stays reports whether a job is left where it is until it ends: a critical one
// that runs, and one that would lose its work, which might never end if it had to
// take turns.
func stays(j sched.JobView) bool {
	return j.Running() && (j.Spec().Tier == cluster.Critical || j.Loses())
}

// packs reports whether a job may share its GPUs: it is a gang of one size with
// whole GPUs, not critical, and does not ask to be kept apart.
func packs(j sched.JobView) bool {
	_, least, most := j.Tasks()
	s := j.Spec()
	if s.Tier == cluster.Critical || s.Kind == cluster.Service || s.Isolation != cluster.Open || len(s.Tasks) != 1 || least != most {
		return false
	}
	r := &s.Tasks[0].Request
	return r.GPUs > 0 && !r.Fractional() && r.Profile == ""
}

// leaseEnd is when a lease that begins now is over: at a multiple of a thirtieth
// of its full length, so that many end together.
func leaseEnd(now cluster.Time, lease, full time.Duration) cluster.Time {
	grid := cluster.Time(max(full/30, 1))
	return (now.Add(lease) + grid - 1) / grid * grid
}

// workLeft is what is left of a job, in seconds at the reference speed.
func workLeft(j sched.JobView) float64 {
	if e := j.Spec().Estimate; e > 0 {
		return max(e-j.Done(), 0).Seconds()
	}
	return equalWork
}

// equalWork is what is left of a job of unknown length, in seconds: with all
// jobs unknown, any value gives the same plan.
const equalWork = 3600

// speed is how fast the job is with so many tasks, in reference seconds of work
// per second; none: not at all.
func (c *claim) speed(v sched.View, tasks int) float64 {
	if tasks == 0 {
		return 0
	}
	for i := range c.known {
		if c.known[i].tasks == tasks {
			return c.known[i].speed
		}
	}
	c.last = (c.last + 1) % len(c.known)
	k := &c.known[c.last]
	k.tasks, k.speed = tasks, float64(v.Speed(c.j, c.gpu, tasks))/1e6
	return k.speed
}

// next is the size after the present one, and how many GPUs it costs; 0: there
// is none.
func (c *claim) next() (tasks, gpus int) {
	switch {
	case c.tasks == 0:
		return c.least, c.j.GPUs(c.least)
	case c.tasks < c.most:
		return c.tasks + 1, c.j.GPUs(c.tasks+1) - c.j.GPUs(c.tasks)
	}
	return 0, 0
}

// stepGPUs is what the next size costs more.
func (c *claim) stepGPUs() int {
	_, g := c.next()
	return g
}

// totalGPUs is what a plan has to give.
func totalGPUs(v sched.View) int { return allGPUs(v.Kinds()) }

// allGPUs is how many GPUs there are of all kinds.
func allGPUs(kinds []sched.Kind) (n int) {
	for i := range kinds {
		n += kinds[i].GPUs
	}
	return n
}

// elasticPlan makes targets of claims: who got nothing is idle.
func elasticPlan(v sched.View, list []claim, next cluster.Time) sched.Plan {
	p := sched.Plan{Next: next, Targets: v.Targets(len(list))}
	for i := range list {
		c := &list[i]
		p.Targets[i] = sched.Target{Tasks: c.tasks, Least: c.least, Idle: c.tasks == 0}
	}
	return p
}
