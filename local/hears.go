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

// hearing is what is known of a job that is asked for a checkpoint.
type hearing uint8

const (
	notKnown hearing = iota
	deaf             // no process of it handles the signal
	dies             // one did, and died of it: some runtimes (Go, Java) handle every signal, to end as if they did not
	hears            // one handles it
	kept             // one did, and the job left in time
)

// saves is what the engine is told.
func (h hearing) saves() engine.Saves {
	switch h {
	case deaf, dies:
		return engine.SavesNothing
	case hears, kept:
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

// listen looks, when it is time, whether any process of the job would hear that it is
// asked for a checkpoint: whom to stop had better be known before the first stop.
func (r *runner) listen() {
	now := r.m.time()
	switch {
	case r.phase != calm || r.frozen || r.found == hears:
		return
	case r.listenAt.IsZero():
		r.listenAt, r.listenGap = now.Add(firstListen), firstListen
		return
	case now.Before(r.listenAt):
		return
	}
	r.listenAt, r.listenGap = now.Add(r.listenGap), min(2*r.listenGap, mostListen)
	found := deaf
	for _, t := range r.tasks {
		if r.listens(t) {
			found = hears
		}
	}
	if found == r.found {
		return
	}
	r.found = found
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run != r || !r.job.hear(found, false) {
			return nil, nil
		}
		return []engine.Event{{Type: engine.Progress, Job: r.id, Saves: found.saves()}}, nil
	})
}

func (r *runner) listens(t *task) bool {
	if !t.alive || !t.there() {
		return false
	}
	if r.job.sub.SignalShell {
		return shim.Handles(t.state.Pid, r.checkpointSignal())
	}
	return shim.FamilyHandles(t.state.Pid, r.checkpointSignal())
}

// hear takes over what was found; false: nothing new. What became of a job that was
// asked says more than what handlers it has.
func (j *job) hear(h hearing, asked bool) bool {
	if h == notKnown || h == j.info.Hearing || !asked && (j.info.Hearing == dies || j.info.Hearing == kept) {
		return false
	}
	j.own().Hearing = h
	return true
}

// tells takes over what the end of a run tells; it returns what the engine is to know. Who
// died of being asked has saved nothing.
func (r *runner) tells() engine.Saves {
	found := r.heard()
	r.saved = r.saved && found != dies
	if !r.job.hear(found, true) {
		return engine.SavesUnknown
	}
	return found.saves()
}

// heard is what the end of a run tells of a job that was asked for a checkpoint.
func (r *runner) heard() hearing {
	switch {
	case r.unheard:
		return deaf
	case !r.saved || !r.asks:
		return notKnown
	case !r.kept && r.diedOf(r.checkpointSignal()):
		return dies
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
		case !t.heard:
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
	if h != deaf && h != dies {
		return ""
	}
	name := "SIGUSR1"
	if n, _, err := ask.ParseSignal(sub.Signal); err == nil {
		name = "SIG" + n
	}
	how := fmt.Sprintf("no process of it handles %s", name)
	if h == dies {
		how = fmt.Sprintf("%s ends it", name)
	}
	return fmt.Sprintf("it saves nothing when it is asked for a checkpoint: %s (docs/howto/checkpointing.md)", how)
}
