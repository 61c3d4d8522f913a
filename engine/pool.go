package engine

import (
	"time"

	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
)

// The cost of a plan must not grow with the backlog. Of the waiting jobs that are alike
// to the policy, most get nothing as long as those before them get nothing. They wait
// in pools, ordered once, and a plan looks at the first of each.

// poolKey is what the jobs of one pool have in common.
type poolKey struct {
	shape int32
	class int64
}

// poolState is the pools.
type poolState struct {
	sched.Pools
	drawer sched.Drawer // nil: the policy is shown all
	ids    map[poolKey]int32
	n      int // jobs in pools
}

// joinPool puts a job in a pool, if it is one that waits for a plan to give it something.
func (e *Engine) joinPool(j *job.State) bool {
	p := &e.pools
	if p.drawer == nil || j.State != job.Pending || e.w.Now < j.Poolless || j.Parked != job.ParkedPlan ||
		j.Home != nil || j.Frozen != nil || j.Target != nil && !j.Target.Idle {
		return false
	}
	class, at, ok := p.drawer.Pool(e.w.View(), e.w.Job(j))
	if !ok {
		j.Poolless = e.w.Now.Add(time.Minute) // to be shown meanwhile changes no plan
		return false
	}
	k := poolKey{j.Base, class}
	id, ok := p.ids[k]
	if !ok {
		id = int32(len(p.Lists))
		p.Lists = append(p.Lists, order.List{})
		p.ids[k] = id
	}
	j.Pool, j.Pooled = id, true
	j.Key = order.Item{Key: at, Submit: j.Spec.Submit, ID: int32(j.Spec.ID)}
	p.Lists[id].Insert(j.Key)
	p.n++
	if t := p.drawer.Nothing(e.w.Job(j)); !t.Same(j.Target) {
		e.touch(j)
		e.setTarget(j, &t)
	}
	return true
}

// leavePool takes a job out of its pool: plans are shown it from now on.
func (e *Engine) leavePool(j *job.State) {
	if !j.Pooled {
		return
	}
	if !e.pools.Lists[j.Pool].Remove(j.Key) {
		panic("engine: a job is missing from its pool")
	}
	e.pools.n--
	j.Pooled = false
	e.include(j)
}

// drawn takes the jobs that a plan drew and gave something out of their pools; the others
// keep their places.
func (e *Engine) drawn(jobs []*job.State, targets []job.Target) {
	for i := range jobs {
		if !targets[i].Idle {
			e.leavePool(jobs[i])
		}
	}
}
