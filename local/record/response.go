//go:build linux

package record

import (
	"fmt"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// NoteSignalResponse takes over what was found; false: nothing new. What became of a job that was
// asked says more than what handlers it has.
func (j *Job) NoteSignalResponse(h run.Response, asked bool) bool {
	if h == run.NotKnown || h == j.Info.Hearing ||
		!asked && (j.Info.Hearing == run.DiesOfSignal || j.Info.Hearing == run.Kept) {
		return false
	}
	j.Own().Hearing = h
	return true
}

// NoteResponse takes over what the end of a run shows; it returns what the engine is to know.
func (j *Job) NoteResponse(found run.Response) engine.Saves {
	if !j.NoteSignalResponse(found, true) {
		return engine.SavesUnknown
	}
	return found.Saves()
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
