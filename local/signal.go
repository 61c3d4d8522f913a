//go:build linux

package local

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// ParseSignal reads a signal's name, with or without SIG, or its number.
func ParseSignal(text string) (unix.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 65 {
		return unix.Signal(n), nil
	}
	if s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")); s != 0 {
		return s, nil
	}
	return 0, &api.FieldError{Field: "signal", Text: fmt.Sprintf("%q is not a signal such as USR1 or 10", text)}
}

// Signal sends a signal to a running job: to its process groups, or to the
// first process of each task only.
func (m *Machine) Signal(ctx context.Context, id int, signal string, shell bool) error {
	s, err := ParseSignal(signal)
	if err != nil {
		return err
	}
	return m.commit(ctx, func(cluster.Time) ([]engine.Event, error) {
		j := m.jobs[cluster.JobID(id)]
		switch {
		case j == nil:
			return nil, fmt.Errorf("%w that runs: %d", ErrNoJob, id)
		case j.run == nil:
			return nil, fmt.Errorf("job %d is %s: it has no processes", id, j.info.State)
		}
		j.run.stop(order{signal: s, shell: shell})
		return nil, nil
	})
}
