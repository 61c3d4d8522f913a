//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Process is a process of this machine, as the kernel names the one at the other end of a socket.
type Process struct{ PID, UID int }

// Join puts a process into the control group of a running job's task, so that it has the task's limits
// and devices and ends with it, and returns what else makes it one of the task's. The process must be
// the job's user's, or root's, who becomes that user itself.
func (m *Machine) Join(ctx context.Context, id, rank int, p Process) (show.Joined, error) {
	m.mu.RLock()
	j := m.jobs[cluster.JobID(id)]
	if j == nil {
		m.mu.RUnlock()
		return show.Joined{}, ErrNoJob
	}
	state, frozen, u, run := j.info.Record.State, j.info.Frozen, j.info.User, j.info.Run
	m.mu.RUnlock()
	switch {
	case state != engine.Running || frozen:
		return show.Joined{},
			fmt.Errorf("job %d does not run at the moment: a command can be run in a running job only", id)
	case p.UID != 0 && p.UID != u.UID:
		return show.Joined{},
			fmt.Errorf("a command in job %d runs as %s: only %s and root can start one", id, u.Name, u.Name)
	}
	t, err := m.taskAsStarted(j.id, run, rank)
	if err != nil {
		return show.Joined{}, err
	}
	if err := m.enter(t, p); err != nil {
		return show.Joined{}, err
	}
	a := audit.OfJob(ctx, m.opt.Now(), "exec", id, u.Name, "")
	err = m.store.Write(ctx, func(tx *store.Tx) error { return tx.PutAudit(a) })
	return show.Joined{Env: t.Env, Dir: t.Dir, UID: u.UID, GID: u.GID, Groups: u.Groups}, err
}

// taskAsStarted is what a task's shim was asked to run.
func (m *Machine) taskAsStarted(id cluster.JobID, run, rank int) (*shim.Task, error) {
	text, err := os.ReadFile(shim.TaskFile(m.keeper.TaskDir(id, run, rank)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ask.FieldError{Field: "task",
			Text: fmt.Sprintf("job %d has no task %d, or it was started by an earlier version", id, rank)}
	}
	if err != nil {
		return nil, err
	}
	t := &shim.Task{}
	return t, json.Unmarshal(text, t)
}

// enter moves a process into a task's group. The number of a process that has ended may be another's
// by now: so its user is looked at, and that it still lives when it has been moved.
func (m *Machine) enter(t *shim.Task, p Process) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if uid, err := userOf(p.PID); err != nil || uid != p.UID {
		return fmt.Errorf("process %d is not one of user %d: %w", p.PID, p.UID, errors.Join(err, fs.ErrPermission))
	}
	g := m.keeper.Group(t.Mark)
	if !g.Exists() {
		return nil // nothing keeps tasks to what they asked for here; the mark in the environment finds the process
	}
	leave, err := g.Enter(p.PID)
	if err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		leave()
		return fmt.Errorf("process %d has ended: %w", p.PID, err)
	}
	return nil
}

// userOf is the user of a process, if its real, effective and saved user are the same.
func userOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseUser(string(text))
}

// parseUser reads the user of a process from its /proc/PID/status: real, effective, saved and file system user
// must be one.
func parseUser(status string) (int, error) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		ids := strings.Fields(rest)
		if len(ids) != 4 || ids[0] != ids[1] || ids[0] != ids[2] || ids[0] != ids[3] {
			return 0, errors.New("it has the rights of several users")
		}
		return strconv.Atoi(ids[0])
	}
	return 0, errors.New("its user is not known")
}
