//go:build linux

// Package run is a run of a job: its tasks, from the word to start until nothing is left of them. Each is a process and
// a shim, which owns it and outlives the daemon (local/shim). What happens is reported to the run's Owner, which knows
// the job and the engine.
package run

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// Owner owns the run: it knows the job, prepares what its tasks need, and gets the run's reports, from its goroutine.
type Owner interface {
	Serve(tasks []*Task) error // makes their GPUs ready: MPS, MIG
	Prepare(t *Task) error     // makes its folder and its control group
	KillWait() time.Duration   // between SIGTERM and SIGKILL

	Reported(p *show.Progress, saved bool, said []progress.Measure)
	Suspended()
	Resumed()
	Inspected(found Response)      // what the handlers of its processes show
	Delayed(rank int, text string) // its devices are not free yet
}

// Wishes is how a job wants to be signalled.
type Wishes struct {
	Signal       unix.Signal   // asks for a checkpoint
	SignalShell  bool          // ... the first process of each task only
	SignalBefore time.Duration // before its limit it is sent, too; 0: it is not
	Pty          bool
}

// Run owns the processes of one run of a job.
type Run struct {
	ID     cluster.JobID
	N      int            // number of the run
	On     []engine.Alloc // what it runs on
	Wishes Wishes
	Limit  time.Time // when the time limit strikes; zero: never
	Tasks  []*Task

	k      *Keeper
	owner  Owner
	next   []engine.Alloc // what it shall run on when it has stopped; nil: it ends then
	orders chan Order
	later  []Order // that came while its tasks were being started
	ended  chan *Task
	timer  *time.Timer
	live   int

	phase         phase
	saved         bool // it may have written a checkpoint when one was requested
	unhandled     bool // none of its processes handles the signal that asks for a checkpoint
	stopRequested bool
	frozen        bool      // suspended: its devices are another's
	alarm         bool      // the signal before the limit was sent
	requestedHere bool      // a checkpoint, by this daemon
	requestedAt   time.Time // a checkpoint, by this daemon; zero: it was not
	kept          bool      // since then it reported one

	found      Response  // as far as the handlers of its processes show
	inspectAt  time.Time // when those are inspected next
	inspectGap time.Duration

	news reports
}

// New makes a run whose tasks have yet to be started (Spawn) or found (Find).
func (k *Keeper) New(owner Owner, id cluster.JobID, n int, on []engine.Alloc, wishes Wishes) *Run {
	r := &Run{k: k, owner: owner, ID: id, N: n, On: on, Wishes: wishes}
	r.orders, r.timer = make(chan Order, 16), time.NewTimer(time.Hour)
	r.timer.Stop()
	return r
}

// Again has a run whose tasks have ended begin in place, under another number; they are started by Spawn.
func (r *Run) Again(n int, on []engine.Alloc) { r.N, r.On, r.next = n, on, nil }

// Freeze notes that its processes stand still: an earlier daemon suspended it.
func (r *Run) Freeze() { r.frozen = true }

// Frozen reports whether it is suspended.
func (r *Run) Frozen() bool { return r.frozen }

// Moves reports whether it shall run on something else when it has stopped.
func (r *Run) Moves() bool { return r.next != nil }

// WasStopped reports whether it was asked to stop.
func (r *Run) WasStopped() bool { return r.stopRequested }

// CallOff notes that it was asked to stop when it had stopped, to begin again.
func (r *Run) CallOff() { r.stopRequested = true }

// Saved reports whether it may have written a checkpoint when one was requested.
func (r *Run) Saved() bool { return r.saved }

// Lost reports whether a task's shim ended without saying how the task did.
func (r *Run) Lost() bool { return slices.ContainsFunc(r.Tasks, func(t *Task) bool { return t.Lost }) }

// phase is how far a run is in stopping its job.
type phase uint8

const (
	calm          phase = iota
	replacing           // it goes on until another has come in its place
	checkpointing       // the checkpoint signal was sent
	terminating         // SIGTERM was sent
	killed
)

// ProgressEvery is how often the progress of a job is read.
const ProgressEvery = time.Second

// Stop gives an order. It never blocks: a run that is behind has the same
// orders before it.
func (r *Run) Stop(o Order) {
	select {
	case r.orders <- o:
	default:
	}
}

// Spawn starts all tasks or, in the end, none.
func (r *Run) Spawn(tasks []*Task) error {
	r.phase, r.saved, r.unhandled, r.kept, r.news = calm, false, false, false, reports{}
	r.requestedHere, r.requestedAt = false, time.Time{}
	r.found, r.inspectAt = NotKnown, time.Time{}
	r.timer.Stop()
	r.Tasks, r.live = tasks, 0
	r.ended = make(chan *Task, len(tasks))
	if err := r.owner.Serve(tasks); err != nil {
		return r.takeBack(err)
	}
	for _, t := range tasks {
		if err := r.spawn(t); err != nil {
			return r.takeBack(fmt.Errorf("task %d: %w", t.Rank, err))
		}
	}
	return nil
}

// takeBack takes back what was started of a gang that cannot be started. It returns the error.
func (r *Run) takeBack(err error) error {
	if errors.Is(err, ErrLeaving) {
		return err
	}
	r.abandon()
	if errors.Is(err, ErrCalledOff) {
		return err
	}
	r.k.Log.Warn("a job could not be started", "job", r.ID, "error", err)
	if Crowded(err) {
		return err
	}
	select { // a machine without processes or room needs time, not more attempts
	case <-r.k.Running.Done():
	case <-time.After(time.Second):
	}
	return err
}

// ObeyLater carries out the orders that came while the tasks were being started, also in place.
func (r *Run) ObeyLater() {
	later := r.later
	r.later = nil
	for _, o := range later {
		r.Obey(o)
	}
}

// abandon kills what was started of a gang that cannot be started.
func (r *Run) abandon() {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for r.live > 0 {
		for _, t := range r.Tasks {
			if t.alive {
				t.kill()
				t.killShim() // how it ended does not matter
			}
		}
		select {
		case t := <-r.ended:
			t.over()
			r.live--
		case <-again.C:
		case <-r.k.Running.Done():
			return
		}
	}
}

// Loop follows the job until all its tasks have ended; false: the daemon ends
// before they do.
func (r *Run) Loop() bool {
	tick := time.NewTicker(ProgressEvery)
	defer tick.Stop()
	for r.live > 0 {
		select {
		case <-r.k.Running.Done():
			return false // the shims go on
		case t := <-r.ended:
			t.over()
			r.live--
			if r.live > 0 && r.phase <= replacing && t.Failed() { // the others would wait for it for ever
				r.signal(unix.SIGTERM)
				r.to(terminating, r.owner.KillWait())
			}
			if r.live > 0 && r.phase == checkpointing && r.requestedHere && !r.saving() {
				r.signal(unix.SIGTERM)
				r.to(terminating, r.owner.KillWait())
			}
		case o := <-r.orders:
			r.Obey(o)
		case <-r.timer.C:
			r.escalate()
		case <-tick.C:
			r.readReports()
			r.inspectHandlers()
			if r.phase == checkpointing && r.requestedHere {
				r.requestOfTasks()
			}
		}
	}
	for range mostEnd { // what it said last may be what it was run for
		if r.readProgress(true); !r.news.more {
			break
		}
	}
	return true
}

// Obey carries out an order.
func (r *Run) Obey(o Order) {
	switch {
	case o.Signal != 0:
		r.send(o.Signal, o.Shell)
	case o.Freeze:
		r.signal(unix.SIGSTOP)
	case o.Unfreeze:
		r.signal(unix.SIGCONT)
	case o.Resume:
		r.frozen = false
		r.signal(unix.SIGCONT)
		r.owner.Resumed()
	case o.Resize != nil:
		if !r.stopRequested && !SameAllocs(o.Resize, r.On) && r.next == nil {
			r.next = o.Resize
			r.requestCheckpoint(o.Grace)
		}
	case o.How == engine.Replace:
		if r.phase == calm {
			r.to(replacing, o.Grace)
		}
	case o.How == engine.Suspend && r.phase == calm:
		if !r.frozen {
			r.signal(unix.SIGSTOP)
			r.readReports() // what it reported up to now
			r.frozen = true
			r.k.crash("frozen")
			r.owner.Suspended()
		}
	case o.How == engine.Checkpoint, o.How == engine.Suspend: // suspended while it leaves for a resize: it leaves
		if r.phase <= checkpointing || r.next != nil {
			r.stopRequested, r.next = true, nil
		}
		r.requestCheckpoint(o.Grace)
	case r.phase == terminating && r.next != nil:
		r.stopRequested, r.next = true, nil
	case r.phase < terminating:
		r.stopRequested, r.next = true, nil
		if o.Grace <= 0 {
			r.kill()
			return
		}
		r.signal(unix.SIGTERM)
		r.signal(unix.SIGCONT)
		r.to(terminating, o.Grace)
	}
}

// to enters a phase that lasts so long.
func (r *Run) to(p phase, d time.Duration) {
	r.phase = p
	r.timer.Reset(d)
}

// escalate is called when a phase is over and the job is still there.
func (r *Run) escalate() {
	switch r.phase {
	case replacing: // none has come
		r.Obey(Order{How: engine.Kill, Grace: r.owner.KillWait()})
	case checkpointing:
		r.saved = false // what it has saved all the same it has reported
		r.signal(unix.SIGTERM)
		r.to(terminating, r.owner.KillWait())
	case terminating:
		r.kill()
	case killed: // its shim does not end: it goes, too
		r.kill()
		for _, t := range r.Tasks {
			if t.alive {
				t.killShim()
			}
		}
	case calm:
	}
}

func (r *Run) kill() {
	if r.phase != checkpointing {
		r.saved = false
	}
	for _, t := range r.Tasks {
		if t.alive {
			t.kill()
		}
	}
	r.to(killed, 5*time.Second)
}

// readReports reads what the job reports, and warns it before its limit.
func (r *Run) readReports() {
	before := r.Wishes.SignalBefore
	due := before > 0 && !r.alarm && !r.Limit.IsZero() && r.k.Now().Add(before).After(r.Limit)
	if due && r.phase == calm {
		r.alarm = true
		r.signalJob(r.Wishes.Signal)
	}
	r.readProgress(false)
}

// Finished reports whether the job was asked for a checkpoint when there was
// nothing left to do: it says so, and perhaps it was about to end and could not hear.
func (r *Run) Finished() bool {
	return (r.saved || r.unhandled) && r.news.Finished && !slices.ContainsFunc(r.Tasks, (*Task).Failed)
}

// SameAllocs reports whether two placements are the same, task by task.
func SameAllocs(a, b []engine.Alloc) bool {
	return slices.EqualFunc(a, b, func(x, y engine.Alloc) bool {
		return x.Node == y.Node && x.Set == y.Set && x.Tasks == y.Tasks && x.GPUs == y.GPUs && x.Share == y.Share &&
			x.Slots == y.Slots
	})
}

// SaveTook is how long the checkpoint took that a run was asked for, now that it is
// over; 0: it wrote none, or that is not known.
func (r *Run) SaveTook() time.Duration {
	if !r.saved || r.requestedAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, r.k.Now().Sub(r.requestedAt))
}
