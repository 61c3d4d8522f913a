package progress

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// Pace is a job's speed by its own account. Its clock is the time on devices, which stops while the
// job waits, and which a new daemon reads from the job's record.
type Pace struct {
	Run   int           `json:"run,omitempty"`         // run of From and Since
	From  float64       `json:"from,omitempty"`        // first step that the run reported
	Since time.Duration `json:"since,omitempty"`       // ... and its time
	Heard time.Duration `json:"reported_at,omitempty"` // time of the last report
	Last  float64       `json:"last,omitempty"`        // ... and its step
	// steps/s on devices, in this run or the previous one; 0: unknown
	Rate float64 `json:"rate,omitempty"`
	Top  float64 `json:"top,omitempty"` // highest step so far
	// completed since the first report; repeated steps do not count
	Steps       float64 `json:"steps,omitempty"`
	Sample      float64 `json:"sample,omitempty"`             // samples computed since the first report
	Alone       float64 `json:"alone,omitempty"`              // Rate with the GPUs to itself; 0: unknown
	Beside      bool    `json:"beside,omitempty"`             // other jobs have been on its GPUs since From and Since
	With        string  `json:"company,omitempty"`            // the other jobs, where it has shares
	PredictedIn int     `json:"predicted_run,omitempty"`      // run in which its end was predicted
	Reported    float64 `json:"speed_reported,omitempty"`     // speed last reported to the policy
	ReportedIn  int     `json:"speed_reported_run,omitempty"` // run in which it was reported
}

// leastPace is the minimum time over which a run must report before its speed counts.
const leastPace = 2 * time.Second

// Hear books a report at a time on devices, and returns the time that the job still needs at its
// current speed; false: unknown. A step below the previous one (the job went back to a checkpoint),
// a new run, and a change of the other jobs on its GPUs restart the measurement; the previous speed
// holds until there is a new one.
func (p *Pace) Hear(run int, at time.Duration, n *show.Progress, beside bool) (left time.Duration, ok bool) {
	switch {
	case p.Run == 0: // the first report ever
		p.From, p.Since, p.Top = n.Step, at, n.Step
	case p.Run != run || n.Step < p.Last || p.Beside != beside:
		p.From, p.Since = n.Step, at
	default:
		p.Sample += n.SamplesPerSec * max(0, (at-p.Heard).Seconds())
	}
	p.Run, p.Heard, p.Last, p.Beside = run, at, n.Step, beside
	if n.Step > p.Top {
		p.Steps, p.Top = p.Steps+n.Step-p.Top, n.Step
	}
	if d := at - p.Since; d >= leastPace && n.Step > p.From {
		if p.Rate = (n.Step - p.From) / d.Seconds(); !beside {
			p.Alone = p.Rate
		}
	}
	if p.Rate <= 0 || n.Steps <= 0 {
		return 0, false
	}
	s := max(0, n.Steps-n.Step) / p.Rate
	if s >= cluster.MaxDuration.Seconds() {
		return 0, false
	}
	return time.Duration(s * float64(time.Second)), true
}

// Meet records the other jobs with shares of the job's GPUs: a change restarts the measurement with
// the next report.
func (p *Pace) Meet(with string) {
	if with != p.With {
		p.With, p.Last = with, math.MaxFloat64
	}
}

// Speed is the job's speed in ppm of that with the GPUs to itself; 0: unknown.
func (p *Pace) Speed() int64 {
	switch {
	case !p.Beside:
		return perf.Million
	case p.Alone <= 0 || p.Heard-p.Since < leastPace || p.Last <= p.From:
		return 0
	}
	return max(1, int64(min(p.Rate/p.Alone, 100)*perf.Million))
}

// Tell is the speed to report to the policy for a job on what it has to itself, in millionths of
// samples or, if it reports none, steps per second; 0: nothing new. The speed of an earlier run
// says nothing of this one, which may be on other GPUs.
func (p *Pace) Tell(n *show.Progress) (perSecond int64, unit job.PaceUnit) {
	if p.Beside || p.Heard-p.Since < leastPace || p.Last <= p.From {
		return 0, 0
	}
	v := p.Rate
	if n.SamplesPerSec > 0 {
		v, unit = n.SamplesPerSec, job.PaceSamples
	}
	if p.ReportedIn == p.Run && math.Abs(v-p.Reported) < p.Reported/50 || v <= 0 || v > 1e9 {
		return 0, 0
	}
	p.Reported, p.ReportedIn = v, p.Run
	return max(1, int64(v*perf.Million)), unit
}

// RanAt is a job's time on devices until now.
func RanAt(r *engine.JobRecord, now cluster.Time) time.Duration {
	if r.State < engine.Starting || r.State > engine.Stopping {
		return r.Ran
	}
	return r.Ran + now.Sub(r.Acc)
}

// Work is a job's total work by its progress, if that differs from the known value by more than a
// fiftieth of the remaining work; otherwise 0.
func Work(done, left, known time.Duration) time.Duration {
	w := max(time.Second, done+left)
	if d := max(w-known, known-w); d <= max(time.Second, left/50) && known > 0 {
		return 0
	}
	return min(w, cluster.MaxDuration)
}

// Scaled is the work done in d at a speed in ppm.
func Scaled(d time.Duration, ppm int64) time.Duration {
	return time.Duration(float64(d) * float64(ppm) / perf.Million)
}

// PerHour is an amount per GPU-hour; nil: undefined.
func PerHour(amount, hours float64) *float64 {
	if amount <= 0 || hours <= 0 {
		return nil
	}
	v := amount / hours
	return &v
}
