package drivertest

import (
	"context"
	"errors"
	"io"
	"math/bits"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
)

type phase uint8

const (
	away phase = iota // not on devices
	starting
	running
	stopping
)

var phaseNames = []string{"not on devices", "starting", "running", "stopping"}

func (p phase) String() string { return phaseNames[p] }

type jobState struct {
	phase   phase
	over    bool // it ended for good: only cancellations may follow
	resizes int
	holds   []engine.Alloc
}

type device struct {
	node int32
	gpu  int
}

// watch is a driver that passes everything on and checks the protocol.
type watch struct {
	d      driver.Driver
	fail   func(format string, args ...any)
	late   time.Duration // how late a wake-up may be
	began  bool
	now    cluster.Time
	seq    int64
	wake   cluster.Time
	ended  bool
	jobs   map[cluster.JobID]*jobState
	held   map[device]cluster.JobID // whole devices; looked up only
	seen   map[engine.EventType]int // events by type; looked up only
	acts   map[engine.ActionType]int
	repeat bool // apply every decision twice
	own    Own
	left   int // jobs that had to leave, and did

	cancelled map[cluster.JobID]bool // looked up only
}

// Watch returns a driver that does what d does and reports every breach of the protocol between driver and
// engine to fail. A wake-up may be late by this much; virtual time is never late.
func Watch(d driver.Driver, late time.Duration, fail func(format string, args ...any)) driver.Driver {
	return newWatch(d, late, fail)
}

func newWatch(d driver.Driver, late time.Duration, fail func(format string, args ...any)) *watch {
	return &watch{d: d, fail: fail, late: late, wake: cluster.Never, jobs: map[cluster.JobID]*jobState{},
		held: map[device]cluster.JobID{}, seen: map[engine.EventType]int{}, acts: map[engine.ActionType]int{},
		cancelled: map[cluster.JobID]bool{}}
}

// Next passes on the driver's next batch.
func (w *watch) Next(ctx context.Context) (engine.Batch, error) {
	b, err := w.d.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		w.ended = true
		return b, err
	case err != nil:
		return b, err
	case w.ended:
		w.fail("a batch at %v after io.EOF", b.Now)
	}
	if w.began && b.Now < w.now {
		w.fail("time runs backwards: %v after %v", b.Now, w.now)
	}
	if w.began && b.Seq <= w.seq {
		w.fail("batch %d follows batch %d", b.Seq, w.seq)
	}
	if w.wake != cluster.Never && b.Now > max(w.wake, w.now).Add(w.late) {
		w.fail("a wake-up at %v was asked for; the next batch is at %v", w.wake, b.Now)
	}
	w.began, w.now, w.seq = true, b.Now, b.Seq
	for i := range b.Events {
		w.event(&b.Events[i])
	}
	return b, nil
}

func (w *watch) event(ev *engine.Event) {
	w.seen[ev.Type]++
	switch ev.Type {
	case engine.Tick, engine.NodeUp, engine.NodeDown, engine.NodeDrained, engine.GPUBad, engine.QueueChanged:
		return
	case engine.Submitted:
		if ev.Spec == nil || ev.Spec.ID != ev.Job || w.jobs[ev.Job] != nil {
			w.fail("job %d is submitted twice, or without its spec", ev.Job)
		}
		w.jobs[ev.Job] = &jobState{}
		return
	}
	j := w.jobs[ev.Job]
	if j == nil {
		w.fail("%s of job %d, which was never submitted", ev.Type, ev.Job)
		return
	}
	ok := true
	switch ev.Type {
	case engine.Started:
		if ok = j.phase == starting || j.phase == stopping; j.phase == starting {
			j.phase = running
		}
	case engine.StartFailed:
		ok = j.phase == starting || j.phase == stopping
		w.leave(ev.Job, j)
	case engine.Stopped:
		ok = j.phase != away
		again := ev.Reason == engine.Preempted || ev.Reason == engine.NodeLost
		if j.over = !again || w.own.Again != ""; again {
			w.left++
		}
		w.cancelled[ev.Job] = w.cancelled[ev.Job] || ev.Reason == engine.WasCancelled
		w.leave(ev.Job, j)
	case engine.Cancelled:
		w.cancelled[ev.Job] = true
	case engine.Resized:
		ok = j.phase == stopping || j.phase == running && j.resizes == 1
		j.resizes = 0
		w.settle(ev.Job, j)
	case engine.Progress:
		ok = j.phase != away
	}
	if !ok {
		w.fail("%s of job %d, which is %s", ev.Type, ev.Job, j.phase)
	}
}

func (w *watch) leave(id cluster.JobID, j *jobState) {
	j.phase, j.resizes, j.holds = away, 0, nil
	w.settle(id, j)
}

// settle frees the devices that a job no longer holds.
func (w *watch) settle(id cluster.JobID, j *jobState) {
	mine := map[device]bool{} // looked up only
	for _, d := range devices(j.holds) {
		mine[d] = true
	}
	for d, owner := range w.held { // order does not matter
		if owner == id && !mine[d] {
			delete(w.held, d)
		}
	}
}

// devices lists the whole devices of allocations.
func devices(allocs []engine.Alloc) (list []device) {
	for i := range allocs {
		for m := allocs[i].GPUs; m != 0 && allocs[i].Share == 0; m &= m - 1 {
			list = append(list, device{allocs[i].Node, bits.TrailingZeros64(m)})
		}
	}
	return list
}

// Apply passes a decision on.
func (w *watch) Apply(ctx context.Context, d engine.Decision) error {
	w.wake = d.WakeAt
	for i := range d.Actions {
		w.action(&d.Actions[i])
	}
	if err := w.d.Apply(ctx, d); err != nil || !w.repeat {
		return err
	}
	return w.d.Apply(ctx, d)
}

func (w *watch) action(a *engine.Action) {
	w.acts[a.Type]++
	j := w.jobs[a.Job]
	if j == nil {
		w.fail("%s of job %d, which was never submitted", a.Type, a.Job)
		return
	}
	ok := true
	switch a.Type {
	case engine.Start:
		ok = j.phase == away && !j.over
		j.phase = starting
		w.take(a, j)
	case engine.Preempt:
		ok = j.phase == starting || j.phase == running
		j.phase = stopping
	case engine.Resize:
		ok = j.phase == running && j.resizes == 0
		j.resizes++
		w.take(a, j)
	case engine.Reject:
		ok = j.phase == away
		j.over = true
	}
	if !ok {
		w.fail("%s of job %d, which is %s", a.Type, a.Job, j.phase)
	}
}

// take assigns devices; what a resize gives back is held until Resized.
func (w *watch) take(a *engine.Action, j *jobState) {
	for _, d := range devices(a.Allocs) {
		if owner, ok := w.held[d]; ok && owner != a.Job {
			w.fail("job %d gets GPU %d of node %d, which job %d has not left", a.Job, d.gpu, d.node, owner)
		}
		w.held[d] = a.Job
	}
	j.holds = a.Allocs
}

// finish checks what must be true at the end of a run.
func (w *watch) finish() {
	for id, j := range w.jobs { // order does not matter
		if j.phase != away {
			w.fail("at the end job %d is %s: its end was never reported", id, j.phase)
		}
	}
}
