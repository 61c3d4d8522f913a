//go:build linux

package local

import (
	"sync"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/journal"
)

// When waiting jobs will start, a second engine says that goes on from the
// present state in virtual time, with the run times that are expected
// (package forward). One such run answers for all jobs that wait.

const (
	lookFor    = 3 * time.Second        // most that one run may take
	lookApart  = 20                     // from one look to the next passes this many times what it takes
	lookSooner = 4                      // ... if somebody asks about a job that is new, and it takes no longer than
	lookCheap  = 50 * time.Millisecond  // ... this
	lookAgain  = 5 * time.Second        // after which it is looked again although nothing happened: jobs may be overdue
	waitToTell = 2 * time.Second        // for how long who asks about one job waits for a look
	waitToList = 100 * time.Millisecond // ... and who lists them
)

// quantiles are those of earlier runs between which a start is expected, in percent.
var quantiles = [2]int{10, 90}

// forecast is what was seen when it was looked ahead.
type forecast struct {
	seq     int64 // the last step before it
	made    time.Time
	took    time.Duration
	waiting map[cluster.JobID]bool // who waited then
	mid     *forward.Result        // nil: it could not be looked
	edges   [2]*forward.Result     // if the jobs whose run times are guessed are short, and if they are long; nil: none are
}

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
	age, apart := now.Sub(f.made), lookApart*f.took
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
		f.mid, f.made = &forward.Result{Now: now, Until: now}, began
		return f
	}
	snap, x := m.eng.Snapshot(), m.expectations()
	edges := len(x.guessed) > 0 && len(m.jobs) <= mostForked
	m.mu.RUnlock()
	for _, id := range ids {
		f.waiting[id] = true
	}
	var err error
	f.mid, err = m.ahead(&rules, &snap, forward.Options{Now: now, Work: x.work(50)})
	for i, percent := range quantiles {
		if err == nil && edges {
			f.edges[i], err = m.ahead(&rules, &snap, forward.Options{Now: now, Work: x.work(percent)})
		}
	}
	if err != nil {
		m.opt.Log.Warn("when jobs will start cannot be foreseen", "error", err)
	}
	f.made = m.opt.Now()
	f.took = f.made.Sub(began)
	return f
}

// ahead lets a second engine go on from a snapshot, for at most lookFor.
func (m *Machine) ahead(rules *journal.Header, snap *engine.Snapshot, opt forward.Options) (*forward.Result, error) {
	began := m.opt.Now()
	e, err := m.restored(rules, snap)
	if err != nil {
		return nil, err
	}
	opt.Stop = func() bool { return m.running.Err() != nil || m.opt.Now().Sub(began) > lookFor }
	return forward.Run(e, opt), nil
}

// expectations is what is known of how long jobs take.
type expectations struct {
	frozen  map[cluster.JobID]bool // by a person: nobody knows until when
	guessed map[cluster.JobID]bool // their run times are those of earlier runs
	runs    history                // ... which are these
}

// expectations collects what is known of the jobs that are not done. The state
// is locked.
func (m *Machine) expectations() *expectations {
	x := &expectations{map[cluster.JobID]bool{}, map[cluster.JobID]bool{}, history{}}
	for id, j := range m.jobs {
		if j.info.Frozen {
			x.frozen[id] = true
		}
		if j.info.Guessed && j.info.Pace.Rate == 0 {
			x.guess(id, j.spec, m.history)
		}
	}
	return x
}

// guess lets a job take as long as earlier ones did.
func (x *expectations) guess(id cluster.JobID, spec *cluster.Job, h history) {
	x.guessed[id] = true
	if k := keyOf(spec); x.runs[k] == nil {
		x.runs[k] = append([]time.Duration(nil), h[k]...)
	}
}

// work says how much work a job is: as it was stated or as its progress tells,
// else a quantile of the earlier runs that took longer than it does already.
func (x *expectations) work(percent int) func(*engine.JobRecord, time.Duration) time.Duration {
	return func(r *engine.JobRecord, done time.Duration) time.Duration {
		switch id := r.Spec.ID; {
		case x.frozen[id]:
			return 0
		case !x.guessed[id], percent == 50 && done < r.Spec.Estimate:
			return forward.Expected(r, done)
		}
		if d := x.runs.of(r.Spec, done, percent); d > 0 {
			return d
		}
		return forward.Expected(r, done)
	}
}

// start is when a job is expected to start: Never if no start is in sight.
// false: that was not looked at, or not until then.
func (f *forecast) start(id cluster.JobID) (cluster.Time, bool) {
	if f == nil || f.mid == nil || !f.waiting[id] {
		return cluster.Never, false
	}
	if at, ok := f.mid.Starts[id]; ok {
		return at, true
	}
	return cluster.Never, f.mid.Complete()
}

// interval is between when and when a job is expected to start, if all whose
// run times are guessed are short or long; false: that makes no difference, or
// nobody can say until when.
func (f *forecast) interval(id cluster.JobID) (first, last cluster.Time, ok bool) {
	first, ok = f.start(id)
	if !ok || first == cluster.Never {
		return 0, 0, false
	}
	last = first
	for _, r := range f.edges {
		if r == nil {
			return 0, 0, false
		}
		at, ok := r.Starts[id]
		if !ok {
			return 0, 0, false
		}
		first, last = min(first, at), max(last, at)
	}
	return first, last, first < last
}

// tell says of a waiting job when it is expected to start; false: it is not foreseen.
func (f *forecast) tell(v *api.Job, now cluster.Time) bool {
	at, ok := f.start(cluster.JobID(v.ID))
	if !ok {
		return false
	}
	if v.Expected, v.Rough = nil, false; at != cluster.Never {
		v.Expected, v.ByLimits = instant(max(at, now)), f.mid.Limits[cluster.JobID(v.ID)]
		v.AtEarliest = !v.ByLimits
	}
	return true
}

// tellRoughly is for what was not foreseen: what the engine estimates from the
// work ahead.
func tellRoughly(v *api.Job, at cluster.Time) {
	v.Expected, v.Rough = instant(at), at != cluster.Never
	v.AtEarliest = v.Rough
}
