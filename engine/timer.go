package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
)

// timerHolds reports whether a timer would do anything.
func (e *Engine) timerHolds(t *pending.Timer) bool {
	j := e.jobs[t.Job]
	if !t.Current(j) {
		return false
	}
	switch t.Kind {
	case pending.Begin:
		return j.AwaitsTime()
	case pending.Starving:
		return j.State == job.Pending && (j.Eligible || j.Parked == job.ParkedPlan) && !j.Promoted
	case pending.Slow:
		return j.State == job.Running && j.Slow != 0 && t.At == j.Slow.Add(slowFor)
	case pending.Promote:
		return j.Eligible && t.At >= j.PromoteAt
	case pending.Home:
		return t.At == e.w.LeavesHomeAt(j)
	case pending.Movable:
		return (j.State == job.Starting || j.State == job.Running) && t.At == j.MovableAt()
	case pending.Limit, pending.Safe, pending.KeyDue: // the last is kept with the jobs that run
	}
	return true
}

// runTimers acts on everything that is due.
func (e *Engine) runTimers() {
	for e.timers.At() <= e.w.Now {
		t := e.timers.Pop()
		e.fire(e.jobs[t.Job], t.Kind)
	}
	e.epoch += int64(e.running.ChangeKeys()) // they may be victims now
	if e.past.Learn() {                      // any key may be another
		e.rekey()
		e.running.UpdateKeys()
		e.epoch++
		e.running.WatchAll()
	}
	if p := cluster.Time(e.w.Traits.Rekey); p > 0 && e.line.Len() > 0 && e.w.Now/p != e.rekeyed {
		e.rekeyed = e.w.Now / p
		// what the policy sees of usage is as of now, not of the first read: ranks that change then make every job be
		// compared once more
		e.limits.RankAgain()
		e.rekey()
	}
	if p := cluster.Time(e.w.Traits.Rerun); p > 0 && e.line.Len() > 0 && e.w.Now/p != e.rerunAt {
		e.rerunAt = e.w.Now / p
		e.running.UpdateKeys()
		e.epoch++
	}
	e.tickLimits()
	e.tickAdvance()
}

func (e *Engine) fire(j *job.State, kind pending.TimerKind) {
	switch kind {
	case pending.Begin:
		if j.AwaitsTime() {
			e.admit(j)
		}
	case pending.Limit:
		if j.State == job.Running || j.State == job.Starting {
			e.stop(j, job.Kill, job.TimedOut, cluster.NoJob)
		}
	case pending.Starving:
		e.plan.Unpool(j)
		e.dequeue(j)
		j.Promoted = true
		j.Parked = job.NotParked
		e.enqueue(j)
		e.fresh = true
	case pending.Safe:
		e.epoch++
		e.follow(j)
	case pending.Promote:
		e.promote(j)
	case pending.Slow:
		e.stopSlow(j)
	case pending.Home, pending.Movable:
		e.retryHomed()
	case pending.KeyDue: // kept with the jobs that run
	}
}
