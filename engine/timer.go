package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
)

type timerKind uint8

const (
	timerBegin    timerKind = iota // a job may be considered from now on
	timerLimit                     // a job's time limit strikes
	timerKey                       // a running job's key changes
	timerStarving                  // a pending job has waited too long
	timerSafe                      // a job's minimum run time is over
)

type timer struct {
	at   cluster.Time
	kind timerKind
	id   int32
	gen  uint32 // of the job when it was set; a different one now: void
}

// Before orders timers by time, then by job and kind.
func (a *timer) Before(b *timer) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.id != b.id {
		return a.id < b.id
	}
	return a.kind < b.kind
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
		if j := e.jobs[t.id]; j.gen == t.gen && (t.kind != timerKey || t.at == j.nextKey) {
			return t.at, true
		}
		h.pop()
	}
	return 0, false
}

// runTimers acts on everything that is due.
func (e *Engine) runTimers() {
	for {
		at, ok := e.timers.peek(e)
		if !ok || at > e.now {
			break
		}
		t := e.timers.pop()
		e.fire(e.jobs[t.id], t.kind)
	}
	for {
		at, ok := e.keyTimes.peek(e)
		if !ok || at > e.now {
			break
		}
		t := e.keyTimes.pop()
		if j := e.jobs[t.id]; j.state == Running || j.state == Starting {
			e.rerun(j)
			e.epoch++ // it may be a victim now
		}
	}
	if p := cluster.Time(e.traits.Rekey); p > 0 && e.pending > 0 && e.now/p != e.limits.rekeyed {
		e.limits.rekeyed = e.now / p
		if e.limits.ranks != nil { // what the policy sees of usage is as of now
			e.fairRanks() // not left to whoever asks first: ranks that change then have everybody compared once more
		}
		e.rekey()
	}
	if p := cluster.Time(e.traits.Rerun); p > 0 && e.pending > 0 && e.now/p != e.limits.rerun {
		e.limits.rerun = e.now / p
		e.rerunAll()
	}
	e.limits.tick(e)
	e.tickAdvance()
}

// rerunAll evaluates the keys of all jobs with devices again.
func (e *Engine) rerunAll() {
	ids := e.scratch.ids[:0]
	e.running.walk(func(it item) bool { ids = append(ids, it.id); return true })
	e.scratch.ids = ids
	for _, id := range ids {
		j := e.jobs[id]
		if it := e.runItem(j); it != j.key {
			e.touch(j)
			e.running.remove(j.key)
			j.key = it
			e.running.insert(it)
		}
	}
	e.epoch++
}

func (e *Engine) fire(j *jobState, kind timerKind) {
	switch kind {
	case timerBegin:
		if j.state == Pending && !j.eligible {
			e.admit(j)
		}
	case timerLimit:
		if j.state == Running || j.state == Starting {
			e.stop(j, Kill, TimedOut, cluster.NoJob)
		}
	case timerStarving:
		if !j.eligible || j.promoted {
			return
		}
		e.dequeue(j)
		j.promoted = true
		e.enqueue(j)
		e.fresh = true
	case timerSafe:
		e.epoch++
	case timerKey: // kept in a heap of their own
	}
}
