package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Promoter is a policy of levels that takes jobs back into the first one when
// they have waited long for how long they ran: from then on their service
// counts from zero (Tiresias, NSDI'19, PROMOTEKNOB). Only who got further meanwhile is asked about.
type Promoter interface {
	// PromoteAt returns when a job that waits on is promoted; Never: not at all.
	// It must not change while the job waits.
	PromoteAt(v View, j JobView) cluster.Time
}

// Executed returns the service (see Service) and the wall time that
// the job received since it was last promoted.
func (j JobView) Executed() (service int64, ran time.Duration) {
	return j.Service() - j.j.ServedBefore, j.Ran() - j.j.RanBefore
}

// WaitsSince returns when the job's waiting began: when it was submitted, last
// stopped, or last promoted.
func (j JobView) WaitsSince() cluster.Time { return max(j.j.Since, j.j.Promotion) }

// awaitPromotion sets the time at which a job that enters the line is promoted.
// One that is due already, because it was held meanwhile, is promoted at once;
// but one that lost its place in a pass not before that is over: whoever comes
// back in a pass comes after the job that sent it there, so that a pass ends.
func (e *Engine) awaitPromotion(j *job.State) {
	if e.promoter == nil {
		return
	}
	j.PromoteAt = e.promotionOf(j)
	if j.PromoteAt <= e.now && !e.settling {
		e.beginAgain(j)
	}
	e.timers.push(timer{max(j.PromoteAt, e.now), timerPromote, int32(j.Spec.ID), j.Gen})
}

// promotionOf returns when a job in line is promoted. One that has got no further
// since it was promoted, or since it came, is not: it would push others out for
// nothing, and where all of them lose their work by that, or spend each turn on
// restoring it, nobody would ever end. So each promotion costs work that was done,
// of which a job has only so much.
func (e *Engine) promotionOf(j *job.State) cluster.Time {
	if max(j.Done, j.Asleep) <= j.DoneBefore {
		return cluster.Never
	}
	return e.promoter.PromoteAt(View{e}, JobView{e, j})
}

// beginAgain counts a job's service from zero.
func (e *Engine) beginAgain(j *job.State) {
	e.touch(j)
	j.DoneBefore = max(j.Done, j.Asleep)
	j.ServedBefore, j.RanBefore, j.Promotion, j.PromoteAt = j.ServiceAt(e.now), j.Ran, e.now, cluster.Never
}

// promote takes a waiting job to where it belongs as one that has not run. It
// keeps its age.
func (e *Engine) promote(j *job.State) {
	e.dequeue(j)
	e.beginAgain(j)
	e.lineUp(j)
	e.fresh = true
}
