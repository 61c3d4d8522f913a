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
	"github.com/muster-gpu/muster/store"
)

// Earlier runs of jobs of one user, name and size say how long the next one
// will take, where its user does not.
const (
	leastRuns  = 3    // fewer say nothing
	mostRuns   = 50   // the latest count
	readBack   = 5000 // jobs that are read when the daemon starts
	mostForked = 2000 // live jobs up to which an interval is computed: it takes three times as long
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
