package tune

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// timings are the measurements of one cost, in order.
type timings []time.Duration

// median is the lower one for an even number; 0: nothing was measured.
func (t timings) median() time.Duration {
	if len(t) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(t))[(len(t)-1)/2]
}

// costParts are the costs of a stop, as parts of cluster.Checkpoint.
var costParts = []struct {
	name, flag string
	of         func(c *cluster.Checkpoint) *time.Duration
}{
	{"to write a checkpoint", "checkpoint-cost", func(c *cluster.Checkpoint) *time.Duration { return &c.Cost }},
	{"to be back where it was", "restart-cost", func(c *cluster.Checkpoint) *time.Duration { return &c.Restart }},
	{"to be frozen and go on", "suspend-cost", func(c *cluster.Checkpoint) *time.Duration { return &c.Suspend }},
}

// stopCosts are measured costs of stops and starts, of one job or many, in the order of costParts.
type stopCosts [3]timings

// measured records an event's measurements of the job's stops. The time of a start counts only if
// the job wrote a checkpoint at its last stop: otherwise it includes repeated work, which a replay
// accounts for itself.
func (j *pastJob) measured(ev *engine.Event) {
	if ev.Type == engine.Stopped {
		j.wrote = ev.Switch.Save > 0
	}
	for k, d := range []time.Duration{ev.Switch.Save, ev.Switch.Restart, ev.Switch.Suspend} {
		if d > 0 && (k != 1 || j.wrote) {
			j.took[k] = append(j.took[k], d)
		}
	}
}

// Costs are the measured costs of stops of each of a history's jobs, in its order.
type Costs struct {
	jobs   []stopCosts
	stated []cluster.Checkpoint
	others []stopCosts // of jobs that are not replayed
}

// Fill sets each job's costs to the median of its own measurements; otherwise to what it states;
// otherwise to the median over the other jobs, unless a flag overrides it (given); otherwise they
// stay. It returns descriptions of what it did, for people.
func (b *Costs) Fill(entries []trace.Entry, given func(flag string) bool) (said []string) {
	measured := false
	for k, part := range costParts {
		var all timings
		jobs := 0
		for _, list := range [][]stopCosts{b.jobs, b.others} {
			for i := range list {
				if all = append(all, list[i][k]...); len(list[i][k]) > 0 {
					jobs++
				}
			}
		}
		typical := all.median()
		for i := range entries {
			c := &entries[i].Job.Checkpoint
			own := b.jobs[i][k].median()
			if c.None && own == 0 {
				continue // the cost of saving does not matter
			}
			if own == 0 && *part.of(&b.stated[i]) == 0 && !given(part.flag) {
				own = typical
			}
			if own > 0 {
				*part.of(c) = own
			}
		}
		if len(all) == 0 {
			continue
		}
		measured = true
		others := "jobs without a measurement that state nothing have the median, too"
		if given(part.flag) {
			others = "jobs without a measurement that state nothing have that of --" + part.flag
		}
		said = append(said, fmt.Sprintf("costs of a stop: measured, %d stops of %d jobs, median %s %s; %s", len(all),
			jobs, roughly(typical), part.name, others))
	}
	if !measured {
		said = []string{"costs of a stop: assumed, none was measured in this history"}
	}
	return said
}

// roughly formats a duration, below a minute to a tenth of a second.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	}
	return cluster.FormatDuration(d.Round(time.Second))
}

// Fit compares the replay of the current policy with what happened.
type Fit struct {
	Jobs     int     `json:"jobs"`              // that arrived and ended under it, and end in its replay
	Recorded float64 `json:"recorded_mean_jct"` // seconds
	Replayed float64 `json:"replayed_mean_jct"`
	Off      float64 `json:"off"` // relative error of the replay's mean; negative: shorter
}

// misfit is the relative error from which on a replay counts as far off; below a second it does not
// matter.
const misfit = 0.25

// Fit compares a replay of the current policy with what happened; nil: no part of the history ran
// under that policy.
func (h *History) Fit(run *report.Run) *Fit {
	force, m := ruleSetOf(&h.Header), &Fit{}
	if len(h.past) != len(run.Records) {
		return nil
	}
	for i := range h.past {
		rec, was := &run.Records[i], &h.past[i]
		if was.under != force || rec.Outcome != report.Completed && rec.Outcome != report.Failed || was.jct <= 0 {
			continue
		}
		m.Jobs++
		m.Recorded += was.jct.Seconds()
		m.Replayed += rec.End.Sub(rec.Submit).Seconds()
	}
	if m.Jobs == 0 {
		return nil
	}
	m.Recorded, m.Replayed = m.Recorded/float64(m.Jobs), m.Replayed/float64(m.Jobs)
	m.Off = m.Replayed/m.Recorded - 1
	return m
}

// Far reports whether the recommendation rests on a model that does not fit.
func (m *Fit) Far() bool {
	return math.Abs(m.Off) > misfit && math.Abs(m.Replayed-m.Recorded) > 1
}

// ruleSet is a daemon's policy, backfill and placer.
type ruleSet struct{ policy, backfill, placer string }

// pastOutcome is the actual outcome of a job that is replayed.
type pastOutcome struct {
	jct   time.Duration // from submission to end, if completed or failed; 0: it ended otherwise
	under ruleSet       // during its whole life; zero: they changed
}
