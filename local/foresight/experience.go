package foresight

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

const readBack = 5000 // completed jobs that are read when the daemon starts

// Experience is what earlier jobs say of the next ones: how long they ran, what was submitted recently, and what became
// of the starts that were predicted. Each prediction is stored, so that a new daemon knows as much.
type Experience struct {
	Runs   forward.Runs
	Recent forward.Recent // as users stated the jobs
	Quotes forward.Quotes
}

// Live is a job that is not over.
type Live struct {
	Spec       *cluster.Job // as its user stated it
	WaitsFirst bool         // for its first start
}

// Restore reads how long earlier jobs ran, what was submitted since a time, and what became of predictions under a
// policy.
func (x *Experience) Restore(ctx context.Context, st *store.Store, now time.Time, policy string,
	live []Live) error {
	return errors.Join(x.restoreRuns(ctx, st), x.restoreRecent(ctx, st, now, live),
		x.RestoreQuotes(ctx, st, policy, live))
}

func (x *Experience) restoreRuns(ctx context.Context, st *store.Store) error {
	x.Runs = forward.Runs{}
	rows, err := st.List(ctx, store.Filter{States: []string{show.StateCompleted}, Limit: readBack})
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b store.Job) int {
		return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.ID, b.ID))
	})
	for i := range rows {
		rec, spec, err := statedIn(&rows[i])
		if err != nil {
			return err
		}
		x.Runs.Add(spec, rec.Ran)
	}
	return nil
}

// restoreRecent reads what was submitted recently. Jobs that have no row of their own are among those that wait.
func (x *Experience) restoreRecent(ctx context.Context, st *store.Store, now time.Time,
	live []Live) error {
	x.Recent = forward.Recent{}
	rows, err := st.List(ctx, store.Filter{Limit: forward.RecentKept})
	if err != nil {
		return err
	}
	specs := map[cluster.JobID]*cluster.Job{}
	since := now.Add(-forward.LikeBefore).UnixNano()
	for i := range rows {
		_, spec, err := statedIn(&rows[i])
		if err != nil {
			return err
		}
		specs[spec.ID] = spec
		if rows[i].Submitted < since { // one of before the time that counts says that all of it is known
			break
		}
	}
	for _, j := range live {
		specs[j.Spec.ID] = j.Spec
	}
	for _, id := range slices.Sorted(maps.Keys(specs)) {
		x.Recent.Add(specs[id])
	}
	return nil
}

// RestoreQuotes reads what became of the latest predictions under a policy, and which are open.
func (x *Experience) RestoreQuotes(ctx context.Context, st *store.Store, policy string,
	live []Live) error {
	x.Quotes = forward.Quotes{}
	list, err := st.Asked(ctx, policy, forward.ScoresKept)
	if err != nil {
		return err
	}
	for i := range list {
		x.Quotes.Started(x.recall(&list[i]), cluster.Time(list[i].Happened))
	}
	oldest, first := cluster.JobID(math.MaxInt32), map[int]bool{}
	for _, j := range live {
		if j.WaitsFirst {
			oldest, first[int(j.Spec.ID)] = min(oldest, j.Spec.ID), true
		}
	}
	list, err = st.AskedOf(ctx, policy, int(oldest), func(id int) bool { return first[id] })
	for i := range list {
		x.recall(&list[i])
	}
	return err
}

// recall takes in a stored prediction.
func (x *Experience) recall(r *store.Asked) cluster.JobID {
	a := forward.Asked{Job: cluster.JobID(r.Job), Now: cluster.Time(r.At), Start: cluster.Time(r.Start),
		Waited: time.Duration(r.Waited), Milli: cluster.Milli(r.Milli), Tier: cluster.Tier(r.Tier)}
	x.Quotes.Recall(&a, forward.Said{Bounded: r.Bounded, Low: r.Low, High: r.High, Mid: r.Mid})
	return a.Job
}

// statedIn is a stored job as its user stated it.
func statedIn(row *store.Job) (*engine.JobRecord, *cluster.Job, error) {
	var info struct {
		Record engine.JobRecord `json:"record"`
	}
	var sub struct {
		Estimate ask.Duration `json:"estimate"`
	}
	if err := errors.Join(json.Unmarshal(row.Data, &info), json.Unmarshal(row.Submission, &sub)); err != nil {
		return nil, nil, fmt.Errorf("stored job %d: %w", row.ID, err)
	}
	return &info.Record, Stated(info.Record.Spec, time.Duration(sub.Estimate)), nil
}

// Guess fills in the estimate of a job whose user states none, and reports whether it did.
func (x *Experience) Guess(spec *cluster.Job) bool {
	if spec.Estimate > 0 {
		return false
	}
	spec.Estimate = x.Runs.Usual(spec)
	return spec.Estimate > 0
}

// Started notes which of the jobs whose starts were predicted start. Those of one instant are noted by number, as they
// will be read again.
func (x *Experience) Started(now cluster.Time, d *engine.Decision) {
	var ids []cluster.JobID
	for i := range d.Actions {
		if d.Actions[i].Type == engine.Start {
			ids = append(ids, d.Actions[i].Job)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		x.Quotes.Started(id, now)
	}
}

// Predict says when a job will start as earlier predictions turned out; where these are too few or differ too much,
// only when it will start at the earliest.
func (x *Experience) Predict(v *show.Job, a *forward.Asked, seen *Forecast) {
	q := x.Quotes.Quote(a)
	// a limit is when it starts at the latest; what is as earlier runs suggest has an interval already
	if q.High == cluster.Never {
		v.ByLimits = seen.Seen[0].Limits[a.Job]
		v.AtEarliest = v.Latest == nil && !v.ByLimits
		return
	}
	v.AtEarliest, v.ByLimits, v.Scored = q.Open, false, true
	v.Expected, v.Earliest, v.Latest = Instant(q.Start), Instant(q.Low), Instant(q.High)
}

// Record notes that the start of a job was predicted. It returns what is stored of it.
func (x *Experience) Record(a *forward.Asked, policy string) *store.Asked {
	said := x.Quotes.Record(a)
	return &store.Asked{Job: int(a.Job), At: int64(a.Now), Start: int64(a.Start), Waited: int64(a.Waited),
		Milli: int64(a.Milli), Tier: int(a.Tier), Policy: policy,
		Bounded: said.Bounded, Low: said.Low, High: said.High, Mid: said.Mid}
}

// PredictionOf is what is known of a waiting job.
func PredictionOf(spec *cluster.Job, start, now cluster.Time) forward.Asked {
	return forward.Asked{Job: spec.ID, Now: now, Start: max(start, now), Waited: now.Sub(spec.Submit),
		Milli: spec.GPUMilli(), Tier: spec.Tier}
}
