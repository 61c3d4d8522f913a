//go:build linux

package local

import (
	"context"
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Join puts a process into the control group of a running job's task, so that it has the task's limits
// and devices and ends with it, and returns what else makes it one of the task's. The process must be
// the job's user's, or root's, who becomes that user itself.
func (m *Machine) Join(ctx context.Context, id, rank int, p run.Process) (show.Joined, error) {
	m.mu.RLock()
	j := m.jobs[cluster.JobID(id)]
	if j == nil {
		m.mu.RUnlock()
		return show.Joined{}, ErrNoJob
	}
	state, frozen, u, n := j.Info.Record.State, j.Info.Frozen, j.Info.User, j.Info.Run
	m.mu.RUnlock()
	switch {
	case state != engine.Running || frozen:
		return show.Joined{},
			fmt.Errorf("job %d does not run at the moment: a command can be run in a running job only", id)
	case p.UID != 0 && p.UID != u.UID:
		return show.Joined{},
			fmt.Errorf("a command in job %d runs as %s: only %s and root can start one", id, u.Name, u.Name)
	}
	t, err := m.keeper.Join(j.ID, n, rank, p)
	if err != nil {
		return show.Joined{}, err
	}
	a := audit.OfJob(ctx, m.opt.Now(), "exec", id, u.Name, "")
	err = m.store.Write(ctx, func(tx *store.Tx) error { return tx.PutAudit(a) })
	return show.Joined{Env: t.Env, Dir: t.Dir, UID: u.UID, GID: u.GID, Groups: u.Groups}, err
}
