//go:build linux

package local

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
)

// switching is what stopping a job and starting it again takes, by its own account:
// the time on its devices from its last report before it stopped until it is where it
// was, less what the steps in between take at the speed that it had. It is known to about
// a second: so often reports are read.
type switching struct {
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
}

// left notes that a run is over, or frozen, of which the pace tells. save is how long it
// took to write a checkpoint; 0: nobody knows.
func (s *switching) left(p *progress.Pace, on cluster.Milli, save time.Duration, frozen bool) {
	if s.From == nil {
		if p.Run <= 0 || p.Rate <= 0 || p.Beside {
			return
		}
		s.From = &leftOff{Step: p.Last, At: p.Heard, Rate: p.Rate, On: on, Frozen: frozen}
	}
	s.From.Times++
	s.From.Save += save
	s.From.Frozen = s.From.Frozen && frozen
}

// back looks whether a job that reports a step is where it was, and returns what the
// switch took if that tells for one.
func (s *switching) back(step float64, at time.Duration, on cluster.Milli, beside bool) (c engine.SwitchCost) {
	m := s.From
	if m == nil || step <= m.Step && on == m.On && !beside {
		return c
	}
	s.From = nil
	if on != m.On || beside || m.Times == 0 {
		return c
	}
	took := max(time.Millisecond, at-m.At-time.Duration((step-m.Step)/m.Rate*float64(time.Second)))
	s.Count += m.Times
	s.Took += took
	s.GPU += took * time.Duration(on) / time.Duration(cluster.Whole)
	switch {
	case m.Times > 1: // it was stopped again before it was back
	case m.Frozen:
		c.Suspend = took
	default:
		c.Restart = max(time.Millisecond, took-m.Save)
	}
	return c
}

// saveTook is how long the checkpoint took that a run was asked for, now that it is
// over; 0: it wrote none, or nobody knows.
func (r *runner) saveTook() time.Duration {
	if !r.saved || r.askedAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, r.m.time().Sub(r.askedAt))
}
