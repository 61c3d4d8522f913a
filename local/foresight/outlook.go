package foresight

import (
	"context"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/show"
)

// Outlook keeps the last forecast. One forecast answers for all jobs that wait.
type Outlook struct {
	Running context.Context
	Now     func() time.Time
	Seq     func() int64     // the last step
	Look    func() *Forecast // makes a forecast

	mu   sync.Mutex
	last *Forecast
	busy chan struct{} // closed when the one that is being made is there; nil: none is
}

// Latest returns the latest forecast. If it does not hold any more for the job (AnyJob: a list of jobs), another is
// made, and waited for as long as is said. nil: there is none.
func (o *Outlook) Latest(id cluster.JobID, wait time.Duration) *Forecast {
	var over <-chan time.Time
	for {
		seq := o.Seq()
		o.mu.Lock()
		last := o.last
		if last != nil && last.Fresh(id, seq, o.Now()) {
			o.mu.Unlock()
			return last
		}
		if o.busy == nil {
			o.busy = make(chan struct{})
			go o.make(o.busy)
		}
		busy := o.busy
		o.mu.Unlock()
		if over == nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-busy:
		case <-over:
			return last
		case <-o.Running.Done():
			return last
		}
	}
}

func (o *Outlook) make(done chan struct{}) {
	f := o.Look()
	o.mu.Lock()
	o.last, o.busy = f, nil
	o.mu.Unlock()
	close(done)
}

// Set replaces the last forecast; nil: what was foreseen does not count any more.
func (o *Outlook) Set(f *Forecast) {
	o.mu.Lock()
	o.last = f
	o.mu.Unlock()
}

// Second makes engines that go on from one state.
type Second struct {
	Engine func() (*engine.Engine, error)
	Stop   func() bool // they have gone on for long enough
}

// RunAhead lets engines go on from a snapshot: with the submissions that are expected, and several times where run
// times are guessed, unless there are too many jobs for that.
func (x *Expectations) RunAhead(e Second, snap *engine.Snapshot,
	opt forward.Options) (forward.Outlook, error) {
	most := 1
	if !x.Crowded {
		most = forward.Draws
		opt.Arrivals = x.Arrivals(snap.Next, opt.Now)
		snap.Next += cluster.JobID(len(opt.Arrivals))
	}
	opt.Stop = e.Stop
	return forward.Look(e.Engine, opt, most, x.Work)
}

// Likely lets an engine go on with the run times that are most likely.
func (x *Expectations) Likely(e Second, opt forward.Options) (*forward.Result, error) {
	opt.Stop = e.Stop
	list, err := forward.Look(e.Engine, opt, 1, x.Work)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// SetWhen says when a waiting job is expected to start, and between when and when: as was foreseen, else roughly.
func SetWhen(v *show.Job, seen *Forecast, y *engine.Why, now cluster.Time) {
	if !seen.SetExpected(v, now) {
		setRough(v, y.Expected)
		return
	}
	if first, last, ok := seen.Interval(cluster.JobID(v.ID)); ok && last > now {
		v.Earliest, v.Latest = Instant(max(first, now)), Instant(last)
	}
}

// Line is the line of waiting jobs at a step.
type Line struct {
	List      []engine.Waiting
	Estimated bool // when the first will start
	pos       map[cluster.JobID]int
}

// LineOf is the line of an engine, with an estimate of when the first so many jobs will start.
func LineOf(e *engine.Engine, estimated int) *Line {
	l := &Line{List: e.Line(estimated), Estimated: estimated > 0, pos: map[cluster.JobID]int{}}
	for i := range l.List {
		l.pos[l.List[i].Job] = i
	}
	return l
}

// Has reports whether a job is in line.
func (l *Line) Has(id cluster.JobID) bool { _, ok := l.pos[id]; return ok }

// Place says where in the line a job is, and roughly when it will start.
func (l *Line) Place(v *show.Job) {
	i, ok := l.pos[cluster.JobID(v.ID)]
	if !ok || v.State != show.StatePending {
		return
	}
	v.Position = i + 1
	setRough(v, l.List[i].Expected)
}
