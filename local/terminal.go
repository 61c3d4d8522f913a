//go:build linux

package local

import (
	"context"
	"fmt"
	"net"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// Terminal connects to the terminal of a job's first task, or, with input, to
// the pipe that is its standard input. It waits until the job runs.
func (m *Machine) Terminal(ctx context.Context, id int, input bool) (c net.Conn, err error) {
	_, err = m.waitUntil(ctx, id, func(v *show.Job) (bool, error) {
		switch {
		case input && !v.Submission.Stdin:
			return false, fmt.Errorf("job %d does not get its standard input from an attached client", id)
		case !input && !v.Submission.Pty:
			return false, fmt.Errorf("job %d has no terminal: muster run --pty and muster submit --pty give one; muster logs -f %d shows its output", id, id)
		case v.Ended != nil:
			return false, fmt.Errorf("job %d is over: %s", id, v.State)
		}
		if v.State == show.StateRunning || v.State == show.StateSuspended || v.State == show.StateStopping {
			var failed error // else it is ending, which is a change, too
			c, failed = m.dialTask(id)
			return failed == nil, nil
		}
		return false, nil
	})
	return c, err
}

func (m *Machine) dialTask(id int) (net.Conn, error) {
	m.mu.RLock()
	j := m.jobs[cluster.JobID(id)]
	if j == nil || j.run == nil {
		m.mu.RUnlock()
		return nil, ErrNoJob
	}
	n, uid := j.Info.Run, j.Info.User.UID
	m.mu.RUnlock()
	return m.keeper.Dial(j.ID, n, uid)
}
