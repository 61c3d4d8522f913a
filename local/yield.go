//go:build linux

package local

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/perf"
)

// Guests that are to leave whom they are beside so much of its speed (engine.Target.Yield)
// are held back by what that one reports, as AntMan's coordinator does (OSDI'20): too
// slow, and its guests run for half as much of each second; else for a tenth more.

const (
	fullDuty   = 1000 // thousandths of the time that a guest runs
	leastDuty  = 10
	dutyUp     = 100
	dutyWindow = 2 * time.Second // over which a speed is measured
)

// nextDuty is for how much of the time a guest runs next, now that whom it is beside has
// a part of its speed, in ppm, and is to keep yield.
func nextDuty(duty int, rate, yield int64) int {
	if rate < yield {
		return max(leastDuty, duty/2)
	}
	return min(fullDuty, duty+dutyUp)
}

// window is where a job with guests was, to measure its speed from there.
type window struct {
	run  int
	step float64
	at   time.Duration // on its devices
	rate int64         // ppm of its speed alone, as measured last; 0: it was not
}

// speed measures over the window, which starts over; false: it is too early to say.
func (w *window) speed(run int, step float64, at time.Duration, alone float64) (rate int64, ok bool) {
	if w.run != run || step < w.step || alone <= 0 {
		*w = window{run: run, step: step, at: at}
		return 0, false
	}
	d := at - w.at
	if d < dutyWindow {
		return 0, false
	}
	w.rate = max(1, int64(min((step-w.step)/d.Seconds()/alone, 100)*perf.Million))
	w.step, w.at = step, at
	return w.rate, true
}

// holdBack has a job's guests run for as much of the next second as leaves it its speed.
// It returns the speed that was measured last, in ppm; 0: no guest is to be held back, or
// nobody can say; and events, by which is stored who is. It runs with the state locked.
func (m *Machine) holdBack(j *job, rec *engine.JobRecord, step float64, at time.Duration) (int64, []engine.Event) {
	var guests []*job
	for _, id := range rec.Guests {
		if g := m.jobs[id]; g != nil && g.run != nil && m.yieldOf(id) > 0 {
			guests = append(guests, g)
		}
	}
	if len(guests) == 0 {
		j.window = window{}
		return 0, nil
	}
	var events []engine.Event
	measured, ok := j.window.speed(j.info.Run, step, at, j.info.Pace.Alone)
	for _, g := range guests {
		if g.duty == 0 {
			g.duty = fullDuty
		}
		if yield := m.yieldOf(g.id); ok && g.hold(nextDuty(g.duty, measured, yield), j.id, yield) {
			events = append(events, engine.Event{Type: engine.Progress, Job: g.id})
		}
		if g.duty < fullDuty && !g.info.Frozen {
			m.pause(g.run, run.ProgressEvery*time.Duration(fullDuty-g.duty)/fullDuty)
		}
	}
	return j.window.rate, events
}

// yieldOf is how much of its speed whom a running guest is beside is to keep, in ppm.
func (m *Machine) yieldOf(id cluster.JobID) int64 {
	if r := m.eng.Record(id); r.State == engine.Running && r.Target != nil {
		return r.Target.Yield
	}
	return 0
}

// hold notes for how much of the time a guest runs. That it is held back at all goes into
// its history; true: that is to be stored.
func (j *job) hold(duty int, host cluster.JobID, yield int64) bool {
	news := duty < fullDuty && j.heldFor != 1+host
	if news {
		j.heldFor = 1 + host
		j.said = append(j.said, fmt.Sprintf("is held back so that job %d beside it keeps %d %% of its speed", host, yield*100/perf.Million))
	}
	j.duty = duty
	return news
}
