//go:build linux

package local

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// What a waiting job is told of its start is what was foreseen, corrected by what became of earlier answers
// under the same policy (forward.Quotes). Each answer is stored with what was foreseen, so that a new daemon
// knows as much.

// quoted says of a waiting job when it will start, as earlier answers turned out; where these are too few or
// differ too much, only when it will start at the earliest. The state is locked.
func (m *Machine) quoted(v *show.Job, j *job, seen *foresight.Forecast, now cluster.Time) {
	start, ok := seen.Start(j.id)
	if !ok || v.Expected == nil {
		return
	}
	a := askedOf(j.spec, start, now)
	if j.info.Record.FirstStart == cluster.Never { // answers are about first starts
		j.lastForecast = a
	}
	m.correct(v, &a, seen)
}

// askedOf is what is known of a waiting job.
func askedOf(spec *cluster.Job, start, now cluster.Time) forward.Asked {
	return forward.Asked{Job: spec.ID, Now: now, Start: max(start, now), Waited: now.Sub(spec.Submit),
		Milli: spec.GPUMilli(), Tier: spec.Tier}
}

// correct says when a job will start as earlier answers turned out.
func (m *Machine) correct(v *show.Job, a *forward.Asked, seen *foresight.Forecast) {
	q := m.quotes.Quote(a)
	// a limit is when it starts at the latest; what is as earlier runs suggest has an interval already
	if q.High == cluster.Never {
		v.ByLimits = seen.Seen[0].Limits[a.Job]
		v.AtEarliest = v.Latest == nil && !v.ByLimits
		return
	}
	v.AtEarliest, v.ByLimits, v.Scored = q.Open, false, true
	v.Expected, v.Earliest, v.Latest = foresight.Instant(q.Start), foresight.Instant(q.Low), foresight.Instant(q.High)
}

// tellStarts notes which of the jobs that were told something start. Those of one instant are noted by number,
// as they will be read again.
func (m *Machine) tellStarts(b *engine.Batch, d *engine.Decision) {
	var ids []cluster.JobID
	for i := range d.Actions {
		if d.Actions[i].Type == engine.Start {
			ids = append(ids, d.Actions[i].Job)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		m.quotes.Started(id, b.Now)
	}
}

// relearn reads what became of the latest answers under the policy that is followed, and which are open.
func (m *Machine) relearn(ctx context.Context) error {
	m.quotes = forward.Quotes{}
	list, err := m.store.Asked(ctx, m.opt.Rules.Policy, forward.ScoresKept)
	if err != nil {
		return err
	}
	for i := range list {
		a, said := recalled(&list[i])
		m.quotes.Recall(&a, said)
		m.quotes.Started(a.Job, cluster.Time(list[i].Happened))
	}
	oldest := cluster.JobID(math.MaxInt32)
	for id, j := range m.jobs {
		if j.waitsFirst() {
			oldest = min(oldest, id)
		}
	}
	list, err = m.store.AskedOf(ctx, m.opt.Rules.Policy, int(oldest), func(id int) bool {
		j := m.jobs[cluster.JobID(id)]
		return j != nil && j.waitsFirst()
	})
	for i := range list {
		a, said := recalled(&list[i])
		m.quotes.Recall(&a, said)
	}
	return err
}

// waitsFirst reports whether a job waits for its first start.
func (j *job) waitsFirst() bool {
	return j.info.Record.State <= engine.Placed && j.info.Record.FirstStart == cluster.Never
}

// askedRow is what is stored of an answer.
func askedRow(a *forward.Asked, said *forward.Said, policy string) *store.Asked {
	return &store.Asked{Job: int(a.Job), At: int64(a.Now), Start: int64(a.Start), Waited: int64(a.Waited),
		Milli: int64(a.Milli), Tier: int(a.Tier), Policy: policy,
		Bounded: said.Bounded, Low: said.Low, High: said.High, Mid: said.Mid}
}

// recalled is an answer as it was stored.
func recalled(r *store.Asked) (forward.Asked, forward.Said) {
	return forward.Asked{Job: cluster.JobID(r.Job), Now: cluster.Time(r.At), Start: cluster.Time(r.Start),
			Waited: time.Duration(r.Waited),
			Milli:  cluster.Milli(r.Milli), Tier: cluster.Tier(r.Tier)},
		forward.Said{Bounded: r.Bounded, Low: r.Low, High: r.High, Mid: r.Mid}
}
