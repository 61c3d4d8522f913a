//go:build linux

package run

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
)

// Switching is what stopping a job and starting it again takes, by its own account:
// the time on its devices from its last report before it stopped until it is where it
// was, less what the steps in between take at the speed that it had. It is known to about
// a second: so often reports are read.
type Switching struct {
	Count int           `json:"count,omitempty"` // switches that were measured
	Took  time.Duration `json:"took,omitempty"`  // by them all, on its devices
	GPU   time.Duration `json:"gpu,omitempty"`   // likewise, times GPUs
	From  *leftOff      `json:"from,omitempty"`  // it was stopped, and is not back where it was
}

// leftOff is where a job was when it was stopped.
type leftOff struct {
	Step   float64       `json:"step"` // that it reported last
	At     time.Duration `json:"at"`   // ... and when, by its time on devices
	Rate   float64       `json:"rate"` // steps per second
	On     cluster.Milli `json:"on"`   // with more or less it has another speed
	Save   time.Duration `json:"save,omitempty"`
	Times  int           `json:"times"` // that it was stopped since
	Frozen bool          `json:"frozen,omitempty"`
	Since  time.Duration `json:"since,omitempty"` // when it was stopped last, by its time on devices; 0: it was frozen
}

// mostUnheard is how long a start without a report may seem to take: a job that ceases
// to report does not start for ever.
const mostUnheard = 10 * time.Minute

// Stop is a run that is over, or frozen.
type Stop struct {
	Run    int
	At     time.Duration // the job's time on its devices
	On     cluster.Milli
	Save   time.Duration // that it took to write a checkpoint; 0: it is not known
	Frozen bool
}

// Left notes a stop, and returns what a start takes at least, if the run was stopped before it reported anything; 0:
// that is not known. Without it, a job whose start takes longer than its turn would never be known to.
func (s *Switching) Left(p *progress.Pace, o Stop) (least time.Duration) {
	switch m := s.From; {
	case m == nil:
		rate := p.Rate
		if d := p.Heard - p.Since; rate <= 0 && p.Last > p.From && d > 0 {
			rate = (p.Last - p.From) / d.Seconds() // roughly: turns may be too short for more
		}
		if p.Run <= 0 || rate <= 0 || p.Beside {
			return 0
		}
		s.From = &leftOff{Step: p.Last, At: p.Heard, Rate: rate, On: o.On, Frozen: o.Frozen}
	case p.Run < o.Run && m.Since > 0:
		least = min(max(0, o.At-m.Since-o.Save), mostUnheard)
	}
	m := s.From
	m.Times++
	m.Save += o.Save
	m.Frozen = m.Frozen && o.Frozen
	if m.Since = o.At; o.Frozen {
		m.Since = 0
	}
	return least
}

// Back takes in that a job reports a step, and returns what the switch took, if the job is back where it was.
func (s *Switching) Back(step float64, at time.Duration, on cluster.Milli, beside bool) (c engine.SwitchCost) {
	m := s.From
	if m == nil || step <= m.Step && on == m.On && !beside {
		return c
	}
	s.From = nil
	if on != m.On || beside || m.Times == 0 {
		return c
	}
	ahead := time.Duration((step - m.Step) / m.Rate * float64(time.Second))
	took := max(time.Millisecond, at-m.At-ahead)
	s.Count += m.Times
	s.Took += took
	s.GPU += took * time.Duration(on) / time.Duration(cluster.Whole)
	switch {
	case m.Times > 1: // it was stopped again before it was back: of the last start alone
		if m.Since > 0 {
			c.Restart = max(time.Millisecond, at-m.Since-ahead)
		}
	case m.Frozen:
		c.Suspend = took
	default:
		c.Restart = max(time.Millisecond, took-m.Save)
	}
	return c
}
