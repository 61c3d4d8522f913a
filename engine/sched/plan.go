package sched

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// Planner is a policy that answers "how much, and of which kind?", too.
type Planner interface {
	Policy
	// Plan returns a target for each of the jobs, in the same order. They are
	// those that could run: that wait in line, or for a plan, or hold devices;
	// by number, without those in pools (Drawer). What it returns belongs to the engine; a
	// target's memo may be that of the job's last target, but of no other job's. The key of a job
	// depends on nothing but the job's specification and its target.
	Plan(v View, jobs []JobView) Plan
}

// Chooser is a Planner that has something to say of some jobs only while they wait:
// the others it is not shown before they hold devices, so that a long line of them
// costs a plan nothing.
type Chooser interface {
	Planner
	// Chooses reports whether plans are about a job while it waits. What it
	// returns depends on the specification alone.
	Chooses(spec *cluster.Job) bool
}

// Plan is what a planner says at one instant.
type Plan struct {
	Targets []job.Target // of the jobs that it was shown, then of those that it drew (Drawer)
	Next    cluster.Time // plan again then, even if nothing happens; Never: no need
	Memo    []int64      // what the policy wants to be shown next time (View.Memo); it stays the policy's
}

// Drawer is a Planner that is not shown all who wait: it draws from pools whom it gives
// something. The others keep the target Nothing.
type Drawer interface {
	Planner
	// Pool returns the place of a job that waits for a plan among those of its shape and
	// of a class, lower keys first, then who was submitted first; ok: it stands in a
	// pool. It must not change while the job waits.
	Pool(v View, j JobView) (class int64, at Key, ok bool)
	// Nothing is the target of a job while it stands in a pool: an idle one.
	Nothing(j JobView) job.Target
}

// Explainer is a Planner that says in words what it noted when it planned. It is asked when people want to know why a
// job waits.
type Explainer interface {
	// Explain says what is in the memo of a job's target, or, of one that got nothing, in that of
	// the last plan; "": nothing.
	Explain(t *job.Target, plan []int64) string
}

// Pool is what a plan has not drawn yet of a pool.
type Pool struct {
	w    *World
	jobs *order.List
	at   order.Cursor
}

// Pools lists the pools in which jobs wait, each from its head.
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

// Len is how many jobs stand in the pool, those included that this plan has drawn.
func (p *Pool) Len() int { return p.jobs.Len() }

// Draw takes the head. The plan has a target for it, behind those of the jobs that it was
// shown and of those who were drawn before.
func (p *Pool) Draw() {
	if j, ok := p.Head(); ok {
		p.w.Plan.Drawn = append(p.w.Plan.Drawn, j.j)
	}
	p.at.Next()
}

// Targets returns n empty targets for a plan, in memory that the engine uses
// again: a policy has one plan at a time.
func (v View) Targets(n int) []job.Target {
	p := v.w.Plan
	if cap(p.targets) < n {
		p.targets = make([]job.Target, n+n/2)
	}
	clear(p.targets[:n])
	return p.targets[:n]
}

// Scratch returns n zero values, in memory that the engine uses again for the
// next plan.
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

// Memory is what Scratch is, of whatever kind a policy likes: it comes as the last plan left
// it, so that slices in it can be filled anew. Nothing may depend on what is in it.
func Memory[T any](v View) *T {
	m, ok := v.w.Plan.scratch.(*T)
	if !ok {
		m = new(T)
		v.w.Plan.scratch = m
	}
	return m
}

// Memo is what the policy's last plan asked to be shown. It must not be changed.
func (v View) Memo() []int64 { return v.w.Plan.Memo }

// Planned returns when the last plan was made; 0: none was yet.
func (v View) Planned() cluster.Time { return v.w.Plan.Last }
