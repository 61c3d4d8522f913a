//go:build linux

package run

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// A job of two GPUs that does ten steps a second. Reports are given by step and by time
// on its devices.
func TestSwitching(t *testing.T) {
	const gpus = 2000
	sec := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	type tells func(run int, at, step float64) engine.SwitchCost
	play := func(t *testing.T) (p *progress.Pace, s *Switching, tell tells) {
		p, s = &progress.Pace{}, &Switching{}
		tell = func(run int, at, step float64) engine.SwitchCost {
			p.Hear(run, sec(at), &show.Progress{Step: step}, false)
			return s.Back(step, sec(at), gpus, false)
		}
		for at := 1.0; at <= 10; at++ {
			if c := tell(1, at, 10*at); c != (engine.SwitchCost{}) {
				t.Fatalf("nothing stopped it, and it is told %+v", c)
			}
		}
		return p, s, tell
	}
	near := func(t *testing.T, what string, got, want time.Duration) {
		if d := got - want; d < -50*time.Millisecond || d > 50*time.Millisecond {
			t.Errorf("%s took %v; want %v", what, got, want)
		}
	}
	// stopped at 12 s at step 120; it saves for 3 s, starts for 5, and had saved step 115
	t.Run("checkpoint", func(t *testing.T) {
		p, s, tell := play(t)
		s.Left(p, Stop{1, sec(15), gpus, sec(3), false})
		if c := tell(2, 20.1, 116); c != (engine.SwitchCost{}) || s.Count != 1 {
			near(t, "the restart", c.Restart, sec(20.1-10-1.6-3)) // it is beyond step 100, that it reported last
		}
		if tell(2, 21, 125) != (engine.SwitchCost{}) {
			t.Error("one stop is told twice")
		}
		near(t, "the switch", s.Took, sec(8.5))
		near(t, "the switch of two GPUs", s.GPU, sec(17))
	})
	t.Run("back to an old checkpoint", func(t *testing.T) { // at 10 s, of step 40; what it repeats counts, too
		p, s, tell := play(t)
		s.Left(p, Stop{1, sec(10), gpus, 0, false})
		for at := 12.0; at < 18; at++ {
			if c := tell(2, at, 40+10*(at-11)); c != (engine.SwitchCost{}) {
				t.Fatalf("at %v it is told %+v", at, c)
			}
		}
		c := tell(2, 18, 110)
		near(t, "the restart", c.Restart, sec(7))
	})
	t.Run("frozen", func(t *testing.T) {
		p, s, tell := play(t)
		s.Left(p, Stop{1, sec(10), gpus, 0, true})
		c := tell(1, 12, 105)
		near(t, "the suspension", c.Suspend, sec(1.5))
		if c.Restart != 0 {
			t.Errorf("told %+v of a suspension", c)
		}
	})
	// stopped again before it is back: both together are one figure; the last start is one of its own
	t.Run("twice", func(t *testing.T) {
		p, s, tell := play(t)
		s.Left(p, Stop{1, sec(10), gpus, 0, false})
		tell(2, 15, 90)
		if least := s.Left(p, Stop{2, sec(16), gpus, sec(2), false}); least != 0 {
			t.Errorf("a start took %v at least, that was over when it reported", least)
		}
		c := tell(3, 20, 101)
		near(t, "the last start", c.Restart, sec(20-16-0.1))
		near(t, "both", s.Took, sec(9.9))
		if s.Count != 2 {
			t.Errorf("told after %d stops", s.Count)
		}
	})
	// nothing is heard of the second run, nor of the third, that saves for a second
	t.Run("turns shorter than the start", func(t *testing.T) {
		p, s, tell := play(t)
		s.Left(p, Stop{1, sec(10), gpus, 0, false})
		near(t, "the start of the second", s.Left(p, Stop{2, sec(11), gpus, 0, false}), sec(1))
		near(t, "the start of the third", s.Left(p, Stop{3, sec(14), gpus, sec(1), false}), sec(2))
		near(t, "one of a job that ceased to report", s.Left(p, Stop{4, sec(9e3), gpus, 0, false}), mostUnheard)
		c := tell(5, 9e3+4, 110)
		near(t, "the restart", c.Restart, sec(3))
	})
	t.Run("turns too short for a speed", func(t *testing.T) { // ten steps in the one second between two reports
		p, s := &progress.Pace{}, &Switching{}
		for at := 1.0; at <= 2; at++ {
			p.Hear(1, sec(at), &show.Progress{Step: 10 * at}, false)
		}
		s.Left(p, Stop{1, sec(3), gpus, sec(1), false})
		p.Hear(2, sec(5), &show.Progress{Step: 25}, false)
		near(t, "the restart", s.Back(25, sec(5), gpus, false).Restart, sec(5-2-0.5-1))
	})
	t.Run("other GPUs", func(t *testing.T) { // its speed is another there
		p, s, _ := play(t)
		s.Left(p, Stop{1, sec(10), gpus, 0, false})
		if c := s.Back(200, sec(30), 2*gpus, false); c != (engine.SwitchCost{}) || s.Count != 0 || s.From != nil {
			t.Errorf("told %+v", c)
		}
	})
	t.Run("speed unknown", func(t *testing.T) {
		s := &Switching{}
		s.Left(&progress.Pace{Run: 1, Last: 5}, Stop{1, sec(10), gpus, 0, false})
		if s.From != nil {
			t.Error("it is not known how long it takes to where it was")
		}
	})
}
