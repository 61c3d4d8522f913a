//go:build linux

package local

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/share"
	"github.com/muster-gpu/muster/perf"
)

// holdBack has a job's guests run for as much of the next second as leaves it its speed.
// It returns the speed that was measured last, in ppm; 0: no guest is to be held back, or
// it is not known; and events, by which is stored which guest is. It runs with the state locked.
func (m *Machine) holdBack(j *job, rec *engine.JobRecord, step float64, at time.Duration) (int64, []engine.Event) {
	var guests []*job
	for _, id := range rec.Guests {
		if g := m.jobs[id]; g != nil && g.run != nil && yieldOf(m.eng, id) > 0 {
			guests = append(guests, g)
		}
	}
	if len(guests) == 0 {
		j.window = share.Window{}
		return 0, nil
	}
	var events []engine.Event
	measured, ok := j.window.Speed(j.Info.Run, step, at, j.Info.Pace.Alone)
	for _, g := range guests {
		if g.duty == 0 {
			g.duty = share.FullDuty
		}
		if yield := yieldOf(m.eng, g.ID); ok && g.hold(share.NextDuty(g.duty, measured, yield), j.ID, yield) {
			events = append(events, engine.Event{Type: engine.Progress, Job: g.ID})
		}
		if g.duty < share.FullDuty && !g.Info.Frozen {
			m.pause(g.run, run.ProgressEvery*time.Duration(share.FullDuty-g.duty)/share.FullDuty)
		}
	}
	return j.window.Rate, events
}

// yieldOf is how much of its speed the job beside a running guest is to keep, in ppm.
func yieldOf(e *engine.Engine, id cluster.JobID) int64 {
	if r := e.Record(id); r.State == engine.Running && r.Target != nil {
		return r.Target.Yield
	}
	return 0
}

// hold notes for how much of the time a guest runs. That it is held back at all goes into
// its history; true: that is to be stored.
func (j *job) hold(duty int, host cluster.JobID, yield int64) bool {
	news := duty < share.FullDuty && j.heldFor != 1+host
	if news {
		j.heldFor = 1 + host
		j.Said = append(j.Said,
			fmt.Sprintf("is held back so that job %d beside it keeps %d %% of its speed", host, yield*100/perf.Million))
	}
	j.duty = duty
	return news
}
