//go:build linux

package local

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/shim"
)

// signalResponse is what is known of a job that is asked for a checkpoint by a signal.
type signalResponse uint8

const (
	notKnown          signalResponse = iota
	ignoresCheckpoint                // no process of it handles the signal
	diesOfSignal                     // one did, and died of it: some runtimes (Go, Java) handle every signal, to end as if they did not
	handlesSignal                    // one handles it
	kept                             // one did, and the job left in time
)

// saves is what the engine is told.
func (h signalResponse) saves() engine.Saves {
	switch h {
	case ignoresCheckpoint, diesOfSignal:
		return engine.SavesNothing
	case handlesSignal, kept:
		return engine.SavesWork
	case notKnown:
	}
	return engine.SavesUnknown
}

// The processes of a job are looked at soon after its start, as programs install
// their handlers when they have loaded their libraries, then less and less often.
const (
	firstListen = 2 * time.Second
	mostListen  = time.Minute
)

// inspectHandlers looks, when it is time, whether any process of the job would hear that it is
// asked for a checkpoint: whom to stop had better be known before the first stop.
func (r *runner) inspectHandlers() {
	now := r.m.time()
	switch {
	case r.phase != calm || r.frozen || r.found == handlesSignal:
		return
	case r.inspectAt.IsZero():
		r.inspectAt, r.inspectGap = now.Add(firstListen), firstListen
		return
	case now.Before(r.inspectAt):
		return
	}
	r.inspectAt, r.inspectGap = now.Add(r.inspectGap), min(2*r.inspectGap, mostListen)
	found := ignoresCheckpoint
	for _, t := range r.tasks {
		if r.handlesCheckpoint(t) {
			found = handlesSignal
		}
	}
	if found == r.found {
		return
	}
	r.found = found
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run != r || !r.job.noteSignalResponse(found, false) {
			return nil, nil
		}
		return []engine.Event{{Type: engine.Progress, Job: r.id, Saves: found.saves()}}, nil
	})
}

func (r *runner) handlesCheckpoint(t *task) bool {
	if !t.alive || !t.there() {
		return false
	}
	if r.job.sub.SignalShell {
		return shim.Handles(t.state.Pid, r.checkpointSignal())
	}
	return shim.FamilyHandles(t.state.Pid, r.checkpointSignal())
}

// noteSignalResponse takes over what was found; false: nothing new. What became of a job that was
// asked says more than what handlers it has.
func (j *job) noteSignalResponse(h signalResponse, asked bool) bool {
	if h == notKnown || h == j.info.Hearing || !asked && (j.info.Hearing == diesOfSignal || j.info.Hearing == kept) {
		return false
	}
	j.own().Hearing = h
	return true
}

// reportSignalResponse takes over what the end of a run tells; it returns what the engine is to know. Who
// died of being asked has saved nothing.
func (r *runner) reportSignalResponse() engine.Saves {
	found := r.signalResponse()
	r.saved = r.saved && found != diesOfSignal
	if !r.job.noteSignalResponse(found, true) {
		return engine.SavesUnknown
	}
	return found.saves()
}

// signalResponse is what the end of a run tells of a job that was asked for a checkpoint.
func (r *runner) signalResponse() signalResponse {
	switch {
	case r.unhandled:
		return ignoresCheckpoint
	case !r.saved || !r.requestedHere:
		return notKnown
	case !r.kept && r.diedOf(r.checkpointSignal()):
		return diesOfSignal
	}
	return kept
}

// diedOf reports whether a signal that is there to ask ended all who were asked. A
// program that has saved may end by the signal that ends programs.
func (r *runner) diedOf(s unix.Signal) bool {
	if s == unix.SIGTERM || s == unix.SIGINT || s == unix.SIGHUP {
		return false
	}
	n := 0
	for _, t := range r.tasks {
		switch {
		case !t.requested:
		case t.state != nil && (t.state.Signal == int(s) || t.state.Exit == 128+int(s)): // the latter as a shell says it
			n++
		default:
			return false
		}
	}
	return n > 0
}

// savesText says that a job saves nothing, and what follows from it; "": it does, or nobody knows.
func (i *Info) savesText(sub *ask.Submission) string {
	h := i.Hearing
	if h != ignoresCheckpoint && h != diesOfSignal {
		return ""
	}
	name := "SIGUSR1"
	if n, _, err := ask.ParseSignal(sub.Signal); err == nil {
		name = "SIG" + n
	}
	how := fmt.Sprintf("no process of it handles %s", name)
	if h == diesOfSignal {
		how = fmt.Sprintf("%s ends it", name)
	}
	return fmt.Sprintf("it saves nothing when it is asked for a checkpoint: %s (docs/howto/checkpointing.md)", how)
}
