//go:build linux

package local

import (
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/show"
)

// When waiting jobs will start, a second engine says that goes on from the
// present state in virtual time, with the run times that are expected
// (package forward). One such look answers for all jobs that wait. It is taken several times where run times are guessed.

const (
	lookFor    = 3 * time.Second        // most that the looks may take together
	lookApart  = 20                     // from one look to the next passes this many times what it takes
	lookSooner = 4                      // ... if somebody asks about a job that is new, and it takes no longer than
	lookCheap  = 200 * time.Millisecond // ... this
	lookAgain  = 5 * time.Second        // after which it is looked again although nothing happened: jobs may be overdue
	waitToTell = 2 * time.Second        // for how long who asks about one job waits for a look
	waitToList = 100 * time.Millisecond // ... and who lists them
)

// forecast is what was seen when it was looked ahead.
type forecast struct {
	seq     int64 // the last step before it
	at      time.Time
	took    time.Duration
	waiting map[cluster.JobID]bool // who waited then
	seen    forward.Outlook        // the first with the run times that are most likely; empty: it could not be looked
}

// made reports whether it could be looked.
func (f *forecast) made() bool { return f != nil && len(f.seen) > 0 }

// outlook keeps the last forecast.
type outlook struct {
	mu   sync.Mutex
	last *forecast
	busy chan struct{} // closed when the one that is being made is there; nil: none is

	tests sync.Mutex // one question what would become of a submission at a time
}

// fresh reports whether a forecast still holds for a job (noJob: for a list of
// them), or is too costly to be made anew.
func (f *forecast) fresh(id cluster.JobID, seq int64, now time.Time) bool {
	age, apart := now.Sub(f.at), lookApart*f.took
	if id != noJob && !f.waiting[id] && f.took <= lookCheap {
		apart = lookSooner * f.took
	}
	return age < apart || f.seq == seq && age < lookAgain
}

// forecast returns the latest look ahead. If it does not hold any more for the
// job (noJob: a list of jobs), another is made; whoever asks waits for it for as
// long as they say. nil: there is none.
func (m *Machine) forecast(id cluster.JobID, wait time.Duration) *forecast {
	c := &m.outlook
	var over <-chan time.Time
	for {
		m.mu.RLock()
		seq := m.seq
		m.mu.RUnlock()
		c.mu.Lock()
		last := c.last
		if last != nil && last.fresh(id, seq, m.opt.Now()) {
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
func (m *Machine) look() *forecast {
	began := m.opt.Now()
	m.mu.RLock()
	now, rules := m.clock.now(began), m.rules()
	f := &forecast{seq: m.seq, waiting: map[cluster.JobID]bool{}}
	ids := m.eng.Waiting()
	if len(ids) == 0 { // nobody to look for
		m.mu.RUnlock()
		f.seen, f.at = forward.Outlook{{Now: now, Until: now}}, began
		return f
	}
	snap, x := m.eng.Snapshot(), m.expectations()
	m.mu.RUnlock()
	for _, id := range ids {
		f.waiting[id] = true
	}
	var err error
	if f.seen, err = m.outlooks(&rules, &snap, forward.Options{Now: now}, x); err != nil {
		m.opt.Log.Warn("when jobs will start cannot be foreseen", "error", err)
	}
	f.at = m.opt.Now()
	f.took = f.at.Sub(began)
	return f
}

// outlooks lets second engines go on from a snapshot, for at most lookFor together: with the submissions that are expected,
// and several times where run times are guessed, unless there are too many jobs for that.
func (m *Machine) outlooks(rules *config.Rules, snap *engine.Snapshot, opt forward.Options, x *expectations) (forward.Outlook, error) {
	began, most := m.opt.Now(), 1
	if !x.crowded {
		most = forward.Draws
		opt.Arrivals = x.arrivals(snap.Next, opt.Now)
		snap.Next += cluster.JobID(len(opt.Arrivals))
	}
	opt.Stop = func() bool { return m.running.Err() != nil || m.opt.Now().Sub(began) > lookFor }
	return forward.Look(func() (*engine.Engine, error) { return m.restored(rules, snap) }, opt, most, x.work)
}

// ahead lets a second engine go on from a snapshot, for at most lookFor, with the run times that are most likely.
func (m *Machine) ahead(rules *config.Rules, snap *engine.Snapshot, opt forward.Options, x *expectations) (*forward.Result, error) {
	began := m.opt.Now()
	opt.Stop = func() bool { return m.running.Err() != nil || m.opt.Now().Sub(began) > lookFor }
	list, err := forward.Look(func() (*engine.Engine, error) { return m.restored(rules, snap) }, opt, 1, x.work)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// expectations is what is known of how long jobs take, and of what will be submitted.
type expectations struct {
	frozen  map[cluster.JobID]bool         // by a person: nobody knows until when
	paced   map[cluster.JobID]bool         // their own progress says how long they take
	stated  map[cluster.JobID]*cluster.Job // as their users stated them, where their estimates are from earlier runs
	runs    forward.Runs
	recent  forward.Recent
	crowded bool // there are too many jobs to look more than once
}

// expectations collects what is known of the jobs that are not done. The state
// is locked.
func (m *Machine) expectations() *expectations {
	x := &expectations{frozen: map[cluster.JobID]bool{}, paced: map[cluster.JobID]bool{}, stated: map[cluster.JobID]*cluster.Job{},
		runs: m.runs.Clone(), recent: m.recent.Clone(), crowded: len(m.jobs) > mostForked}
	for id, j := range m.jobs {
		if j.info.Frozen {
			x.frozen[id] = true
		}
		if j.info.Pace.Rate > 0 {
			x.paced[id] = true
		} else if j.info.Guessed {
			x.guess(j.spec)
		}
	}
	return x
}

// guess lets a job take as long as earlier ones did: its estimate is not its user's.
func (x *expectations) guess(spec *cluster.Job) { x.stated[spec.ID] = stated(spec, 0) }

// arrivals are the submissions that are expected, with the estimates that they would get.
func (x *expectations) arrivals(next cluster.JobID, now cluster.Time) []cluster.Job {
	list := x.recent.Arrivals(next, now)
	for i := range list {
		if j := &list[i]; j.Estimate == 0 {
			if j.Estimate = x.runs.Usual(j); j.Estimate > 0 {
				x.guess(j)
			}
		}
	}
	return list
}

// work says how much work a job is in a draw: as its progress tells, else as earlier runs suggest, and as what its user
// stated was worth earlier.
func (x *expectations) work(draw int, guessed *bool) forward.Work {
	drawn := x.runs.Draw(draw, guessed)
	return func(r *engine.JobRecord, done time.Duration) time.Duration {
		id := r.Spec.ID
		switch {
		case x.frozen[id]:
			return 0
		case x.paced[id]:
			return forward.Expected(r, done)
		case x.stated[id] != nil:
			return drawn(id, x.stated[id], done)
		}
		return drawn(id, r.Spec, done)
	}
}

// start is when a job is expected to start: Never if no start is in sight.
// false: that was not looked at, or not until then.
func (f *forecast) start(id cluster.JobID) (cluster.Time, bool) {
	if !f.made() || !f.waiting[id] {
		return cluster.Never, false
	}
	if at := f.seen.Start(id); at != cluster.Never {
		return at, true
	}
	return cluster.Never, f.seen[0].Complete()
}

// interval is between when and when a job is expected to start, as run times differ; false: that makes no difference, or
// nobody can say until when.
func (f *forecast) interval(id cluster.JobID) (first, last cluster.Time, ok bool) {
	if !f.made() || !f.waiting[id] {
		return 0, 0, false
	}
	return f.seen.Span(id)
}

// tell says of a waiting job when it is expected to start; false: it is not foreseen.
func (f *forecast) tell(v *show.Job, now cluster.Time) bool {
	at, ok := f.start(cluster.JobID(v.ID))
	if !ok {
		return false
	}
	if v.Expected, v.Rough = nil, false; at != cluster.Never {
		v.Expected, v.ByLimits = instant(max(at, now)), f.seen[0].Limits[cluster.JobID(v.ID)]
		v.AtEarliest = !v.ByLimits
	}
	return true
}

// tellRoughly is for what was not foreseen: what the engine estimates from the
// work ahead.
func tellRoughly(v *show.Job, at cluster.Time) {
	v.Expected, v.Rough = instant(at), at != cluster.Never
	v.AtEarliest = v.Rough
}
