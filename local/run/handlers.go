//go:build linux

package run

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/shim"
)

// Response is what is known of a job that is asked for a checkpoint by a signal.
type Response uint8

// The responses.
const (
	NotKnown          Response = iota
	IgnoresCheckpoint          // no process of it handles the signal
	// DiesOfSignal: one did, and died of it: some runtimes (Go, Java) handle every signal, to end as if they did not.
	DiesOfSignal
	HandlesSignal // one handles it
	Kept          // one did, and the job left in time
)

// Saves is the same for the engine.
func (h Response) Saves() engine.Saves {
	switch h {
	case IgnoresCheckpoint, DiesOfSignal:
		return engine.SavesNothing
	case HandlesSignal, Kept:
		return engine.SavesWork
	case NotKnown:
	}
	return engine.SavesUnknown
}

// The processes of a job are inspected soon after its start, as programs install
// their handlers when they have loaded their libraries, then less and less often.
const (
	firstListen = 2 * time.Second
	mostListen  = time.Minute
)

// inspectHandlers finds out, when it is time, whether any process of the job would notice that it is
// asked for a checkpoint: whether it handles the signal had better be known before the first stop.
func (r *Run) inspectHandlers() {
	now := r.k.Now()
	switch {
	case r.phase != calm || r.frozen || r.found == HandlesSignal:
		return
	case r.inspectAt.IsZero():
		r.inspectAt, r.inspectGap = now.Add(firstListen), firstListen
		return
	case now.Before(r.inspectAt):
		return
	}
	r.inspectAt, r.inspectGap = now.Add(r.inspectGap), min(2*r.inspectGap, mostListen)
	found := IgnoresCheckpoint
	for _, t := range r.Tasks {
		if r.handlesCheckpoint(t) {
			found = HandlesSignal
		}
	}
	if found == r.found {
		return
	}
	r.found = found
	r.owner.Inspected(found)
}

func (r *Run) handlesCheckpoint(t *Task) bool {
	if !t.alive || !t.there() {
		return false
	}
	if r.Wishes.SignalShell {
		return shim.Handles(t.State.Pid, r.Wishes.Signal)
	}
	return shim.FamilyHandles(t.State.Pid, r.Wishes.Signal)
}

// Response is what the end of a run shows of a job that was asked for a checkpoint. Of one that died of being asked
// nothing is saved.
func (r *Run) Response() Response {
	found := r.response()
	r.saved = r.saved && found != DiesOfSignal
	return found
}

func (r *Run) response() Response {
	switch {
	case r.unhandled:
		return IgnoresCheckpoint
	case !r.saved || !r.requestedHere:
		return NotKnown
	case !r.kept && r.diedOf(r.Wishes.Signal):
		return DiesOfSignal
	}
	return Kept
}

// diedOf reports whether a signal that is there to ask ended all who were asked. A
// program that has saved may end by the signal that ends programs.
func (r *Run) diedOf(s unix.Signal) bool {
	if s == unix.SIGTERM || s == unix.SIGINT || s == unix.SIGHUP {
		return false
	}
	n := 0
	for _, t := range r.Tasks {
		switch {
		case !t.requested:
		case t.State != nil && (t.State.Signal == int(s) || t.State.Exit == 128+int(s)): // the latter is a shell's way
			n++
		default:
			return false
		}
	}
	return n > 0
}
