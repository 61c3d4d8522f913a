package pending

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/internal/heap"
)

// TimerKind is what happens to a job at an instant.
type TimerKind uint8

// The kinds, in the order in which those of one job fire at one instant.
const (
	Begin    TimerKind = iota // it may be considered from now on, or what it depends on is long enough ago
	Limit                     // its time limit strikes
	KeyDue                    // its key changes while it runs
	Starving                  // it has waited too long
	Safe                      // its minimum run time is over
	Promote                   // it has waited long for how long it ran
	Slow                      // it has been too slow for a while among others in shares of its GPUs
	Home                      // it is suspended, and has waited for its devices as long as leaving its memory costs
	Movable                   // it runs, and may leave its devices for another's memory
)

// Timer is set for a job. It is void when the job's generation is another.
type Timer struct {
	At   cluster.Time
	Kind TimerKind
	Job  int32
	gen  uint32
}

// Before orders timers by time, then by job and kind.
func (t *Timer) Before(b *Timer) bool {
	if t.At != b.At {
		return t.At < b.At
	}
	if t.Job != b.Job {
		return t.Job < b.Job
	}
	return t.Kind < b.Kind
}

// Current reports whether the job is in the generation in which the timer was set.
func (t *Timer) Current(j *job.State) bool { return t.gen == j.Gen }

// Timers is a heap of timers. Those that no longer hold are dropped when they surface.
type Timers struct {
	// Holds reports whether a timer would do anything. One that would not is dropped: should its job come to need it
	// again, it is set again.
	Holds func(t *Timer) bool

	heap []Timer
	due  []Timer // memory of Due
}

// Set sets a timer for a job; Never: none.
func (h *Timers) Set(at cluster.Time, kind TimerKind, j *job.State) {
	if at != cluster.Never {
		heap.Push(&h.heap, Timer{at, kind, int32(j.Spec.ID), j.Gen})
	}
}

// Next returns the first timer that holds, in the heap's memory; nil: there is none.
func (h *Timers) Next() *Timer {
	for len(h.heap) > 0 {
		if t := &h.heap[0]; h.Holds(t) {
			return t
		}
		heap.Pop(&h.heap)
	}
	return nil
}

// At returns the instant of the first timer that holds; Never: there is none.
func (h *Timers) At() cluster.Time {
	if t := h.Next(); t != nil {
		return t.At
	}
	return cluster.Never
}

// Pop takes the timer that Next returned.
func (h *Timers) Pop() Timer { return heap.Pop(&h.heap) }

// Due takes all timers that are due, also such as do not hold; the list is valid until the next call. Jobs that started
// together change their keys together: where that is a large part of all timers, what is left is made a heap again at
// once. The order of the list says nothing.
func (h *Timers) Due(now cluster.Time) []Timer {
	n, buf := h.count(0, now), h.due[:0]
	if n == 0 || n*bits.Len(uint(len(h.heap))) < len(h.heap) {
		for range n {
			buf = append(buf, h.Pop())
		}
		h.due = buf
		return buf
	}
	buf = slices.Grow(buf, n)
	rest := h.heap[:0]
	for _, t := range h.heap {
		if t.At <= now {
			buf = append(buf, t)
		} else {
			rest = append(rest, t)
		}
	}
	h.heap, h.due = rest, buf
	heap.Init(rest)
	return buf
}

// count counts the timers that are due from the i-th of the heap down.
func (h *Timers) count(i int, now cluster.Time) int {
	if i >= len(h.heap) || h.heap[i].At > now {
		return 0
	}
	return 1 + h.count(2*i+1, now) + h.count(2*i+2, now)
}

// Wakes reports whether a timer looks at a job again that may begin later than now.
func (h *Timers) Wakes(j *job.State, now cluster.Time) bool {
	return slices.ContainsFunc(h.heap, func(t Timer) bool {
		return t.Kind == Begin && t.Job == int32(j.Spec.ID) && t.Current(j) && t.At > now
	})
}
