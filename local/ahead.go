//go:build linux

package local

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/foresight"
)

// When waiting jobs will start, a second engine says that goes on from the
// present state in virtual time, with the run times that are expected
// (package forward). One such forecast answers for all jobs that wait. It is made several times where run times
// are guessed.

const (
	lookFor    = 3 * time.Second        // most that they may take together
	waitToTell = 2 * time.Second        // how long a question about one job waits for a forecast
	waitToList = 100 * time.Millisecond // ... and a list of jobs
	mostForked = 2000                   // live jobs up to which a forecast is made several times, and expects submissions
)

// lastSeq is the number of the last step.
func (m *Machine) lastSeq() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.seq
}

// makeForecast makes a forecast from the present state.
func (m *Machine) makeForecast() *foresight.Forecast {
	began := m.opt.Now()
	m.mu.RLock()
	now, rules := m.clock.Now(), m.rules()
	f := &foresight.Forecast{Seq: m.seq, Waiting: map[cluster.JobID]bool{}}
	ids := m.eng.Waiting()
	if len(ids) == 0 { // nothing to foresee
		m.mu.RUnlock()
		f.Seen, f.At = forward.Outlook{{Now: now, Until: now}}, began
		return f
	}
	snap, x := m.eng.Snapshot(), m.expectations()
	m.mu.RUnlock()
	for _, id := range ids {
		f.Waiting[id] = true
	}
	var err error
	if f.Seen, err = x.RunAhead(m.second(&rules, &snap), &snap, forward.Options{Now: now}); err != nil {
		m.opt.Log.Warn("when jobs will start cannot be foreseen", "error", err)
	}
	f.At = m.opt.Now()
	f.Took = f.At.Sub(began)
	return f
}

// second makes engines that go on from a snapshot, for at most lookFor together.
func (m *Machine) second(rules *config.Rules, snap *engine.Snapshot) foresight.Second {
	began := m.opt.Now()
	return foresight.Second{Engine: func() (*engine.Engine, error) { return m.restored(rules, snap) },
		Stop: func() bool { return m.running.Err() != nil || m.opt.Now().Sub(began) > lookFor }}
}

// expectations collects what is known of the jobs that are not done. The state
// is locked.
func (m *Machine) expectations() *foresight.Expectations {
	x := &foresight.Expectations{Frozen: map[cluster.JobID]bool{}, Paced: map[cluster.JobID]bool{},
		Stated: map[cluster.JobID]*cluster.Job{},
		Runs:   m.known.Runs.Clone(), Recent: m.known.Recent.Clone(), Crowded: len(m.jobs) > mostForked}
	for id, j := range m.jobs {
		if j.Info.Frozen {
			x.Frozen[id] = true
		}
		if j.Info.Pace.Rate > 0 {
			x.Paced[id] = true
		} else if j.Info.Guessed {
			x.Guess(j.Spec)
		}
	}
	return x
}
