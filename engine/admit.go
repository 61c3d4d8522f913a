package engine

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/sched"
)

// admit makes a pending job eligible, or parks it and says why.
func (e *Engine) admit(j *job.State) {
	e.touch(j)
	if e.limits.Closed(int(j.Queue)) {
		e.reject(j, job.Impossible, fmt.Sprintf("queue %q was removed while the job ran", j.Spec.Queue))
		return
	}
	s := j.Spec
	var park job.Parked
	switch {
	case s.Hold:
		park = job.ParkedHold
		e.deps.LeaveArray(j) // it may have run when it was held: others go on
	case s.Begin > e.w.Now:
		park = job.ParkedBegin
		e.timers.Set(s.Begin, pending.Begin, j)
	default:
		var never bool
		if park, never = e.dependencies(j); never {
			e.reject(j, job.NeverReady, "a dependency can no longer be satisfied")
			return
		}
	}
	if park == job.NotParked && s.Array != nil && s.Array.Cap > 0 && !e.deps.EnterArray(j) {
		park = job.ParkedArray
	}
	if park == job.NotParked {
		if e.boundWait(j); e.plan.Gated(j) {
			park = job.ParkedPlan
		}
	}
	if !j.Idle() { // else it is as the plan has it
		e.plan.JobsChanged()
	}
	if j.Parked = park; park == job.NotParked {
		e.enqueue(j)
	}
}

// boundWait sets the time at which the job will have waited too long. Time for
// which it was held, or waited for others' ends, does not count; a placement
// that was taken back does not interrupt the waiting.
func (e *Engine) boundWait(j *job.State) {
	if e.cfg.HoldAfter > 0 {
		j.StarvingSince = min(j.StarvingSince, e.w.Now)
	}
	if e.cfg.Starvation == 0 || j.Promoted || e.w.Divided(j) {
		return
	}
	j.StarvingSince = min(j.StarvingSince, e.w.Now)
	at := j.StarvingSince.Add(e.cfg.Starvation)
	if at <= e.w.Now {
		j.Promoted = true
		return
	}
	e.timers.Set(at, pending.Starving, j)
}

// dependencies reports whether a job's dependencies hold, or never will. Those that a delay is waited for have a timer
// afterwards.
func (e *Engine) dependencies(j *job.State) (job.Parked, bool) {
	return e.deps.Holds(j, e.w.Now, func(at cluster.Time) { e.timers.Set(at, pending.Begin, j) })
}

// enqueue makes a pending job eligible.
func (e *Engine) enqueue(j *job.State) {
	j.EligibleSince = e.w.Now
	e.lineUp(j)
}

// lineUp is enqueue for a job that was in line already: its age is what it was.
func (e *Engine) lineUp(j *job.State) {
	e.touch(j)
	e.awaitPromotion(j)
	e.ask(j)
	leads := e.line.Insert(j)
	e.find.Await(j, 1)
	e.watchHome(j)
	if leads {
		e.fresh = true
	} else if e.mode >= sched.EASY || e.cfg.Starvation > 0 || e.resv.HasAdvance() {
		e.fresh = true // it may be short enough to backfill
	}
}

// dequeue takes a job out of its group.
func (e *Engine) dequeue(j *job.State) {
	if !j.Eligible {
		return
	}
	e.touch(j)
	e.line.Remove(j)
	e.find.Await(j, -1)
	e.reshape(j, j.Base)
}

// rekey evaluates the keys of the line again.
func (e *Engine) rekey() {
	e.line.Rekey()
	e.fresh = true
	e.epoch++
}
