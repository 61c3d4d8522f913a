//go:build linux

package local

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/show"
)

// SetIdle replaces the rules for idle jobs; nil: they are left alone, and what
// was begun is taken back at the next sample.
func (m *Machine) SetIdle(r *observe.IdleRules) {
	m.idle.Store(r)
	if r != nil && (m.opt.SampleEvery <= 0 || m.opt.Devices == nil) {
		m.opt.Log.Warn("idle jobs are not noticed: GPUs are not measured (--sample-every)")
	}
}

// setIdle lets the next step take a job to a stage; "": it computes again, or
// the rules spare it now.
func (m *Machine) setIdle(s *observe.Job, r *observe.IdleRules, since time.Time, stage string) {
	m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		j := m.jobs[s.ID]
		if j == nil {
			return nil, nil
		}
		rec := m.eng.Record(s.ID)
		if rec.State != engine.Running || rec.Started != s.Began || j.Info.Requeue || j.Info.IdleStage() == stage {
			return nil, nil // it is another run by now, stops anyway, or it is done already
		}
		m.opt.Observe.Idle(cmp.Or(stage, "busy"))
		if stage == "" {
			return busyAgain(j), nil
		}
		if old := j.Info.Idle; old != nil {
			since = old.Since
		}
		j.Own().Idle = &observe.Idleness{Since: since.UTC(), Stage: stage, Text: r.Text(stage, since, s.Tier),
			Requeue: r.Requeue}
		j.Said = append(j.Said, j.Info.Idle.Text)
		m.opt.Log.Info("a job is idle", "job", j.ID, "user", j.Info.User.Name, "what", j.Info.Idle.Text)
		ev := engine.Event{Type: engine.Progress, Job: j.ID} // so that it is stored
		switch stage {
		case show.IdleDemoted:
			ev = engine.Event{Type: engine.Demoted, Job: j.ID}
		case show.IdleStopped: // asked for a checkpoint, like every job that has to leave
			grace := m.grace(j)
			info := j.Own()
			info.Requeue, info.StopUntil = true, time.Unix(0, int64(now)).Add(grace)
			j.then = append(j.then, run.Order{How: engine.Checkpoint, Grace: grace})
		}
		return []engine.Event{ev}, nil
	})
}

// busyAgain takes back what was begun with an idle job.
func busyAgain(j *job) []engine.Event {
	was := j.Info.Idle.Stage
	j.Own().Idle = nil
	j.Said = append(j.Said, "no longer idle")
	if was == show.IdleDemoted {
		return []engine.Event{{Type: engine.Demoted, Job: j.ID, Undo: true}}
	}
	return []engine.Event{{Type: engine.Progress, Job: j.ID}}
}
