package foresight

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
)

// Expectations is what is known of how long jobs take, and of what will be submitted.
type Expectations struct {
	Frozen  map[cluster.JobID]bool         // by a person: it is not known until when
	Paced   map[cluster.JobID]bool         // their own progress says how long they take
	Stated  map[cluster.JobID]*cluster.Job // as their users stated them, where their estimates are from earlier runs
	Runs    forward.Runs
	Recent  forward.Recent
	Crowded bool // there are too many jobs for more than one forecast
}

// Guess lets a job take as long as earlier ones did: its estimate is not its user's.
func (x *Expectations) Guess(spec *cluster.Job) { x.Stated[spec.ID] = Stated(spec, 0) }

// Arrivals are the submissions that are expected, with the estimates that they would get.
func (x *Expectations) Arrivals(next cluster.JobID, now cluster.Time) []cluster.Job {
	list := x.Recent.Arrivals(next, now)
	for i := range list {
		if j := &list[i]; j.Estimate == 0 {
			if j.Estimate = x.Runs.Usual(j); j.Estimate > 0 {
				x.Guess(j)
			}
		}
	}
	return list
}

// Work says how much work a job is in a draw: as its progress says, else as earlier runs suggest, and as what its user
// stated was worth earlier.
func (x *Expectations) Work(draw int, guessed *bool) forward.Work {
	drawn := x.Runs.Draw(draw, guessed)
	return func(r *engine.JobRecord, done time.Duration) time.Duration {
		id := r.Spec.ID
		switch {
		case x.Frozen[id]:
			return 0
		case x.Paced[id]:
			return forward.Expected(r, done)
		case x.Stated[id] != nil:
			return drawn(id, x.Stated[id], done)
		}
		return drawn(id, r.Spec, done)
	}
}

// Stated is a job with the estimate that its user stated: what it has else is from earlier runs, or its own progress.
func Stated(spec *cluster.Job, estimate time.Duration) *cluster.Job {
	if spec.Estimate == estimate {
		return spec
	}
	other := *spec
	other.Estimate = estimate
	return &other
}
