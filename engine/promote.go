package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/sched"
)

// awaitPromotion sets the time at which a job that enters the line is promoted. One that is due already, because it was
// held meanwhile, is promoted at once; but one that lost its place in a pass not before that is over: a job that comes
// back in a pass comes after the one that sent it there, so that a pass ends.
func (e *Engine) awaitPromotion(j *job.State) {
	if e.promoter == nil {
		return
	}
	j.PromoteAt = e.promotionOf(j)
	if j.PromoteAt <= e.w.Now && !e.current.walk.Open() {
		e.beginAgain(j)
	}
	e.watchPromotion(j)
}

// awaitPromotions is awaitPromotion for all jobs in line after a restart. Those that are due are promoted in the next
// step.
func (e *Engine) awaitPromotions() {
	if e.promoter, _ = e.cfg.Policy.(sched.Promoter); e.promoter == nil {
		return
	}
	for _, j := range e.jobs {
		if j != nil && j.Eligible {
			j.PromoteAt = e.promotionOf(j)
			e.watchPromotion(j)
		}
	}
}

func (e *Engine) watchPromotion(j *job.State) {
	e.timers.Set(max(j.PromoteAt, e.w.Now), pending.Promote, j)
}

// promotionOf returns when a job in line is promoted. One that has got no further
// since it was promoted, or since it came, is not: it would push others out for
// nothing, and where all of them lose their work by that, or spend each turn on
// restoring it, no job would ever complete. So each promotion costs work that was done,
// of which a job has only so much.
func (e *Engine) promotionOf(j *job.State) cluster.Time {
	if max(j.Done, j.Asleep) <= j.DoneBefore {
		return cluster.Never
	}
	return e.promoter.PromoteAt(e.w.View(), e.w.Job(j))
}

// beginAgain counts a job's service from zero.
func (e *Engine) beginAgain(j *job.State) {
	e.touch(j)
	j.DoneBefore = max(j.Done, j.Asleep)
	j.ServedBefore, j.RanBefore, j.Promotion, j.PromoteAt = j.ServiceAt(e.w.Now), j.Ran, e.w.Now, cluster.Never
}

// promote takes a waiting job to where it belongs as one that has not run. It
// keeps its age.
func (e *Engine) promote(j *job.State) {
	e.dequeue(j)
	e.beginAgain(j)
	e.lineUp(j)
	e.fresh = true
}
