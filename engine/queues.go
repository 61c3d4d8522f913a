package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/quota"
)

// initQueues makes the tree of queues, to which so many milli-GPU may be guaranteed, with those that were removed and
// have jobs that run.
func (e *Engine) initQueues(queues, removed []cluster.Queue, most cluster.Milli) error {
	byUser, err := e.limits.Init(queues, removed, most)
	if err != nil {
		return err
	}
	e.line.SetQueues(byUser)
	e.tickLimits()
	return nil
}

func (e *Engine) mustInitQueues(queues, removed []cluster.Queue) {
	if err := e.initQueues(queues, removed, e.w.Capacity); err != nil {
		panic("engine: a checked queue tree is refused: " + err.Error())
	}
}

// tickLimits draws the consequences of windows and periods that begin or end now.
func (e *Engine) tickLimits() {
	if e.limits.Tick(e.leaveLimits) {
		e.epoch++
		e.fresh = true
	}
}

// A live change of the queue tree. Nothing that runs is touched: what is above
// a lowered limit runs on, and nothing starts there until it is below. What
// queues have used so far is kept by path; a queue that is removed while jobs
// of it run is closed: it is owed nothing and takes no job until they are gone.

func (e *Engine) replaceQueues(queues []cluster.Queue) {
	if _, err := quota.New(queues, e.w.Capacity); err != nil {
		return // the driver checks the tree before it asks for a change
	}
	e.dropDests(-1, 0) // limits may be others now; the old tree is charged for them
	for _, j := range e.jobs {
		if j != nil {
			e.dequeue(j)
			e.plan.Unpool(j) // of a queue that has another number now
		}
	}
	history := e.limits.History()
	e.mustInitQueues(queues, nil)
	if removed := e.limits.Removed(e.jobs); len(removed) > 0 {
		e.mustInitQueues(queues, removed)
	}
	e.limits.GoOn(history)
	var orphans []*job.State
	for _, j := range e.jobs {
		if j == nil || j.State == job.Done {
			continue
		}
		q, err := e.limits.Of(j.Spec)
		switch {
		case err == nil:
			j.Queue = int32(q)
		case j.State == job.Pending: // last: a rejection may wake others, which must be in their queues by then
			j.Queue = int32(e.limits.Last())
			orphans = append(orphans, j)
			continue
		default:
			j.Queue = int32(e.limits.Remains(j.Spec.Queue))
		}
		if j.State == job.Pending && j.Parked == job.NotParked {
			e.lineUp(j)
		} else if j.Booked() || j.Dest != nil {
			e.limits.Charge(j, 1)
			e.st.Commit()
		}
	}
	e.lending.Recount(e.jobs) // all that jobs hold was charged again
	for _, j := range orphans {
		if _, err := e.limits.Of(j.Spec); j.State == job.Pending { // else it was rejected with another
			e.reject(j, job.Impossible, err.Error())
		}
	}
	e.epoch++
	e.fresh = true
}

// leaveLimits makes queues leave what a window's end took from them: first
// what exceeds a limit, then what others borrow of guarantees in force.
func (e *Engine) leaveLimits() {
	e.dropDests(-1, 0)
	for q := e.w.Tree.Len() - 1; q > 0; q-- {
		for e.w.Tree.Excess(q) > 0 && e.dismiss(e.victims.LeastIn(q)) {
		}
	}
	for e.w.Tree.Available(quota.Root) < 0 && e.dismiss(e.victims.LeastBorrower()) {
	}
}

// FairShares lists queues, parents first, and the users in them with their decayed usage and factor as
// of the last step. Usage is counted only under a policy that looks at users; false: this one does not.
// Nothing changes by asking: ranks that decisions use are computed when the policy wants them.
func (e *Engine) FairShares() ([]FairShare, bool) { return e.limits.FairShares() }

// Factors returns the weights and the factors of all waiting jobs, by number; nil where the policy's
// order is no sum of factors.
func (e *Engine) Factors() (weights *Factors, jobs map[cluster.JobID]Factors) {
	if p, ok := e.cfg.Policy.(sched.Factored); ok {
		w := p.Weights()
		return &w, e.limits.Factors(p, e.jobs)
	}
	return nil, nil
}

// QueueUse lists the queues, parents first, with what their jobs hold.
func (e *Engine) QueueUse() []QueueUse { return e.limits.QueueUse() }
