//go:build linux

package local

import (
	"fmt"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// noteSignalResponse takes over what was found; false: nothing new. What became of a job that was
// asked says more than what handlers it has.
func (j *job) noteSignalResponse(h run.Response, asked bool) bool {
	if h == run.NotKnown || h == j.info.Hearing ||
		!asked && (j.info.Hearing == run.DiesOfSignal || j.info.Hearing == run.Kept) {
		return false
	}
	j.own().Hearing = h
	return true
}

// noteResponse takes over what the end of a run shows; it returns what the engine is to know.
func (j *job) noteResponse(found run.Response) engine.Saves {
	if !j.noteSignalResponse(found, true) {
		return engine.SavesUnknown
	}
	return found.Saves()
}

// Inspected takes over what the handlers of the job's processes show.
func (r *runner) Inspected(found run.Response) {
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run != r || !r.job.noteSignalResponse(found, false) {
			return nil, nil
		}
		return []engine.Event{{Type: engine.Progress, Job: r.ID, Saves: found.Saves()}}, nil
	})
}

// savesText says that a job saves nothing, and what follows from it; "": it does, or that is not known.
func (i *Info) savesText(sub *ask.Submission) string {
	h := i.Hearing
	if h != run.IgnoresCheckpoint && h != run.DiesOfSignal {
		return ""
	}
	name := "SIGUSR1"
	if n, _, err := ask.ParseSignal(sub.Signal); err == nil {
		name = "SIG" + n
	}
	how := fmt.Sprintf("no process of it handles %s", name)
	if h == run.DiesOfSignal {
		how = fmt.Sprintf("%s ends it", name)
	}
	return fmt.Sprintf("it saves nothing when it is asked for a checkpoint: %s (docs/howto/checkpointing.md)", how)
}
