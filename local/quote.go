//go:build linux

package local

import (
	"context"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// quoted says of a waiting job when it will start, as earlier predictions turned out. The state is locked.
func (m *Machine) quoted(v *show.Job, j *job, seen *foresight.Forecast, now cluster.Time) {
	start, ok := seen.Start(j.ID)
	if !ok || v.Expected == nil {
		return
	}
	a := foresight.PredictionOf(j.Spec, start, now)
	if j.Info.Record.FirstStart == cluster.Never { // predictions are about first starts
		j.lastForecast = a
	}
	m.known.Predict(v, &a, seen)
}

// relearn reads what became of the latest predictions under the policy in force.
func (m *Machine) relearn(ctx context.Context) error {
	return m.known.RestoreQuotes(ctx, m.store, m.opt.Rules.Policy, m.liveJobs())
}

// liveJobs are the jobs that are not over.
func (m *Machine) liveJobs() (list []foresight.Live) {
	for _, j := range m.jobs {
		list = append(list, foresight.Live{Spec: j.stated(),
			WaitsFirst: j.Info.Record.State <= engine.Placed && j.Info.Record.FirstStart == cluster.Never})
	}
	return list
}

// stated is a job with the estimate that its user stated.
func (j *job) stated() *cluster.Job { return foresight.Stated(j.Spec, time.Duration(j.Sub.Estimate)) }

// RecordPrediction stores when a waiting job was said to start, unless the same was said before.
func (m *Machine) RecordPrediction(ctx context.Context, j *show.Job) error {
	if j.Expected == nil || j.State != show.StatePending || !m.news(j) {
		return nil
	}
	p := store.Prediction{Job: j.ID, At: m.opt.Now().UnixNano(), Expected: j.Expected.UnixNano()}
	if j.Earliest != nil && j.Latest != nil {
		p.Low, p.High = j.Earliest.UnixNano(), j.Latest.UnixNano()
	}
	m.mu.Lock()
	var row *store.Asked
	if l := m.jobs[cluster.JobID(j.ID)]; l != nil && l.lastForecast.Now != 0 {
		row = m.known.Record(&l.lastForecast, m.opt.Rules.Policy)
	}
	m.mu.Unlock()
	return m.store.Write(ctx, func(t *store.Tx) error {
		if row != nil {
			if err := t.PutAsked(row); err != nil {
				return err
			}
		}
		return t.PutPrediction(p)
	})
}

// news reports whether an expected start differs from the one that the job was
// said to have last: by more than a second and a hundredth of what it still has to wait.
func (m *Machine) news(v *show.Job) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[cluster.JobID(v.ID)]
	if j == nil {
		return true
	}
	if off := v.Expected.Sub(j.lastQuote).Abs(); off <= max(time.Second, v.Expected.Sub(m.opt.Now())/100) {
		return false
	}
	j.lastQuote = *v.Expected
	return true
}
