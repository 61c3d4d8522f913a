//go:build linux

package local

import (
	"context"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/show"
)

// quoted says of a waiting job when it will start, as earlier predictions turned out. The state is locked.
func (m *Machine) quoted(v *show.Job, j *job, seen *foresight.Forecast, now cluster.Time) {
	start, ok := seen.Start(j.id)
	if !ok || v.Expected == nil {
		return
	}
	a := foresight.AskedOf(j.spec, start, now)
	if j.info.Record.FirstStart == cluster.Never { // predictions are about first starts
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
			WaitsFirst: j.info.Record.State <= engine.Placed && j.info.Record.FirstStart == cluster.Never})
	}
	return list
}

// stated is a job with the estimate that its user stated.
func (j *job) stated() *cluster.Job { return foresight.Stated(j.spec, time.Duration(j.sub.Estimate)) }
