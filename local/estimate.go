//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Earlier runs say how long the next ones will take (forward.Runs), and what was submitted of late says what to expect
// (forward.Recent).
const (
	readBack   = 5000 // completed jobs that are read when the daemon starts
	mostForked = 2000 // live jobs up to which it is looked ahead more than once, and submissions are expected
)

// remember reads how long earlier jobs ran.
func (m *Machine) remember(ctx context.Context) error {
	m.runs = forward.Runs{}
	rows, err := m.store.List(ctx, store.Filter{States: []string{show.StateCompleted}, Limit: readBack})
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b store.Job) int {
		return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.ID, b.ID))
	})
	for i := range rows {
		spec, info, err := statedIn(&rows[i])
		if err != nil {
			return err
		}
		m.runs.Add(spec, info.Record.Ran)
	}
	return nil
}

// rememberSubmissions reads what was submitted of late. Jobs that have no row of their own are among those that wait.
func (m *Machine) rememberSubmissions(ctx context.Context) error {
	m.recent = forward.Recent{}
	rows, err := m.store.List(ctx, store.Filter{Limit: forward.RecentKept})
	if err != nil {
		return err
	}
	specs := map[cluster.JobID]*cluster.Job{}
	since := m.opt.Now().Add(-forward.LikeBefore).UnixNano()
	for i := range rows {
		spec, _, err := statedIn(&rows[i])
		if err != nil {
			return err
		}
		specs[spec.ID] = spec
		if rows[i].Submitted < since { // one of before the time that counts says that all of it is known
			break
		}
	}
	for id, j := range m.jobs {
		specs[id] = foresight.Stated(j.spec, time.Duration(j.sub.Estimate))
	}
	for _, id := range slices.Sorted(maps.Keys(specs)) {
		m.recent.Add(specs[id])
	}
	return nil
}

// statedIn is a stored job with the estimate that its user stated.
func statedIn(row *store.Job) (*cluster.Job, *Info, error) {
	var info Info
	var sub struct {
		Estimate ask.Duration `json:"estimate"`
	}
	if err := errors.Join(json.Unmarshal(row.Data, &info), json.Unmarshal(row.Submission, &sub)); err != nil {
		return nil, nil, fmt.Errorf("stored job %d: %w", row.ID, err)
	}
	return foresight.Stated(info.Record.Spec, time.Duration(sub.Estimate)), &info, nil
}

// learn takes note of what a job that is done tells of others. The state is locked.
func (m *Machine) learn(j *job) {
	m.quotes.Gone(j.id)
	if j.info.Record.Reason == engine.Completed {
		m.runs.Add(foresight.Stated(j.spec, time.Duration(j.sub.Estimate)), j.info.Record.Ran)
	}
}

// guess fills in the estimate of a job whose user states none. It reports
// whether it did. It runs with the state locked.
func (m *Machine) guess(spec *cluster.Job) bool {
	if spec.Estimate > 0 {
		return false
	}
	spec.Estimate = m.runs.Usual(spec)
	return spec.Estimate > 0
}
