package sched

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// Planner is a policy that also decides how many GPUs, and of which kind, each job gets.
type Planner interface {
	Policy
	// Plan returns a target for each of the jobs, in the same order. They are the jobs that could
	// run: those in line, those waiting for a plan and those holding devices; sorted by number,
	// without those in pools (Drawer). The result belongs to the engine; the memo of a target may
	// be that of the job's last target, but not of another job's. A job's key must depend only on
	// its specification and its target.
	Plan(v View, jobs []JobView) Plan
}

// Chooser is a Planner whose plans concern only some waiting jobs. The others are not passed to
// Plan until they hold devices, so that a long line of them costs a plan nothing.
type Chooser interface {
	Planner
	// Chooses reports whether plans concern a job while it waits. The result must depend only on
	// the specification.
	Chooses(spec *cluster.Job) bool
}

// Plan is the decision of a planner at one instant.
type Plan struct {
	Targets []job.Target // of the jobs passed to Plan, then of those drawn from pools (Drawer)
	Next    cluster.Time // plan again at this time at the latest; Never: no need
	Memo    []int64      // passed to the next plan (View.Memo); it still belongs to the policy
}

// Drawer is a Planner that is not passed all waiting jobs: it draws the jobs to which it gives
// something from pools. The others keep the target Nothing.
type Drawer interface {
	Planner
	// Pool returns the key of a job that waits for a plan among those of its shape and class: lower
	// keys first, then by submission. ok: the job belongs in a pool. The result must not change
	// while the job waits.
	Pool(v View, j JobView) (class int64, at Key, ok bool)
	// Nothing is the target of a job while it is in a pool: an idle one.
	Nothing(j JobView) job.Target
}

// Explainer is a Planner that explains its plans in words, for users who ask why a job waits.
type Explainer interface {
	// Explain describes the memo of a job's target, or, if the job got nothing, that of the last
	// plan; "": no explanation.
	Explain(t *job.Target, plan []int64) string
}

// Pool is the part of a pool that the plan has not drawn yet.
type Pool struct {
	w    *World
	jobs *order.List
	at   order.Cursor
}

// Pools lists the pools that have waiting jobs, each from its head.
func (v View) Pools() []Pool {
	p := v.w.Pools
	p.open = p.open[:0]
	for i := range p.Lists {
		if p.Lists[i].Len() > 0 {
			p.open = append(p.open, Pool{w: v.w, jobs: &p.Lists[i]})
		}
	}
	return p.open
}

// Head is the next job of the pool; ok: there is one.
func (p *Pool) Head() (j JobView, ok bool) {
	it, ok := p.jobs.At(&p.at)
	if !ok {
		return JobView{}, false
	}
	return JobView{p.w, p.w.Oracle.Job(it.ID)}, true
}

// Len is the number of jobs in the pool, including those that this plan has drawn.
func (p *Pool) Len() int { return p.jobs.Len() }

// Draw takes the head out. The plan must have a target for it, after those of the jobs passed to
// Plan and of those drawn before.
func (p *Pool) Draw() {
	if j, ok := p.Head(); ok {
		p.w.Plan.Drawn = append(p.w.Plan.Drawn, j.j)
	}
	p.at.Next()
}

// Targets returns n empty targets for a plan, in memory that is reused: a policy has one plan at a
// time.
func (v View) Targets(n int) []job.Target {
	p := v.w.Plan
	if cap(p.targets) < n {
		p.targets = make([]job.Target, n+n/2)
	}
	clear(p.targets[:n])
	return p.targets[:n]
}

// Scratch returns n zero values, in memory that is reused by the next plan.
func Scratch[T any](v View, n int) []T {
	list, ok := v.w.Plan.scratch.(*[]T)
	if !ok || cap(*list) < n {
		fresh := make([]T, n, n+n/2)
		v.w.Plan.scratch = &fresh
		return fresh
	}
	clear((*list)[:n])
	return (*list)[:n]
}

// Memory is like Scratch for any type: its content is that of the last plan, so that slices in it
// can be refilled. Nothing may depend on the content.
func Memory[T any](v View) *T {
	m, ok := v.w.Plan.scratch.(*T)
	if !ok {
		m = new(T)
		v.w.Plan.scratch = m
	}
	return m
}

// Memo is the memo of the policy's last plan. It must not be changed.
func (v View) Memo() []int64 { return v.w.Plan.Memo }

// Planned returns when the last plan was made; 0: there was none.
func (v View) Planned() cluster.Time { return v.w.Plan.Last }
