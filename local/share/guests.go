package share

import (
	"time"

	"github.com/muster-gpu/muster/perf"
)

// A guest that is to leave the job beside it a part of its speed (job.Target.Yield) is held back by what that job
// reports, as AntMan's coordinator does (OSDI'20): where it is too slow, its guests run for half as much of each
// second; else for a tenth more.

// FullDuty is all of the time that a guest runs, in thousandths.
const FullDuty = 1000

const (
	leastDuty  = 10
	dutyUp     = 100
	dutyWindow = 2 * time.Second // over which a speed is measured
)

// NextDuty is for how much of the time a guest runs next, now that the job beside it
// has a part of its speed, in ppm, and is to keep yield.
func NextDuty(duty int, rate, yield int64) int {
	if rate < yield {
		return max(leastDuty, duty/2)
	}
	return min(FullDuty, duty+dutyUp)
}

// Window is where a job with guests was, to measure its speed from there.
type Window struct {
	run  int
	step float64
	at   time.Duration // on its devices
	Rate int64         // ppm of its speed alone, as measured last; 0: it was not
}

// Speed measures over the window, which starts over; false: it is too early to say.
func (w *Window) Speed(run int, step float64, at time.Duration, alone float64) (rate int64, ok bool) {
	if w.run != run || step < w.step || alone <= 0 {
		*w = Window{run: run, step: step, at: at}
		return 0, false
	}
	d := at - w.at
	if d < dutyWindow {
		return 0, false
	}
	w.Rate = max(1, int64(min((step-w.step)/d.Seconds()/alone, 100)*perf.Million))
	w.step, w.at = step, at
	return w.Rate, true
}
