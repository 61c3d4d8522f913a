//go:build linux

package local

import (
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/foresight"
)

// When waiting jobs will start, a second engine says that goes on from the
// present state in virtual time, with the run times that are expected
// (package forward). One such look answers for all jobs that wait. It is taken several times where run times
// are guessed.

const (
	lookFor    = 3 * time.Second        // most that the looks may take together
	waitToTell = 2 * time.Second        // for how long who asks about one job waits for a look
	waitToList = 100 * time.Millisecond // ... and who lists them
)

// outlook keeps the last forecast.
type outlook struct {
	mu   sync.Mutex
	last *foresight.Forecast
	busy chan struct{} // closed when the one that is being made is there; nil: none is

	tests sync.Mutex // one question what would become of a submission at a time
}

// forecast returns the latest look ahead. If it does not hold any more for the
// job (foresight.AnyJob: a list of jobs), another is made; whoever asks waits for it for as
// long as they say. nil: there is none.
func (m *Machine) forecast(id cluster.JobID, wait time.Duration) *foresight.Forecast {
	c := &m.outlook
	var over <-chan time.Time
	for {
		m.mu.RLock()
		seq := m.seq
		m.mu.RUnlock()
		c.mu.Lock()
		last := c.last
		if last != nil && last.Fresh(id, seq, m.opt.Now()) {
			c.mu.Unlock()
			return last
		}
		if c.busy == nil {
			c.busy = make(chan struct{})
			go m.lookAhead(c.busy)
		}
		busy := c.busy
		c.mu.Unlock()
		if over == nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-busy:
		case <-over:
			return last
		case <-m.running.Done():
			return last
		}
	}
}

// lookAhead makes a forecast.
func (m *Machine) lookAhead(done chan struct{}) {
	f := m.look()
	c := &m.outlook
	c.mu.Lock()
	c.last, c.busy = f, nil
	c.mu.Unlock()
	close(done)
}

// forget drops what was foreseen: the rules are others.
func (c *outlook) forget() {
	c.mu.Lock()
	c.last = nil
	c.mu.Unlock()
}

// look looks ahead from the present state.
func (m *Machine) look() *foresight.Forecast {
	began := m.opt.Now()
	m.mu.RLock()
	now, rules := m.clock.Now(), m.rules()
	f := &foresight.Forecast{Seq: m.seq, Waiting: map[cluster.JobID]bool{}}
	ids := m.eng.Waiting()
	if len(ids) == 0 { // nobody to look for
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
	if f.Seen, err = m.outlooks(&rules, &snap, forward.Options{Now: now}, x); err != nil {
		m.opt.Log.Warn("when jobs will start cannot be foreseen", "error", err)
	}
	f.At = m.opt.Now()
	f.Took = f.At.Sub(began)
	return f
}

// outlooks lets second engines go on from a snapshot, for at most lookFor together: with the submissions that
// are expected, and several times where run times are guessed, unless there are too many jobs for that.
func (m *Machine) outlooks(rules *config.Rules, snap *engine.Snapshot, opt forward.Options,
	x *foresight.Expectations) (forward.Outlook, error) {
	began, most := m.opt.Now(), 1
	if !x.Crowded {
		most = forward.Draws
		opt.Arrivals = x.Arrivals(snap.Next, opt.Now)
		snap.Next += cluster.JobID(len(opt.Arrivals))
	}
	opt.Stop = func() bool { return m.running.Err() != nil || m.opt.Now().Sub(began) > lookFor }
	return forward.Look(func() (*engine.Engine, error) { return m.restored(rules, snap) }, opt, most, x.Work)
}

// ahead lets a second engine go on from a snapshot, for at most lookFor, with the run times that are most likely.
func (m *Machine) ahead(rules *config.Rules, snap *engine.Snapshot, opt forward.Options,
	x *foresight.Expectations) (*forward.Result, error) {
	began := m.opt.Now()
	opt.Stop = func() bool { return m.running.Err() != nil || m.opt.Now().Sub(began) > lookFor }
	list, err := forward.Look(func() (*engine.Engine, error) { return m.restored(rules, snap) }, opt, 1, x.Work)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// expectations collects what is known of the jobs that are not done. The state
// is locked.
func (m *Machine) expectations() *foresight.Expectations {
	x := &foresight.Expectations{Frozen: map[cluster.JobID]bool{}, Paced: map[cluster.JobID]bool{},
		Stated: map[cluster.JobID]*cluster.Job{},
		Runs:   m.runs.Clone(), Recent: m.recent.Clone(), Crowded: len(m.jobs) > mostForked}
	for id, j := range m.jobs {
		if j.info.Frozen {
			x.Frozen[id] = true
		}
		if j.info.Pace.Rate > 0 {
			x.Paced[id] = true
		} else if j.info.Guessed {
			x.Guess(j.spec)
		}
	}
	return x
}
