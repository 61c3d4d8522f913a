//go:build linux

package local

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/run"
)

// Act does what a person asks of a job: cancel, hold, release, requeue,
// suspend, resume. by is who wishes it. When it returns, the wish is stored.
func (m *Machine) Act(ctx context.Context, id int, verb, by string) error {
	return m.commit(ctx, func(now cluster.Time) (_ []engine.Event, err error) {
		j := m.jobs[cluster.JobID(id)]
		if j == nil {
			return nil, ErrNoJob
		}
		defer func() {
			if err == nil {
				m.note(ctx, now, verb, j, "")
			}
		}()
		if slices.Contains(Many, verb) {
			ev, err := wish(j, verb)
			if err == nil {
				applyWish(j, verb, by)
			}
			return []engine.Event{ev}, err
		}
		if err := m.actRunning(j, verb, now); err != nil {
			return nil, err
		}
		j.Said = append(j.Said, doneBy(verb, by))
		info := j.Own()
		if info.FrozenBy = ""; info.Frozen {
			info.FrozenBy = by
		}
		return []engine.Event{{Type: engine.Progress, Job: j.ID}}, nil // so that it is stored
	})
}

// actRunning does what can be done to a running job. The signals are sent when
// the wish is stored.
func (m *Machine) actRunning(j *job, verb string, now cluster.Time) error {
	running := j.run != nil && j.Info.Record.State == engine.Running && !j.Info.Requeue
	switch {
	case verb == "resume" && !j.Info.Frozen && j.Info.Record.Home != nil:
		return fmt.Errorf("job %d was suspended for another: it continues when there is room again", j.ID)
	case verb == "resume" && (!running || !j.Info.Frozen):
		return fmt.Errorf("job %d is %s: only a suspended job can be resumed", j.ID, j.Info.State)
	case verb == "requeue" && !running:
		return fmt.Errorf("job %d is %s: only a running job can be requeued", j.ID, j.Info.State)
	case verb == "suspend" && (!running || j.Info.Frozen):
		return fmt.Errorf("job %d is %s: only a running job can be suspended", j.ID, j.Info.State)
	}
	info := j.Own()
	switch verb {
	case "requeue":
		grace := m.grace(j)
		info.Requeue, info.StopUntil = true, time.Unix(0, int64(now)).Add(grace)
		j.then = append(j.then, run.Order{How: engine.Checkpoint, Grace: grace})
	case "suspend":
		info.Frozen = true
		j.then = append(j.then, run.Order{Freeze: true})
	case "resume":
		info.Frozen = false
		info.Pace.Run = -1 // its clock went on: the speed is measured again
		j.then = append(j.then, run.Order{Unfreeze: true})
	default:
		return fmt.Errorf("%q cannot be done to a job", verb)
	}
	return nil
}

// grace is how long a job of this tier has to write a checkpoint.
func (m *Machine) grace(j *job) time.Duration {
	rules := engine.DefaultStop
	if s := m.rules().Stop; s != nil {
		rules = *s
	}
	return rules[j.Spec.Tier].Grace
}

// note has what was done to a job be in the audit trail with the present step.
func (m *Machine) note(ctx context.Context, now cluster.Time, action string, j *job, text string) {
	m.step.trail = append(m.step.trail,
		audit.OfJob(ctx, time.Unix(0, int64(now)), action, int(j.ID), j.Info.User.Name, text))
}

// done are the verbs as history says them.
var done = map[string]string{"cancel": "cancelled", "hold": "held", "release": "released", "requeue": "requeued",
	"suspend": "suspended", "resume": "resumed"}

// doneBy says what was done to a job, and by whom.
func doneBy(verb, by string) string {
	if by == "" {
		return done[verb]
	}
	return fmt.Sprintf("%s by %s", done[verb], by)
}
