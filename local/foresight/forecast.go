// Package foresight says what will become of jobs: a second engine goes on from the present state in virtual time, with
// the run times that are expected, and what it does is the forecast. What another policy would change, two of them
// show.
package foresight

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/show"
)

const (
	apart  = 20                     // from one forecast to the next passes this many times what it takes
	sooner = 4                      // ... if a job is new since then, and it takes no longer than
	cheap  = 200 * time.Millisecond // ... this
	again  = 5 * time.Second        // after which another is made although nothing happened: jobs may be overdue
)

// AnyJob stands for a list of jobs.
const AnyJob cluster.JobID = 0

// Forecast is what will happen, as far as was foreseen at a time.
type Forecast struct {
	Seq     int64 // the last step before it
	At      time.Time
	Took    time.Duration
	Waiting map[cluster.JobID]bool // jobs that waited then
	Seen    forward.Outlook        // the first with the run times that are most likely; empty: it could not be made
}

// Made reports whether it could be made.
func (f *Forecast) Made() bool { return f != nil && len(f.Seen) > 0 }

// Fresh reports whether a forecast still holds for a job (AnyJob: for a list of
// them), or is too costly to be made again.
func (f *Forecast) Fresh(id cluster.JobID, seq int64, now time.Time) bool {
	age, gap := now.Sub(f.At), apart*f.Took
	if id != AnyJob && !f.Waiting[id] && f.Took <= cheap {
		gap = sooner * f.Took
	}
	return age < gap || f.Seq == seq && age < again
}

// Start is when a job is expected to start: Never if no start is in sight.
// false: that was not foreseen, or not until then.
func (f *Forecast) Start(id cluster.JobID) (cluster.Time, bool) {
	if !f.Made() || !f.Waiting[id] {
		return cluster.Never, false
	}
	if at := f.Seen.Start(id); at != cluster.Never {
		return at, true
	}
	return cluster.Never, f.Seen[0].Complete()
}

// Interval is between when and when a job is expected to start, as run times differ; false: that makes no
// difference, or the last start is not known.
func (f *Forecast) Interval(id cluster.JobID) (first, last cluster.Time, ok bool) {
	if !f.Made() || !f.Waiting[id] {
		return 0, 0, false
	}
	return f.Seen.Span(id)
}

// SetExpected says of a waiting job when it is expected to start; false: it is not foreseen.
func (f *Forecast) SetExpected(v *show.Job, now cluster.Time) bool {
	at, ok := f.Start(cluster.JobID(v.ID))
	if !ok {
		return false
	}
	v.Expected, v.Rough = nil, false
	if at != cluster.Never {
		v.Expected, v.ByLimits = Instant(max(at, now)), f.Seen[0].Limits[cluster.JobID(v.ID)]
		v.AtEarliest = !v.ByLimits
	}
	return true
}

// setRough is for what was not foreseen: what the engine estimates from the
// work ahead.
func setRough(v *show.Job, at cluster.Time) {
	v.Expected, v.Rough = Instant(at), at != cluster.Never
	v.AtEarliest = v.Rough
}

// Ends are when jobs leave their devices, as was foreseen together with the starts.
func (f *Forecast) Ends(now cluster.Time) map[cluster.JobID]engine.ForeseenEnd {
	if !f.Made() {
		return nil
	}
	ends := map[cluster.JobID]engine.ForeseenEnd{}
	for id, l := range f.Seen[0].Leaves {
		if l.At > now { // what was to have ended by now says nothing
			ends[id] = engine.ForeseenEnd{At: l.At, Limit: l.Reason == engine.TimedOut}
		}
	}
	return ends
}

// Instant is a time for people; nil: never.
func Instant(t cluster.Time) *time.Time {
	if t == cluster.Never {
		return nil
	}
	v := time.Unix(0, int64(t)).UTC()
	return &v
}
