//go:build linux

package local

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// A job that holds GPUs and does not use them is warned, then counts as
// best-effort, then is stopped, as the configuration says. The sampler counts
// how long all of its GPUs have been below the threshold; what is done about it
// goes through a step like everything else, and is stored with it.

// IdleRules say what becomes of idle jobs. A time is counted from when the last
// of a job's GPUs fell below the threshold; 0: that step is left out.
type IdleRules struct {
	Below              float64 // percent of compute utilisation
	Warn, Demote, Stop time.Duration
	Requeue            bool // a job that is stopped waits again
	// Queues (with those below them), Tiers and Kinds are left alone.
	Queues []string
	Tiers  []cluster.Tier
	Kinds  []cluster.Kind
}

// idleness is what is stored of an idle job.
type idleness struct {
	Since   time.Time `json:"since"`
	Stage   string    `json:"stage"` // api.Idle*
	Text    string    `json:"text"`
	Requeue bool      `json:"requeue,omitempty"` // when it has stopped it waits again
}

// stages of an idle job, in their order.
var idleStages = []string{"", show.IdleWarned, show.IdleDemoted, show.IdleStopped}

// stage is how far a job of a tier is that has been idle for so long.
func (r *IdleRules) stage(idle time.Duration, tier cluster.Tier) string {
	at := ""
	for _, s := range []struct {
		after time.Duration
		name  string
	}{{r.Warn, show.IdleWarned}, {r.demoteAfter(tier), show.IdleDemoted}, {r.Stop, show.IdleStopped}} {
		if s.after > 0 && idle >= s.after {
			at = s.name
		}
	}
	return at
}

// demoteAfter is when a job counts as best-effort; 0: never. One that is
// best-effort cannot fall lower, and a critical one holds what its queue is owed.
func (r *IdleRules) demoteAfter(tier cluster.Tier) time.Duration {
	if tier != cluster.Standard {
		return 0
	}
	return r.Demote
}

// text says in one line what becomes of an idle job.
func (r *IdleRules) text(stage string, since time.Time, tier cluster.Tier) string {
	idle := fmt.Sprintf("idle since %s: its GPUs compute less than %g %%", since.Local().Format("15:04:05"), r.Below)
	stopped := "stopped"
	if r.Requeue {
		stopped = "stopped to wait again"
	}
	demoted := ""
	if stage == show.IdleDemoted {
		demoted = "; it counts as best-effort until it computes again"
	} else if d := r.demoteAfter(tier); d > 0 && stage == show.IdleWarned {
		demoted = fmt.Sprintf("; after %s of that it counts as best-effort", cluster.FormatDuration(d))
	}
	switch {
	case stage == show.IdleStopped:
		return fmt.Sprintf("%s as idle: its GPUs computed less than %g %% for %s", stopped, r.Below, cluster.FormatDuration(r.Stop))
	case r.Stop > 0:
		return fmt.Sprintf("%s%s; after %s it is %s", idle, demoted, cluster.FormatDuration(r.Stop), stopped)
	}
	return idle + demoted
}

// SetIdle replaces the rules for idle jobs; nil: they are left alone, and what
// was begun is taken back at the next look.
func (m *Machine) SetIdle(r *IdleRules) {
	m.idle.Store(r)
	if r != nil && (m.opt.SampleEvery <= 0 || m.opt.Devices == nil) {
		m.opt.Log.Warn("idle jobs cannot be told: GPUs are not measured (--sample-every)")
	}
}

// spared reports whether a job is left alone. It runs with the state locked.
func (m *Machine) spared(r *IdleRules, spec *cluster.Job) bool {
	if slices.Contains(r.Tiers, spec.Tier) || slices.Contains(r.Kinds, spec.Kind) {
		return true
	}
	queues := m.opt.Rules.Spec.Queues
	for at := spec.Queue; at != ""; {
		if slices.Contains(r.Queues, at) {
			return true
		}
		i := slices.IndexFunc(queues, func(q cluster.Queue) bool { return q.Name == at })
		if i < 0 {
			return false
		}
		at = queues[i].Parent
	}
	return false
}

// rest counts how long all of a job's GPUs have been below the threshold, and
// sees to it that what follows from it is done. busiest is the highest
// utilisation of its GPUs in percent, known says that all of them told theirs:
// a GPU that tells nothing neither counts as idle nor ends the count.
func (s *sampler) rest(v *meter, j *sampled, busiest float64, known bool, dt float64, now time.Time) {
	r := s.m.idle.Load()
	if v.Began != j.began {
		v.Began, v.Still = j.began, 0
	}
	if r == nil || j.spared || len(j.devices) == 0 {
		if v.Still = 0; j.idle != "" {
			s.m.setIdle(j, nil, time.Time{}, "")
		}
		return
	}
	switch {
	case busiest >= r.Below && busiest > 0:
		v.Still = 0
	case known:
		v.Still += dt
	}
	idle := time.Duration(v.Still * float64(time.Second))
	stage := r.stage(idle, j.tier)
	switch {
	case v.Still == 0 && known && j.idle != "":
		s.m.setIdle(j, r, time.Time{}, "")
	case slices.Index(idleStages, stage) > slices.Index(idleStages, j.idle):
		s.m.setIdle(j, r, now.Add(-idle), stage)
		s.flush = time.Time{} // how long it has been idle is stored at the end of this look
	}
}

// setIdle lets the next step take a job to a stage; "": it computes again, or
// the rules spare it now.
func (m *Machine) setIdle(s *sampled, r *IdleRules, since time.Time, stage string) {
	m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		j := m.jobs[s.id]
		if j == nil {
			return nil, nil
		}
		rec := m.eng.Record(s.id)
		if rec.State != engine.Running || rec.Started != s.began || j.info.Requeue || j.info.idleStage() == stage {
			return nil, nil // it is another run by now, stops anyway, or it is done already
		}
		m.opt.Observe.Idle(cmp.Or(stage, "busy"))
		if stage == "" {
			return m.busyAgain(j), nil
		}
		if old := j.info.Idle; old != nil {
			since = old.Since
		}
		j.own().Idle = &idleness{Since: since.UTC(), Stage: stage, Text: r.text(stage, since, s.tier), Requeue: r.Requeue}
		j.said = append(j.said, j.info.Idle.Text)
		m.opt.Log.Info("a job is idle", "job", j.id, "user", j.info.User.Name, "what", j.info.Idle.Text)
		ev := engine.Event{Type: engine.Progress, Job: j.id} // so that it is stored
		switch stage {
		case show.IdleDemoted:
			ev = engine.Event{Type: engine.Demoted, Job: j.id}
		case show.IdleStopped: // asked for a checkpoint, as everybody is who has to leave
			grace := m.grace(j)
			info := j.own()
			info.Requeue, info.StopUntil = true, time.Unix(0, int64(now)).Add(grace)
			j.then = append(j.then, order{how: engine.Checkpoint, grace: grace})
		}
		return []engine.Event{ev}, nil
	})
}

// busyAgain takes back what was begun with an idle job.
func (m *Machine) busyAgain(j *job) []engine.Event {
	was := j.info.Idle.Stage
	j.own().Idle = nil
	j.said = append(j.said, "no longer idle")
	if was == show.IdleDemoted {
		return []engine.Event{{Type: engine.Demoted, Job: j.id, Undo: true}}
	}
	return []engine.Event{{Type: engine.Progress, Job: j.id}}
}

// idleStage is how far a job is that does not use its GPUs; "": it does.
func (i *Info) idleStage() string {
	if i.Idle == nil {
		return ""
	}
	return i.Idle.Stage
}

// endsIdle reports whether a run that was stopped as idle is the job's last.
func (i *Info) endsIdle() bool { return i.idleStage() == show.IdleStopped && !i.Idle.Requeue }
