package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/internal/heap"
)

type timerKind uint8

const (
	timerBegin    timerKind = iota // a job may be considered from now on, or what it depends on is long enough ago
	timerLimit                     // a job's time limit strikes
	timerKey                       // a running job's key changes
	timerStarving                  // a pending job has waited too long
	timerSafe                      // a job's minimum run time is over
	timerPromote                   // a pending job has waited long for how long it ran
	timerSlow                      // a job has been too slow for a while among others in shares of its GPUs
	timerHome                      // a suspended job has waited for its devices as long as leaving its memory costs
	timerSettled                   // a job that runs may leave its devices for another's memory
)

type timer struct {
	at   cluster.Time
	kind timerKind
	id   int32
	gen  uint32 // of the job when it was set; a different one now: void
}

// Before orders timers by time, then by job and kind.
func (t *timer) Before(b *timer) bool {
	if t.at != b.at {
		return t.at < b.at
	}
	if t.id != b.id {
		return t.id < b.id
	}
	return t.kind < b.kind
}

// timerHeap is a binary heap; void timers are dropped when they surface.
type timerHeap []timer

func (h *timerHeap) push(t timer) {
	if t.at != cluster.Never {
		heap.Push((*[]timer)(h), t)
	}
}

func (h *timerHeap) pop() timer { return heap.Pop((*[]timer)(h)) }

// peek returns the time of the first timer that still holds.
func (h *timerHeap) peek(e *Engine) (cluster.Time, bool) {
	for len(*h) > 0 {
		t := (*h)[0]
		if t.holds(e, e.jobs[t.id]) {
			return t.at, true
		}
		h.pop()
	}
	return 0, false
}

// dueKeys takes the timers of keys that are due, void ones too; the list is good until the next.
func (e *Engine) dueKeys() []timer {
	e.scratch.due = e.keyTimes.take(e.scratch.due[:0], e.w.Now)
	return e.scratch.due
}

// take appends to buf all timers that are due, and drops them. Jobs that started together change their keys together:
// where that is a large part of all timers, what is left is made a heap again at once. Their order says nothing.
func (h *timerHeap) take(buf []timer, now cluster.Time) []timer {
	n := h.due(0, now)
	if n == 0 || n*bits.Len(uint(len(*h))) < len(*h) {
		for range n {
			buf = append(buf, h.pop())
		}
		return buf
	}
	buf = slices.Grow(buf, n)
	rest := (*h)[:0]
	for _, t := range *h {
		if t.at <= now {
			buf = append(buf, t)
		} else {
			rest = append(rest, t)
		}
	}
	*h = rest
	heap.Init(rest)
	return buf
}

// due counts the timers that are due from the i-th of the heap down.
func (h *timerHeap) due(i int, now cluster.Time) int {
	if i >= len(*h) || (*h)[i].at > now {
		return 0
	}
	return 1 + h.due(2*i+1, now) + h.due(2*i+2, now)
}

// holds reports whether a timer would do anything. One that would not is dropped:
// should its job come to need it again, it is set again.
func (t *timer) holds(e *Engine, j *job.State) bool {
	switch {
	case j.Gen != t.gen:
		return false
	case t.kind == timerKey:
		return t.at == j.NextKey
	case t.kind == timerBegin:
		return j.AwaitsTime()
	case t.kind == timerStarving:
		return j.State == job.Pending && (j.Eligible || j.Parked == job.ParkedPlan) && !j.Promoted
	case t.kind == timerSlow:
		return j.State == job.Running && j.Slow != 0 && t.at == j.Slow.Add(slowFor)
	case t.kind == timerPromote:
		return j.Eligible && t.at >= j.PromoteAt
	case t.kind == timerHome:
		return t.at == e.leavesHomeAt(j)
	case t.kind == timerSettled:
		return (j.State == job.Starting || j.State == job.Running) && t.at == j.SettledAt()
	}
	return true
}

// runTimers acts on everything that is due.
func (e *Engine) runTimers() {
	for {
		at, ok := e.timers.peek(e)
		if !ok || at > e.w.Now {
			break
		}
		t := e.timers.pop()
		e.fire(e.jobs[t.id], t.kind)
	}
	for due := e.dueKeys(); len(due) > 0; due = e.dueKeys() {
		changed := e.scratch.changed[:0]
		for i := range due {
			if j := e.jobs[due[i].id]; due[i].holds(e, j) && (j.State == job.Running || j.State == job.Starting) {
				j.NextKey = 0 // should there be a second such timer, it is void
				changed = append(double(changed), j)
			}
		}
		e.rerunAllOf(changed)
		e.epoch += int64(len(changed)) // they may be victims now
		e.scratch.changed = changed
	}
	e.learn()
	if p := cluster.Time(e.w.Traits.Rekey); p > 0 && e.pending > 0 && e.w.Now/p != e.limits.rekeyed {
		e.limits.rekeyed = e.w.Now / p
		if e.limits.ranks != nil { // what the policy sees of usage is as of now
			e.fairRanks() // not left to whoever asks first: ranks that change then have everybody compared once more
		}
		e.rekey()
	}
	if p := cluster.Time(e.w.Traits.Rerun); p > 0 && e.pending > 0 && e.w.Now/p != e.limits.rerun {
		e.limits.rerun = e.w.Now / p
		e.rerunAll()
	}
	e.limits.tick(e)
	e.tickAdvance()
}

// rerunAll evaluates the keys of all jobs with devices again.
func (e *Engine) rerunAll() {
	e.unrank()
	e.tail.drop()
	e.scratch.items = e.byKey().Rewrite(e.scratch.items, func(old order.Item) order.Item {
		j := e.jobs[old.ID]
		if it := e.runItem(j); it != old {
			e.touch(j)
			j.Key = it
		}
		return j.Key
	})
	e.epoch++
}

func (e *Engine) fire(j *job.State, kind timerKind) {
	switch kind {
	case timerBegin:
		if j.AwaitsTime() {
			e.admit(j)
		}
	case timerLimit:
		if j.State == job.Running || j.State == job.Starting {
			e.stop(j, job.Kill, job.TimedOut, cluster.NoJob)
		}
	case timerStarving:
		e.leavePool(j)
		e.dequeue(j)
		j.Promoted = true
		j.Parked = job.NotParked
		e.enqueue(j)
		e.fresh = true
	case timerSafe:
		e.epoch++
		e.follow(j)
	case timerPromote:
		e.promote(j)
	case timerSlow:
		e.stillSlow(j)
	case timerHome, timerSettled:
		e.settled()
	case timerKey: // kept in a heap of their own
	}
}
