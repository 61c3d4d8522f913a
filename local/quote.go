//go:build linux

package local

import (
	"context"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/store"
)

// What a waiting job is told of its start is what was foreseen, corrected by what became of earlier answers under the same
// policy (forward.Quotes). Each answer is stored with what was foreseen, so that a new daemon knows as much.

// quoted says of a waiting job when it will start, as earlier answers turned out; where these are too few or differ too much,
// only when it will start at the earliest. The state is locked.
func (m *Machine) quoted(v *api.Job, j *job, seen *forecast, now cluster.Time) {
	start, ok := seen.start(j.id)
	if !ok || v.Expected == nil {
		return
	}
	spec := j.spec
	j.asked = forward.Asked{Job: j.id, Now: now, Start: max(start, now), Waited: now.Sub(spec.Submit), Milli: spec.GPUMilli(), Tier: spec.Tier}
	q := m.quotes.Quote(&j.asked)
	if q.High == cluster.Never { // a limit is when it starts at the latest; what is as earlier runs suggest has an interval already
		v.ByLimits = seen.mid.Limits[j.id]
		v.AtEarliest = v.Latest == nil && !v.ByLimits
		return
	}
	v.AtEarliest, v.ByLimits, v.Scored = q.Open, false, true
	v.Expected, v.Earliest, v.Latest = instant(q.Start), instant(q.Low), instant(q.High)
}

// ends are when jobs leave their devices, as was foreseen together with the starts.
func (f *forecast) ends(now cluster.Time) map[cluster.JobID]engine.ForeseenEnd {
	if f == nil || f.mid == nil {
		return nil
	}
	ends := map[cluster.JobID]engine.ForeseenEnd{}
	for id, l := range f.mid.Leaves {
		if l.At > now { // what was to have ended by now says nothing
			ends[id] = engine.ForeseenEnd{At: l.At, Limit: l.Reason == engine.TimedOut}
		}
	}
	return ends
}

// relearn reads what became of the latest answers under the policy that is followed.
func (m *Machine) relearn(ctx context.Context) error {
	list, err := m.store.Asked(ctx, m.opt.Rules.Policy, forward.ScoresKept)
	if err != nil {
		return err
	}
	m.quotes = forward.Quotes{}
	for i := range list {
		p := &list[i]
		a := forward.Asked{Job: cluster.JobID(p.Job), Now: cluster.Time(p.At), Start: cluster.Time(p.Start), Waited: cluster.Time(p.Waited).Sub(0),
			Milli: cluster.Milli(p.Milli), Tier: cluster.Tier(p.Tier)}
		m.quotes.Told(&a)
		m.quotes.Started(a.Job, cluster.Time(p.Happened))
	}
	return nil
}

// askedRow is what is stored of an answer.
func askedRow(a *forward.Asked, policy string) store.Asked {
	return store.Asked{Job: int(a.Job), At: int64(a.Now), Start: int64(a.Start), Waited: int64(a.Waited), Milli: int64(a.Milli), Tier: int(a.Tier), Policy: policy}
}
