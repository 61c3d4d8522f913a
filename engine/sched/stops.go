package sched

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Loses reports whether stopping the job would lose work that it has done: it
// saves nothing when it is told to leave, or takes longer to than it is given. One that
// was found not to (Event.Saves), or that is too slow, loses little if it saves now and then of its own accord.
func (j JobView) Loses() bool {
	switch j.w.Oracle.HowToStop(j.j) {
	case job.Kill:
		return true
	case job.Checkpoint:
		late := j.j.Spec.Checkpoint.Cost > j.w.Oracle.Grace(j.j.Spec.Tier)
		return (j.j.IgnoresCheckpoint || late) && j.j.Spec.Checkpoint.Interval == 0 && j.j.Saved == 0
	}
	return false
}

// portable reports whether a job can go elsewhere with what it has done, by a checkpoint.
func (j JobView) Portable() bool {
	s := j.j.Spec
	return j.w.Oracle.HowToStop(j.j) != job.Kill && !s.Checkpoint.None && !j.j.IgnoresCheckpoint &&
		s.Checkpoint.Cost <= j.w.Oracle.Grace(s.Tier) && s.Tier != cluster.Critical && !s.NoRequeue
}

// MoveTakes is how much time on its devices it costs to move the job: a checkpoint, and a
// start from it.
func (j JobView) MoveTakes() time.Duration {
	return min(j.j.Spec.Checkpoint.Cost, j.w.Oracle.Grace(j.j.Spec.Tier)) + j.j.Spec.Checkpoint.Restart
}

// SwitchTakes is how much time on its devices it costs to stop the job and to start it
// again, as its policy stops it: as was stated, or measured since (SwitchCost).
func (j JobView) SwitchTakes() time.Duration {
	c := &j.j.Spec.Checkpoint
	switch j.w.Oracle.HowToStop(j.j) {
	case job.Suspend:
		return c.Suspend
	case job.Checkpoint:
		if j.j.IgnoresCheckpoint {
			return c.Restart
		}
		return j.MoveTakes()
	}
	return c.Restart
}
