package engine

import (
	"strconv"

	"github.com/muster-gpu/muster/cluster"
)

// FindJob finds a job by number or, the latest first, by name.
func (e *Engine) FindJob(name string) (cluster.JobID, bool) {
	if n, err := strconv.Atoi(name); err == nil && e.job(cluster.JobID(n)) != nil {
		return cluster.JobID(n), true
	}
	for i := len(e.jobs) - 1; i >= 0; i-- {
		if e.jobs[i] != nil && e.jobs[i].Spec.Name == name {
			return cluster.JobID(i), true
		}
	}
	return cluster.NoJob, false
}

// Look moves the engine's idea of the time forward without a step, so that an
// explanation counts waiting and remaining times from that instant.
func (e *Engine) Look(at cluster.Time) { e.w.Now = max(e.w.Now, at) }

// Why explains a job. It does not change what the engine will decide.
func (e *Engine) Why(id cluster.JobID) Why { return e.WhyForeseen(id, nil) }

// WhyForeseen is Why, where others are said to leave as was foreseen: by the same look ahead as the start that is told.
func (e *Engine) WhyForeseen(id cluster.JobID, ends map[cluster.JobID]ForeseenEnd) Why {
	return e.explain.Why(id, ends)
}

// Line lists the jobs that could start if there were room, in the order in
// which a pass considers them, and says when the first most of them (at most as
// many as Why looks ahead) are expected to start. It does not change what the
// engine will decide.
func (e *Engine) Line(most int) []Waiting { return e.explain.Line(most) }

// clock writes an instant as the configuration wants it.
func (e *Engine) clock(t cluster.Time) string {
	if e.cfg.Clock != nil && t != cluster.Never {
		return e.cfg.Clock(t)
	}
	return t.String()
}
