//go:build linux

package run

import (
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
	"github.com/muster-gpu/muster/local/shim"
)

// Process is a process of this machine, as the kernel names the one at the other end of a socket.
type Process struct{ PID, UID int }

// Join moves a process into the group of a task, and returns what the task's shim was asked to run.
func (k *Keeper) Join(id cluster.JobID, run, rank int, p Process) (*shim.Task, error) {
	text, err := os.ReadFile(shim.TaskFile(k.TaskDir(id, run, rank)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ask.FieldError{Field: "task",
			Text: fmt.Sprintf("job %d has no task %d, or it was started by an earlier version", id, rank)}
	}
	if err != nil {
		return nil, err
	}
	t := &shim.Task{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, err
	}
	return t, k.enter(t, p)
}

// enter moves a process into a task's group. The number of a process that has ended may be another's by now: so its
// user is checked, and that it still lives when it has been moved.
func (k *Keeper) enter(t *shim.Task, p Process) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if uid, err := userOf(p.PID); err != nil || uid != p.UID {
		return fmt.Errorf("process %d is not one of user %d: %w", p.PID, p.UID, errors.Join(err, fs.ErrPermission))
	}
	g := k.Group(t.Mark)
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
