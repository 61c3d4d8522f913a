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

// timings are what was measured of one cost, one after the other.
type timings []time.Duration

// median is the lower one of an even number; 0: nothing was measured.
func (t timings) median() time.Duration {
	if len(t) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(t))[(len(t)-1)/2]
}

// costParts are the costs of a stop, as a checkpoint has them.
var costParts = []struct {
	name, flag string
	of         func(c *cluster.Checkpoint) *time.Duration
}{
	{"to write a checkpoint", "checkpoint-cost", func(c *cluster.Checkpoint) *time.Duration { return &c.Cost }},
	{"to be back where it was", "restart-cost", func(c *cluster.Checkpoint) *time.Duration { return &c.Restart }},
	{"to be frozen and go on", "suspend-cost", func(c *cluster.Checkpoint) *time.Duration { return &c.Suspend }},
}

// stopCosts are what stops and starts of one job, or of many, were measured to take, in the
// order of costParts.
type stopCosts [3]timings

// measured notes what an event says of the job's stops. How long a start took counts only
// if the job had written a checkpoint when it was stopped: else it did work again, too, which
// a replay has it do besides.
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

// Costs is what is known of the stops of each of a history's jobs, in its order.
type Costs struct {
	jobs   []stopCosts
	stated []cluster.Checkpoint
	others []stopCosts // of jobs that are not replayed
}

// Fill has the replay of each job cost what was measured of it, in the middle; else what it
// states; else what is measured of the others, in the middle, unless a flag says something
// (given); else what stands there. It returns what was done, for people.
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
				continue // what it costs to save is no question
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
		said = append(said, fmt.Sprintf("costs of a stop: measured, %d stops of %d jobs, median %s %s; %s", len(all), jobs, roughly(typical), part.name, others))
	}
	if !measured {
		said = []string{"costs of a stop: assumed, none was measured in this history"}
	}
	return said
}

// roughly prints a duration to a tenth of a second, below a minute.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	}
	return cluster.FormatDuration(d.Round(time.Second))
}

// Fit is how far the replay of the policy in force is from what happened.
type Fit struct {
	Jobs     int     `json:"jobs"`              // that came and ended under it, and end in its replay
	Recorded float64 `json:"recorded_mean_jct"` // seconds
	Replayed float64 `json:"replayed_mean_jct"`
	Off      float64 `json:"off"` // by what part the replay's is longer; negative: shorter
}

// misfit is from which part on a replay is far from what happened; below a second it does
// not matter.
const misfit = 0.25

// Fit compares a replay of the policy in force with what happened; nil: nothing of the history ran under that policy.
func (h *History) Fit(run *report.Run) *Fit {
	force, m := reignOf(&h.Header), &Fit{}
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

// Far reports whether what is recommended rests on a model that does not fit.
func (m *Fit) Far() bool {
	return math.Abs(m.Off) > misfit && math.Abs(m.Replayed-m.Recorded) > 1
}

// reign is what a daemon followed.
type reign struct{ policy, backfill, placer string }

// wasRun is what really became of a job that is replayed.
type wasRun struct {
	jct   time.Duration // from submission to end, completed or failed; 0: it ended otherwise
	under reign         // all the while; zero: under several
}
