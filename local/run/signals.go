//go:build linux

package run

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/shim"
)

// requestCheckpoint asks for a checkpoint, once in the life of a run: a handler that is called
// a second time while it writes may spoil what it wrote.
func (r *Run) requestCheckpoint(grace time.Duration) {
	if r.phase != calm {
		return
	}
	r.saved, r.requestedAt = true, r.k.Now()
	heard := true
	r.k.crash("before-signal")
	if note := filepath.Join(r.k.JobDir(r.ID), strconv.Itoa(r.N), "asked"); !evidence.Exists(note) {
		heard = r.requestOfTasks()
		if err := os.WriteFile(note, nil, 0o600); err != nil {
			r.k.Log.Warn("that a job was asked for a checkpoint cannot be noted", "job", r.ID, "error", err)
		}
	}
	r.k.crash("after-signal")
	r.signal(unix.SIGCONT) // it may be stopped
	if !heard {            // nothing would be saved: to wait for it is time lost
		r.saved, r.unhandled = false, true
		r.signal(unix.SIGTERM)
		r.to(terminating, r.owner.KillWait())
		return
	}
	r.to(checkpointing, grace)
}

// signalJob sends a signal to those processes of the job that handle it, or to the
// first process of each task if the job wants that. It reports whether there
// is one: to the others, such as a shell around the program that saves, the
// signal would be the end before the program has saved.
func (r *Run) signalJob(s unix.Signal) (heard bool) {
	for _, t := range r.Tasks {
		heard = r.signalHandlers(t, s) || heard
	}
	return heard
}

func (r *Run) signalHandlers(t *Task, s unix.Signal) (heard bool) {
	if !t.alive || !t.there() {
		return false
	}
	pids := []int{t.State.Pid}
	if !r.Wishes.SignalShell {
		pids = shim.Family(t.State.Pid)
		if t.Group.Exists() {
			own := t.Group.Pids()
			pids = slices.DeleteFunc(pids, func(pid int) bool { return !slices.Contains(own, pid) })
		}
	}
	for _, pid := range pids {
		if shim.Handles(pid, s) && unix.Kill(pid, s) == nil {
			heard = true
		}
	}
	return heard
}

// requestOfTasks asks each task for a checkpoint that was not asked so far: one that
// has just begun may not have got to its handler yet.
func (r *Run) requestOfTasks() (heard bool) {
	r.requestedHere = true
	for _, t := range r.Tasks {
		t.requested = t.requested || r.signalHandlers(t, r.Wishes.Signal)
		heard = heard || t.requested
	}
	return heard
}

// saving reports whether a task that was asked for a checkpoint is still there.
// When none is, the others have nothing to wait for.
func (r *Run) saving() bool {
	return slices.ContainsFunc(r.Tasks, func(t *Task) bool { return t.requested && t.alive })
}

// signal sends a signal to every process group.
func (r *Run) signal(s unix.Signal) { r.send(s, false) }

func (r *Run) send(s unix.Signal, shell bool) {
	for _, t := range r.Tasks {
		if t.alive {
			t.signal(s, shell)
			if s == unix.SIGTERM && r.Wishes.Pty { // a shell at its terminal ends only when that goes
				t.signal(unix.SIGHUP, shell)
			}
		}
	}
}
