//go:build linux

package local

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/store"
)

// Earlier runs of jobs of one user, name and size say how long the next one
// will take, where its user does not.
const (
	leastRuns  = 3    // fewer say nothing
	mostRuns   = 50   // the latest count
	readBack   = 5000 // jobs that are read when the daemon starts
	mostForked = 2000 // live jobs up to which an interval is computed
)

// runKey is what earlier runs must have in common with a job.
type runKey struct {
	user, name string
	milli      cluster.Milli
	profile    string
}

func keyOf(spec *cluster.Job) runKey {
	k := runKey{user: spec.User, name: spec.Name, milli: spec.GPUMilli()}
	if len(spec.Tasks) > 0 {
		k.profile = spec.Tasks[0].Request.Profile
	}
	return k
}

// history is how long jobs ran that completed, the latest last.
type history map[runKey][]time.Duration

func (h history) add(spec *cluster.Job, ran time.Duration) {
	k := keyOf(spec)
	if h[k] = append(h[k], ran); len(h[k]) > mostRuns {
		h[k] = slices.Delete(h[k], 0, 1)
	}
}

// of returns a quantile, in percent, of the runs that took longer than over;
// 0: there are too few.
func (h history) of(spec *cluster.Job, over time.Duration, percent int) time.Duration {
	runs := h[keyOf(spec)]
	if len(runs) < leastRuns {
		return 0
	}
	runs = slices.Clone(runs)
	slices.Sort(runs)
	for len(runs) > 0 && runs[0] <= over {
		runs = runs[1:]
	}
	if len(runs) == 0 {
		return 0
	}
	return max(time.Second, runs[((len(runs)-1)*percent+50)/100])
}

// remember reads how long earlier jobs ran.
func (m *Machine) remember(ctx context.Context) error {
	m.history = history{}
	rows, err := m.store.List(ctx, store.Filter{States: []string{api.StateCompleted}, Limit: readBack})
	if err != nil {
		return err
	}
	for i := len(rows) - 1; i >= 0; i-- {
		var info Info
		if err := json.Unmarshal(rows[i].Data, &info); err != nil {
			return fmt.Errorf("stored job %d: %w", rows[i].ID, err)
		}
		m.history.add(info.Record.Spec, info.Record.Ran)
	}
	return nil
}

// guess fills in the estimate of a job whose user states none. It reports
// whether it did. It runs with the state locked.
func (m *Machine) guess(spec *cluster.Job) bool {
	if spec.Estimate > 0 {
		return false
	}
	spec.Estimate = m.history.of(spec, 0, 50)
	return spec.Estimate > 0
}

// interval says between when and when a waiting job will start: another engine
// is asked what it expects if all jobs whose run times are guessed are short,
// and if they are long (10 and 90 percent of the earlier runs).
func (m *Machine) interval(j *api.Job) error {
	if j.Expected == nil || j.State != api.StatePending {
		return nil
	}
	m.mu.RLock()
	guessed := map[cluster.JobID]bool{}
	for id, o := range m.jobs {
		if o.info.Guessed {
			guessed[id] = true
		}
	}
	if len(guessed) == 0 || len(m.jobs) > mostForked {
		m.mu.RUnlock()
		return nil
	}
	snap, now := m.eng.Snapshot(), m.eng.Now()
	edges := [2][]engine.JobRecord{slices.Clone(snap.Jobs), slices.Clone(snap.Jobs)}
	for e, percent := range []int{10, 90} {
		for i := range edges[e] {
			r := &edges[e][i]
			if !guessed[r.Spec.ID] {
				continue
			}
			spec := *r.Spec
			done := doneAt(r, now)
			if d := m.history.of(&spec, done, percent); d > 0 {
				spec.Estimate = d
				if r.State >= engine.Placed && r.State <= engine.Running { // its end is on record
					r.EndKey = int64(min(r.LimitAt, now.Add(d-done)))
				}
			}
			r.Spec = &spec
		}
	}
	m.mu.RUnlock()
	first, last := *j.Expected, *j.Expected
	for _, jobs := range edges {
		snap.Jobs = jobs
		e, err := m.fork(&snap)
		if err != nil {
			return err
		}
		e.Look(now)
		y := e.Why(cluster.JobID(j.ID))
		if y.Expected == cluster.Never {
			return nil // nobody can say until when
		}
		at := time.Unix(0, int64(y.Expected)).UTC()
		if at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	if first.Before(last) {
		j.Earliest, j.Latest = &first, &last
	}
	return nil
}
