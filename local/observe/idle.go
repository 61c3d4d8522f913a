//go:build linux

package observe

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/show"
)

// A job that holds GPUs and does not use them is warned, then counts as
// best-effort, then is stopped, as the configuration says. The sampler counts
// how long all of its GPUs have been below the threshold; what is done about it
// goes through a step like everything else, and is stored with it.

// IdleRules say what becomes of idle jobs, as the configuration has it.
type IdleRules config.Idle

// Idleness is what is stored of an idle job.
type Idleness struct {
	Since   time.Time `json:"since"`
	Stage   string    `json:"stage"` // show.Idle*
	Text    string    `json:"text"`
	Requeue bool      `json:"requeue,omitempty"` // when it has stopped it waits again
}

// stages of an idle job, in their order.
var idleStages = []string{"", show.IdleWarned, show.IdleDemoted, show.IdleStopped}

// Stage is how far a job of a tier is that has been idle for so long.
func (r *IdleRules) Stage(idle time.Duration, tier cluster.Tier) string {
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

// Text says in one line what becomes of an idle job.
func (r *IdleRules) Text(stage string, since time.Time, tier cluster.Tier) string {
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
		return fmt.Sprintf("%s as idle: its GPUs computed less than %g %% for %s", stopped, r.Below,
			cluster.FormatDuration(r.Stop))
	case r.Stop > 0:
		return fmt.Sprintf("%s%s; after %s it is %s", idle, demoted, cluster.FormatDuration(r.Stop), stopped)
	}
	return idle + demoted
}

// Spares reports whether a job is left alone; queues are the tree.
func (r *IdleRules) Spares(spec *cluster.Job, queues []cluster.Queue) bool {
	if slices.Contains(r.Tiers, spec.Tier) || slices.Contains(r.Kinds, spec.Kind) {
		return true
	}
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
// utilisation of its GPUs in percent, known says that it is known of all of them:
// a GPU of which it is not neither counts as idle nor ends the count.
func (s *Sampler) rest(v *Meter, j *Job, busiest float64, known bool, dt float64, now time.Time) {
	r := s.host.IdleRules()
	if v.Began != j.Began {
		v.Began, v.Still = j.Began, 0
	}
	if r == nil || j.Spared || len(j.Devices) == 0 {
		if v.Still = 0; j.Idle != "" {
			s.host.SetIdle(j, nil, time.Time{}, "")
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
	stage := r.Stage(idle, j.Tier)
	switch {
	case v.Still == 0 && known && j.Idle != "":
		s.host.SetIdle(j, r, time.Time{}, "")
	case slices.Index(idleStages, stage) > slices.Index(idleStages, j.Idle):
		s.host.SetIdle(j, r, now.Add(-idle), stage)
		s.flush = time.Time{} // how long it has been idle is stored at the end of this sample
	}
}
