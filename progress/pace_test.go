package progress

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/show"
)

// A job's pace is measured on its own clock from the first report of a run; going back to a
// checkpoint, a new run and silence do not spoil it.
func TestPace(t *testing.T) {
	var p Pace
	at := func(run int, seconds float64, step float64, want float64) {
		t.Helper()
		left, ok := p.Hear(run, time.Duration(seconds*float64(time.Second)),
			&show.Progress{Step: step, Steps: 1000, SamplesPerSec: 10}, false)
		if ok != (want >= 0) || ok && left != time.Duration(want*float64(time.Second)) {
			t.Errorf("run %d, step %v after %v s: %v left (known: %v), not %v s", run, step, seconds, left, ok, want)
		}
	}
	at(1, 100, 50, -1) // compiled for a long time: that does not count
	at(1, 101, 60, -1) // too short
	at(1, 110, 150, 85)
	at(1, 150, 450, 55*50/40.0)
	at(2, 160, 400, 60*50/40.0) // from its checkpoint, at the previous pace
	at(2, 170, 500, 50)
	at(2, 175, 420, 58) // back at its old pace
	if p.Steps != 450 || p.Sample != 10*(1+9+40+10) {
		t.Errorf("%v steps and %v samples", p.Steps, p.Sample)
	}
	if _, ok := p.Hear(2, 200*time.Second, &show.Progress{Step: 600}, false); ok {
		t.Error("without a number of steps, an end is expected")
	}
	if left, ok := p.Hear(2, 200*time.Second, &show.Progress{Step: 600, Steps: 1e300}, false); ok {
		t.Errorf("an end in %v", left)
	}
	if w := Work(100*time.Second, 50*time.Second, 150*time.Second+500*time.Millisecond); w != 0 {
		t.Errorf("half a second more is reported to the engine: %v", w)
	}
	if w := Work(100*time.Second, 50*time.Second, 200*time.Second); w != 150*time.Second {
		t.Errorf("the work is %v", w)
	}
}

// A change of the other jobs on its GPUs restarts the measurement, and the loss of speed is known
// when it has been measured with and without them.
func TestPaceBeside(t *testing.T) {
	var p Pace
	step, at := 0.0, time.Duration(0)
	run := func(d time.Duration, perSecond float64, beside bool) int64 {
		for range int(d / time.Second) {
			step, at = step+perSecond, at+time.Second
			p.Hear(1, at, &show.Progress{Step: step, Steps: 1000}, beside)
		}
		return p.Speed()
	}
	if got := run(5*time.Second, 10, false); got != 1_000_000 {
		t.Errorf("alone it runs at %d ppm", got)
	}
	if got := run(2*time.Second, 6, true); got != 0 {
		t.Errorf("%d ppm is known after a second", got)
	}
	if got := run(3*time.Second, 6, true); got != 600_000 {
		t.Errorf("next to another job it runs at %d ppm, want 600000", got)
	}
	if got := run(time.Second, 10, false); got != 1_000_000 || p.Alone != 10 {
		t.Errorf("alone again it runs at %d ppm of %g", got, p.Alone)
	}
}
