package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// planner is a policy whose order is given by the targets of its plans.
type planner struct {
	name   string
	traits sched.Traits
	plan   func(v sched.View, jobs []sched.JobView) sched.Plan
	fits   func(spec *cluster.Spec) error             // nil: fits every cluster
	words  func(t *sched.Target, plan []int64) string // nil: it has no explanations
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

// unplanned is the rank of a job without a target: it comes last.
const unplanned = math.MaxInt64 / 2

func (p *planner) Key(_ sched.View, j sched.JobView) sched.Key {
	if t := j.Target(); t != nil {
		return sched.Key{t.Rank}
	}
	return sched.Key{unplanned}
}

func (p *planner) Plan(v sched.View, jobs []sched.JobView) sched.Plan { return p.plan(v, jobs) }

// claim is an elastic job while a plan divides the GPUs, with the tasks of its first set that it
// has been given so far.
type claim struct {
	j           sched.JobView
	gpu         string
	tasks       int
	now         int // running tasks
	least, most int
	left        float64     // work, in seconds at the reference speed
	known       [3]struct { // a cache of speeds
		tasks int
		speed float64
	}
	last int
}

// claims makes empty claims of the jobs, in memory that the next plan reuses. Jobs of unknown run
// time are all taken to have the same work left.
func claims(v sched.View, jobs []sched.JobView) []claim {
	list := sched.Scratch[claim](v, len(jobs))
	claimAll(v, jobs, func(i int) *claim { return &list[i] })
	return list
}

// claimAll makes a claim of each job at the address that at returns.
func claimAll(v sched.View, jobs []sched.JobView, at func(i int) *claim) {
	kinds := v.Kinds()
	for i, j := range jobs {
		*at(i) = claimOf(v, kinds, j)
	}
}

// claimOf is an empty claim of a job.
func claimOf(v sched.View, kinds []sched.Kind, j sched.JobView) (c claim) {
	c.begin(v, kinds, j)
	c.left = workLeft(j)
	return c
}

// begin makes c an empty claim of a job, without its remaining work, which some plans do not need.
func (c *claim) begin(v sched.View, kinds []sched.Kind, j sched.JobView) {
	c.j, c.gpu = j, modelFor(v, kinds, j)
	if c.now, c.least, c.most = j.Tasks(); c.now > 0 && stays(j) {
		// Its size is fixed: its GPUs cannot be taken, and growing would be at the expense of
		// others or restart it.
		c.least, c.most = c.now, c.now
	}
}

// modelFor is the GPU model by whose speeds a job is planned: that of the GPUs it holds, or the
// first that it accepts. Without known speeds the model does not matter, and the result is empty.
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

// keep gives jobs that cannot be stopped what they have, and returns the GPUs left for the others.
func keep(list []claim, free int) int {
	for i := range list {
		if c := &list[i]; stays(c.j) {
			c.tasks = c.now
			free -= c.j.GPUs(c.now)
		}
	}
	return max(0, free)
}

// asked is the number of tasks of its first set that a job asks for, within its bounds.
func asked(j sched.JobView) int {
	_, least, most := j.Tasks()
	return min(max(j.Spec().Tasks[0].Count, least), most)
}

// inOrder sorts indices of jobs by descending priority, then by submission.
func inOrder(jobs []sched.JobView, line []int) {
	slices.SortFunc(line, func(x, y int) int {
		s, t := jobs[x].Spec(), jobs[y].Spec()
		return cmp.Or(cmp.Compare(t.Priority, s.Priority), cmp.Compare(s.Submit, t.Submit), cmp.Compare(s.ID, t.ID))
	})
}

// kindOf is the index of the kind with a GPU model; -1: none.
func kindOf(kinds []sched.Kind, gpu string) int {
	return slices.IndexFunc(kinds, func(k sched.Kind) bool { return k.GPU == gpu })
}

// find is the index of the job with a number; -1: none. The jobs are sorted by number.
func find(jobs []sched.JobView, id cluster.JobID) int {
	i, ok := slices.BinarySearchFunc(jobs, id, func(j sched.JobView, id cluster.JobID) int {
		return cmp.Compare(j.Spec().ID, id)
	})
	if !ok {
		return -1
	}
	return i
}

// stays reports whether a running job is never stopped: a critical job, or one that would lose its
// work, which might never end if it had to take turns.
func stays(j sched.JobView) bool {
	return j.Running() && (j.Spec().Tier == cluster.Critical || j.Loses())
}

// packs reports whether a job may share its GPUs: it is a gang of fixed size on whole GPUs, not
// critical, and does not demand isolation.
func packs(j sched.JobView) bool {
	_, least, most := j.Tasks()
	s := j.Spec()
	if s.Tier == cluster.Critical || s.Kind == cluster.Service || s.Isolation != cluster.Open || len(s.Tasks) != 1 ||
		least != most {
		return false
	}
	r := &s.Tasks[0].Request
	return r.GPUs > 0 && !r.Fractional() && r.Profile == ""
}

// leaseEnd is the end of a lease that begins now, rounded up to a multiple of a thirtieth of the
// full length, so that many end together.
func leaseEnd(now cluster.Time, lease, full time.Duration) cluster.Time {
	grid := cluster.Time(max(full/30, 1))
	return (now.Add(lease) + grid - 1) / grid * grid
}

// workLeft is a job's remaining work, in seconds at the reference speed.
func workLeft(j sched.JobView) float64 {
	if e := j.Spec().Estimate; e > 0 {
		return max(e-j.Done(), 0).Seconds()
	}
	return equalWork
}

// equalWork is the remaining work of a job of unknown length, in seconds: if all are unknown, any
// value gives the same plan.
const equalWork = 3600

// speed is the job's speed with so many tasks, in reference seconds of work per second; 0 without
// tasks.
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

// next is the next size and the additional GPUs that it takes; 0: there is none.
func (c *claim) next() (tasks, gpus int) {
	switch {
	case c.tasks == 0:
		return c.least, c.j.GPUs(c.least)
	case c.tasks < c.most:
		return c.tasks + 1, c.j.GPUs(c.tasks+1) - c.j.GPUs(c.tasks)
	}
	return 0, 0
}

// stepGPUs is the additional GPUs of the next size.
func (c *claim) stepGPUs() int {
	_, g := c.next()
	return g
}

// totalGPUs is the number of GPUs that a plan divides.
func totalGPUs(v sched.View) int { return allGPUs(v.Kinds()) }

// allGPUs is the number of GPUs of all kinds.
func allGPUs(kinds []sched.Kind) (n int) {
	for i := range kinds {
		n += kinds[i].GPUs
	}
	return n
}

// elasticPlan makes targets of claims: empty claims are idle.
func elasticPlan(v sched.View, list []claim, next cluster.Time) sched.Plan {
	p := sched.Plan{Next: next, Targets: v.Targets(len(list))}
	for i := range list {
		c := &list[i]
		p.Targets[i] = sched.Target{Tasks: c.tasks, Least: c.least, Idle: c.tasks == 0}
	}
	return p
}
