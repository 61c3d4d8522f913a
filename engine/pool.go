package engine

import (
	"time"

	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// What a plan costs must not follow the backlog. Of the jobs that wait and are alike
// to the policy, most get nothing as long as those before them get nothing. They wait
// in pools, ordered once, and a plan looks at the first of each.

// Drawer is a Planner that is not shown all who wait: it draws from pools whom it gives
// something. The others keep the target Nothing.
type Drawer interface {
	Planner
	// Pool returns the place of a job that waits for a plan among those of its shape and
	// of a class, lower keys first, then who was submitted first; ok: it stands in a
	// pool. It must not change while the job waits.
	Pool(v View, j JobView) (class int64, at order.Key, ok bool)
	// Nothing is the target of a job while it stands in a pool: an idle one.
	Nothing(j JobView) job.Target
}

// poolKey is what is alike of those who stand in one pool.
type poolKey struct {
	shape int32
	class int64
}

// poolState is the pools.
type poolState struct {
	drawer Drawer // nil: the policy is shown all
	ids    map[poolKey]int32
	lists  []order.List
	n      int // jobs in pools
	open   []Pool
}

// Pool is what a plan has not drawn yet of a pool.
type Pool struct {
	e    *Engine
	jobs *order.List
	at   order.Cursor
}

// Pools lists the pools in which jobs wait, each from its head.
func (v View) Pools() []Pool {
	p := &v.e.pools
	p.open = p.open[:0]
	for i := range p.lists {
		if p.lists[i].Len() > 0 {
			p.open = append(p.open, Pool{e: v.e, jobs: &p.lists[i]})
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
	return JobView{p.e, p.e.jobs[it.ID]}, true
}

// Len is how many jobs stand in the pool, those included that this plan has drawn.
func (p *Pool) Len() int { return p.jobs.Len() }

// Draw takes the head. The plan has a target for it, behind those of the jobs that it was
// shown and of those who were drawn before.
func (p *Pool) Draw() {
	j, _ := p.Head()
	p.e.plans.jobs = append(p.e.plans.jobs, j)
	p.at.Next()
}

// joinPool puts a job in a pool, if it is one that waits for a plan to give it something.
func (e *Engine) joinPool(j *job.State) bool {
	p := &e.pools
	if p.drawer == nil || j.State != job.Pending || e.now < j.Poolless || j.Parked != job.ParkedPlan || j.Home != nil || j.Frozen != nil || j.Target != nil && !j.Target.Idle {
		return false
	}
	class, at, ok := p.drawer.Pool(View{e}, JobView{e, j})
	if !ok {
		j.Poolless = e.now.Add(time.Minute) // to be shown meanwhile changes no plan
		return false
	}
	k := poolKey{j.Base, class}
	id, ok := p.ids[k]
	if !ok {
		id = int32(len(p.lists))
		p.lists = append(p.lists, order.List{})
		p.ids[k] = id
	}
	j.Pool, j.Pooled = id, true
	j.Key = order.Item{Key: at, Submit: j.Spec.Submit, ID: int32(j.Spec.ID)}
	p.lists[id].Insert(j.Key)
	p.n++
	if t := p.drawer.Nothing(JobView{e, j}); !t.Same(j.Target) {
		e.touch(j)
		e.setTarget(j, &t)
	}
	return true
}

// leavePool has plans be shown a job that stood in a pool.
func (e *Engine) leavePool(j *job.State) {
	if !j.Pooled {
		return
	}
	if !e.pools.lists[j.Pool].Remove(j.Key) {
		panic("engine: a job is missing from its pool")
	}
	e.pools.n--
	j.Pooled = false
	e.include(j)
}

// drawn has those leave their pools whom a plan drew and gave something; the others
// are where they were.
func (e *Engine) drawn(jobs []JobView, targets []job.Target) {
	for i := range jobs {
		if !targets[i].Idle {
			e.leavePool(jobs[i].j)
		}
	}
}
