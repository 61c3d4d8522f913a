package progress

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// Heard is a report of a running job, as it is booked.
type Heard struct {
	Now   cluster.Time
	Job   *engine.JobRecord
	Left  time.Duration // remaining time from now, from Pace.Hear
	Paced bool          // ... whether it is known
	Speed int64         // measured by its driver, in ppm of that alone; 0: by its steps
	// Saved: there is a new checkpoint since the last report, and the steps since it was written.
	Saved bool
	Since float64
}

// Event is the engine's event for a report that Hear booked.
func (p *Pace) Event(h *Heard, n *show.Progress) engine.Event {
	ev := engine.Event{Type: engine.Progress, Job: h.Job.Spec.ID}
	if est := h.Job.Spec.Estimate; est > 0 && n.Steps > 0 && !h.Paced { // part of the estimate until its speed is known
		ev.Done = time.Duration(float64(est) * min(1, max(0, n.Step/n.Steps)))
	}
	seconds := func(s float64) time.Duration {
		return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
	}
	switch {
	case n.CommSec > 0:
		ev.Traffic = &cluster.Traffic{Bytes: n.Bytes, Compute: seconds(n.IterationSec - n.CommSec)}
	case n.IterationSec > 0: // what of it is computing follows from the traffic that is known
		ev.Iteration = seconds(n.IterationSec)
		if n.Bytes > 0 {
			ev.Traffic = &cluster.Traffic{Bytes: n.Bytes}
		}
	}
	switch {
	case n.Slots == show.SlotsHeld:
		ev.Slots = cluster.SlotsHeld
	case n.Slots == show.SlotsTooShort:
		ev.Slots = cluster.SlotsTooShort
	case n.IterationSec > 0:
		ev.Slots = cluster.SlotsCalled
	}
	if h.Job.Spec.Model != "" {
		ev.Pace, ev.Unit = p.Tell(n)
	}
	rate := p.Speed()
	if h.Speed > 0 && rate > 0 {
		rate = h.Speed
	}
	if rate != h.Job.Rate && h.Job.Rate > 0 {
		ev.Rate = rate
	}
	if h.Saved {
		ev.Saved = p.savedOf(max(ev.Done, h.Job.DoneAt(h.Now)), h.Since, n.Step)
	}
	if h.Paced && rate > 0 {
		ev.Estimate = Work(h.Job.DoneAt(h.Now), Scaled(h.Left, rate), h.Job.Spec.Estimate)
	}
	return ev
}

// savedOf is the part of the completed work that the last checkpoint holds, written since steps
// before step: by the job's speed or, while that is unknown, by its steps.
func (p *Pace) savedOf(done time.Duration, since, step float64) time.Duration {
	switch {
	case since <= 0:
		return done
	case p.Rate > 0:
		return max(0, done-time.Duration(min(since/p.Rate, cluster.MaxDuration.Seconds())*float64(time.Second)))
	case step > since:
		return time.Duration(float64(done) * (1 - since/step))
	}
	return 0
}
