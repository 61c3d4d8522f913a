//go:build linux

// Package record is what a machine knows of a job that is stored: what was submitted, what happened to it, and how it
// appears to people. Elements of an array to which nothing happened share one row.
package record

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// Info is what is stored of a job besides its submission.
type Info struct {
	Record    engine.JobRecord  `json:"record"`
	User      account.User      `json:"user"`
	Run       int               `json:"run"`                // number of the present or last run, from 1
	InPlace   int               `json:"in_place,omitempty"` // runs that began in place, not out of the queue
	On        []engine.Alloc    `json:"on,omitempty"`       // what that run was started on
	State     string            `json:"state"`
	Text      string            `json:"text,omitempty"`        // how it ended
	Sharing   string            `json:"sharing,omitempty"`     // how it shares a GPU, and what is enforced
	Over      bool              `json:"over_memory,omitempty"` // it used more memory of a GPU than its share's
	Faults    int               `json:"faults,omitempty"`      // of the server of its GPU, which ended it and others
	Exit      int               `json:"exit,omitempty"`
	Signal    int               `json:"signal,omitempty"`
	Devices   []show.Device     `json:"devices,omitempty"`
	StdOut    string            `json:"stdout,omitempty"`
	StdErr    string            `json:"stderr,omitempty"`
	Array     int               `json:"array,omitempty"`
	Index     int               `json:"index,omitempty"`
	Indices   *ArrayRange       `json:"indices,omitempty"`
	Waited    time.Duration     `json:"waited,omitempty"` // in earlier waits
	Frozen    bool              `json:"frozen,omitempty"` // by a person, on its devices
	FrozenBy  string            `json:"frozen_by,omitempty"`
	StopUntil time.Time         `json:"stop_until,omitzero"`
	Requeue   bool              `json:"requeue,omitempty"` // a person wants it to stop and wait again
	Progress  *show.Progress    `json:"progress,omitempty"`
	Metrics   []show.Metrics    `json:"metrics,omitempty"`
	Falling   *progress.Falling `json:"falling,omitempty"` // the metric by which it converges; never changed in place
	Folder    cluster.JobID     `json:"folder,omitempty"`  // job whose checkpoint folder it uses; 0: its own
	Use       Use               `json:"use,omitzero"`
	Guessed   bool              `json:"estimate_from_history,omitempty"` // its estimate is from earlier runs
	Pace      progress.Pace     `json:"pace,omitzero"`
	Switch    run.Switching     `json:"switch,omitzero"`
	Idle      *observe.Idleness `json:"idle,omitempty"`
	Hearing   run.Response      `json:"signal_response,omitempty"`
	Back      *givenBack        `json:"giving_back,omitempty"` // devices that it is to give back and still holds
	Losses    Losses            `json:"losses,omitempty"`
	Loan      *show.Loan        `json:"loan,omitempty"` // GPUs that its present run got back, or that it waits for
	// how its traffic was to be treated when its present run began; nil: as any other
	Began *cluster.Treatment `json:"began_treatment,omitempty"`
}

// ArrayRange is what an element's environment says of its array.
type ArrayRange struct{ Count, Min, Max, Step int }

// Elements is how many there are; 0: it is no array.
func (r *ArrayRange) Elements() int {
	if r == nil {
		return 0
	}
	return r.Count
}

// Restarts is how often a job was started again by its queue: starts in place
// are none.
func (i *Info) Restarts() int { return max(0, i.Run-1-i.InPlace) }

// IdleStage is how far a job is that does not use its GPUs; "": it does.
func (i *Info) IdleStage() string {
	if i.Idle == nil {
		return ""
	}
	return i.Idle.Stage
}

// EndsIdle reports whether a run that was stopped as idle is the job's last.
func (i *Info) EndsIdle() bool { return i.IdleStage() == show.IdleStopped && !i.Idle.Requeue }

// State is the state that users see.
func State(r *engine.JobRecord, frozen bool) string {
	switch r.State {
	case engine.Pending:
		if r.Home != nil {
			return show.StateSuspended
		}
		return show.StatePending
	case engine.Placed:
		return show.StatePending
	case engine.Starting:
		return show.StateStarting
	case engine.Running:
		if frozen {
			return show.StateSuspended
		}
		return show.StateRunning
	case engine.Stopping:
		return show.StateStopping
	}
	return endStates[r.Reason]
}

var endStates = map[engine.StopReason]string{
	engine.Completed: show.StateCompleted, engine.Failed: show.StateFailed, engine.WasCancelled: show.StateCancelled,
	engine.TimedOut: show.StateTimeout, engine.Preempted: show.StatePreempted, engine.NodeLost: show.StateLost,
	engine.LaunchFailed: show.StateFailed, engine.Impossible: show.StateRejected,
	engine.NeverReady: show.StateCancelled,
}
