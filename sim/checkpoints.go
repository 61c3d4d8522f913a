package sim

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/trace"
)

// Checkpoints are those of jobs whose trace says nothing of them.
type Checkpoints struct {
	Cost   cluster.Checkpoint
	Auto   bool // they are written as often as loses least, instead of Cost.Interval
	Saving perf.Saving
	// Preempted is the mean time between preemptions of a running job; 0: there are none. One that leaves time to write
	// a checkpoint, as Stop says, loses no work.
	Preempted time.Duration
	Stop      *[3]engine.StopRule // nil: as usual
}

// lost is the mean time between preemptions of a job that lose its work; 0: none do.
func (c *Checkpoints) lost(j *cluster.Job) time.Duration {
	rules := engine.DefaultStop
	if c.Stop != nil {
		rules = *c.Stop
	}
	if r := rules[j.Tier]; r.How == engine.Suspend || r.How == engine.Checkpoint && r.Grace >= c.Cost.Cost {
		return 0
	}
	return c.Preempted
}

// Give gives checkpoints to the jobs that state none, and to none fewer than it was promised. It returns how many jobs
// write them as often as loses least, and which part of their time is expected to go to that and to failures, in the
// mean.
func (c *Checkpoints) Give(entries []trace.Entry) (jobs int, waste float64) {
	for i := range entries {
		j := &entries[i].Job
		if j.Checkpoint == (cluster.Checkpoint{}) {
			j.Checkpoint = c.Cost
			if c.Auto {
				s := c.Saving
				s.Preempted = c.lost(j)
				j.Checkpoint.Interval = s.Every(j, c.Cost.Cost, stepOf(&entries[i]))
				waste += perf.Waste(j.Checkpoint.Interval, c.Cost.Cost, c.Cost.Restart, s.Of(j))
				jobs++
			}
		}
		own, most := &j.Checkpoint, c.Saving.Most(j)
		if most > 0 && !own.None && (own.Interval == 0 || own.Interval > most) {
			own.Interval = most
		}
	}
	return jobs, waste / float64(max(1, jobs))
}

// stepOf is how long an iteration takes; 0: the trace does not say.
func stepOf(e *trace.Entry) time.Duration {
	if e.Work == nil {
		return 0
	}
	return e.Work.Step
}
