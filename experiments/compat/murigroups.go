package compat

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/solve"
)

// muriWorld is what is particular to Muri's world with shared GPUs (Muri's simulator, section 8):
// the speed of groups, their stalls at cluster events, and the order of jobs with equal keys.
type muriWorld struct {
	least   bool // ordered by received service, not by remaining service
	doubles bool // pairs of groups are found with doubles
	kinds   [][3]float64
	periods map[[muriGroup]int]float64 // by kinds of jobs; looked up, never iterated
	planned map[cluster.JobID]cluster.JobID
}

const muriGroup = 4

// company is a job's state in this world.
type company struct {
	kind    int        // index in muriWorld.kinds
	busy    [3]float64 // seconds per iteration on each resource
	key     float64    // GPU-seconds remaining, or received
	devices uint64     // while it runs
	cur     float64    // seconds per iteration in its current group
	stall   float64    // what it loses there at a cluster event
}

// measure sets the time of an iteration on each resource.
func (j *job) measure() error {
	if len(j.entry.Work.Stages) != len(j.busy) {
		return fmt.Errorf("compat: job %d has %d stages; this world knows three", j.entry.Job.ID,
			len(j.entry.Work.Stages))
	}
	for k, d := range j.entry.Work.Stages {
		j.busy[k] = float64(d) / float64(time.Millisecond) / 1000
	}
	return nil
}

// enter prepares a job of the workload.
func (m *muriWorld) enter(j *job) error {
	if err := j.measure(); err != nil {
		return err
	}
	j.kind = slices.Index(m.kinds, j.busy)
	if j.kind < 0 {
		j.kind = len(m.kinds)
		m.kinds = append(m.kinds, j.busy)
	}
	j.entry.Job.Model = fmt.Sprintf("%s/%d", j.entry.Job.Model, j.kind) // a model has one speed in each group
	if m.least {
		return nil
	}
	// before its first run its duration counts, without the additional time per iteration
	stated := j.entry.Run.Truncate(time.Second)
	j.key = float64(stated.Seconds() * j.gpus)
	j.entry.Job.Estimate = max(1, stated)
	return nil
}

// ran updates a job's key.
func (m *muriWorld) ran(j *job) {
	j.key = float64(j.left*j.step) * j.gpus
	if m.least {
		j.key = float64(j.used * j.gpus)
	}
}

// order sorts jobs by their keys.
func (m *muriWorld) order(live []*job) {
	slices.SortStableFunc(live, func(a, b *job) int { return cmp.Compare(a.key, b.key) })
}

// settle lists jobs by size, and sets their speeds and stalls in their groups.
func (m *muriWorld) settle(live []*job) error {
	slices.SortStableFunc(live, func(a, b *job) int { return cmp.Compare(b.gpus, a.gpus) })
	for _, j := range live {
		host, planned := m.planned[j.entry.Job.ID]
		if planned != j.running {
			return fmt.Errorf("compat: job %d runs: %t; planned: %t", j.entry.Job.ID, j.running, planned)
		}
		if !j.running {
			continue
		}
		var group []*job
		stall, with := 0.0, false
		for _, o := range live {
			if o.running && o.devices == j.devices {
				group = append(group, o)
				stall += o.alone
				with = with || o.entry.Job.ID == host
			}
		}
		if !with {
			return fmt.Errorf("compat: job %d is not where job %d is", j.entry.Job.ID, host)
		}
		j.cur, j.stall = m.period(group), stall
	}
	return nil
}

// period is the seconds of an iteration of a group.
func (m *muriWorld) period(group []*job) float64 {
	if len(group) == 1 {
		return group[0].step
	}
	key := [muriGroup]int{}
	for i, j := range group {
		key[i] = j.kind + 1
	}
	slices.Sort(key[:])
	p, ok := m.periods[key]
	if !ok {
		triples := make([][3]float64, len(group))
		for i, j := range group {
			triples[i] = j.busy
		}
		p = muriPeriod(triples)
		m.periods[key] = p
	}
	return p
}

// muriFactors is the slowdown of two, three and four jobs over the cycle of their stages, before
// the additional time per iteration.
var muriFactors = [...]float64{2: 1.33, 3: 1.5, 4: 1.37}

// muriPeriod is the shortest cycle over all orders of the jobs.
func muriPeriod(jobs [][3]float64) float64 {
	best := math.Inf(1)
	permute(jobs, 0, func() { best = min(best, muriCycle(jobs)) })
	if len(jobs) == 2 {
		a, b := jobs[0], jobs[1]
		best = min(best, max(a[0], b[1]+b[2])+max(b[0], a[1]+a[2]))
	}
	alone := 1.015
	return best * float64(muriFactors[len(jobs)]/alone)
}

func permute(list [][3]float64, from int, f func()) {
	if from == len(list) {
		f()
		return
	}
	for i := from; i < len(list); i++ {
		list[from], list[i] = list[i], list[from]
		permute(list, from+1, f)
		list[from], list[i] = list[i], list[from]
	}
}

// muriCycle follows jobs through their stages until the times repeat: at each point the next three
// of four places have work for one resource each.
func muriCycle(p [][3]float64) float64 {
	var f [9]float64
	for i := range 8 {
		at := 0.0
		if k := (i + 1) % 4; k < len(p) {
			at = max(at, f[i]+p[k][2])
		}
		if k := (i + 2) % 4; k < len(p) {
			at = max(at, f[i]+p[k][1])
		}
		if k := (i + 3) % 4; i > 0 && k < len(p) {
			at = max(at, f[i-1]+p[k][0])
		}
		f[i+1] = at
		if i >= 4 && near(f[i+1]-f[i-3], f[i]-f[i-4], 1e-3, 0) && f[i+1]-f[i-3] > 0 {
			return f[i+1] - f[i-3]
		}
	}
	return f[8] - f[4]
}

// muriScale converts that world's efficiencies to integers, so large that the policy considers any
// progress together worthwhile (its "unpack" is off).
const muriScale = 1e12

// muriSpeeds tells the policy, for jobs on the same GPUs, what each adds to that world's efficiency
// instead of their speeds.
type muriSpeeds struct {
	w *World
	m *muriWorld
}

// Speed implements sched.Speeds.
func (muriSpeeds) Speed(*cluster.Job, string, int) int64 { return 1_000_000 }

// Slice implements sched.Speeds: there are no MIG instances here.
func (muriSpeeds) Slice(*cluster.Job, string, string, int64) int64 { return 1_000_000 }

// Beside implements sched.Speeds.
func (s muriSpeeds) Beside(j *cluster.Job, _ string, others []*cluster.Job) int64 {
	own := &s.w.jobs[j.ID]
	group := []*job{own}
	for _, o := range others {
		group = append(group, &s.w.jobs[o.ID])
	}
	busy := own.busy[0] + own.busy[1] + own.busy[2]
	return int64(math.Round(busy / (s.m.period(group) * muriGroup) * muriScale))
}

// pairer is a policy with a replaceable pairing of groups.
type pairer interface {
	sched.Planner
	Pair(pairs func(groups [][]sched.JobView) []int)
}

// pairs matches groups by their efficiency in doubles, which differ in their last bits where
// efficiencies are equal.
func (m *muriWorld) pairs(w *World, groups [][]sched.JobView) []int {
	list := make([][]*job, len(groups))
	busy := make([][]float64, len(groups))
	for i, g := range groups {
		for _, v := range g {
			j := &w.jobs[v.Spec().ID]
			list[i] = append(list[i], j)
			busy[i] = append(busy[i], j.busy[0]+j.busy[1]+j.busy[2])
		}
	}
	return solve.MatchReal(len(groups), func(a, b int) float64 {
		if len(list[a])+len(list[b]) > muriGroup {
			return 0
		}
		sum := 0.0
		for _, i := range [2]int{a, b} {
			for _, d := range busy[i] {
				sum += d
			}
		}
		var both [muriGroup]*job
		return sum / (m.period(append(append(both[:0], list[a]...), list[b]...)) * muriGroup)
	})
}

// ready makes the policy pair and order jobs as this world does.
func (m *muriWorld) ready(w *World, cfg *engine.Config) error {
	p, ok := cfg.Policy.(pairer)
	if !ok {
		return fmt.Errorf("compat: profile %s goes with a policy that pairs jobs", w.p.Name)
	}
	if m.doubles {
		p.Pair(func(groups [][]sched.JobView) []int { return m.pairs(w, groups) })
	}
	cfg.Policy, cfg.Speeds = &muriTurns{p, w, m}, muriSpeeds{w, m}
	return nil
}

func (m *muriWorld) ended(*job) {}

// muriTurns shows the policy jobs in the world's order, once per event, and runs only jobs that it
// selected.
type muriTurns struct {
	sched.Planner
	w *World
	m *muriWorld
}

// Traits makes the policy plan once at every instant.
func (t *muriTurns) Traits() sched.Traits {
	traits := t.Planner.Traits()
	traits.Round = 1
	return traits
}

// Plan is the policy's plan as this world carries it out.
func (t *muriTurns) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	at := make(map[cluster.JobID]int, len(jobs)) // looked up, never iterated
	for i, j := range jobs {
		at[j.Spec().ID] = i
	}
	listed, from := make([]sched.JobView, 0, len(jobs)), make([]int, 0, len(jobs))
	for _, j := range t.w.live {
		if i, ok := at[j.entry.Job.ID]; ok {
			listed, from = append(listed, jobs[i]), append(from, i)
		}
	}
	plan := t.Planner.Plan(v, listed)
	targets := make([]engine.Target, len(jobs))
	t.m.planned = map[cluster.JobID]cluster.JobID{}
	for k, to := range plan.Targets {
		id := listed[k].Spec().ID
		switch {
		case to.Beside > 0:
			to.Idle = true
			t.m.planned[id] = cluster.JobID(to.Beside - 1)
		case to.Rank < int64(len(jobs)): // the selected jobs come first
			t.m.planned[id] = id
		default:
			to.Idle = true
		}
		targets[from[k]] = to
	}
	plan.Targets, plan.Next = targets, v.Now()+1
	return plan
}
