//go:build linux

package local

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// Signal sends a signal to a running job: to its process groups, or to the
// first process of each task only.
func (m *Machine) Signal(ctx context.Context, id int, signal string, shell bool) error {
	_, n, err := ask.ParseSignal(signal)
	if err != nil {
		return &ask.FieldError{Field: "signal", Text: err.Error()}
	}
	return m.commit(ctx, func(now cluster.Time) ([]engine.Event, error) {
		j := m.jobs[cluster.JobID(id)]
		switch {
		case j == nil:
			return nil, fmt.Errorf("%w that runs: %d", ErrNoJob, id)
		case j.run == nil:
			return nil, fmt.Errorf("job %d is %s: it has no processes", id, j.Info.State)
		}
		m.note(ctx, now, "signal", j, signal)
		j.run.Stop(run.Order{Signal: unix.Signal(n), Shell: shell})
		return nil, nil
	})
}
