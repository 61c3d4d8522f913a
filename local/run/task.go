//go:build linux

package run

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/show"
)

// Task is one process of a gang, with its shim.
type Task struct {
	Rank    int
	Dir     string
	UID     int // of its job's user
	Spec    *shim.Task
	Devices []show.Device
	Request cluster.Request
	Group   *cgroup.Group
	State   *shim.State
	Used    cgroup.Usage
	Lost    bool // its shim ended without saying how the task did

	shim      int         // process number of its shim; 0: not known for sure
	child     *os.Process // ... which is a child of this daemon; nil: it is not
	legacy    bool        // its shim is the user's, and so is what it says (shim.Legacy)
	prepared  bool        // its folder is made, and the user's
	alive     bool        // it is not over, as far as the run knows
	requested bool        // a checkpoint, by a signal that a process of it handles
}

// read reads what the task's shim wrote.
func (t *Task) read() error {
	if t.legacy {
		s, err := shim.LegacyState(t.Dir)
		if s != nil {
			t.State = s
		}
		return err
	}
	s, err := shim.ReadState(t.Dir)
	if s == nil {
		return err
	}
	if t.State = s; t.shim == 0 {
		t.shim = s.Shim
	}
	return err
}

// over is called when the shim has ended and nothing is left of the task.
func (t *Task) over() {
	err := t.read()
	t.alive = false
	t.Lost = err != nil || t.State == nil || t.State.Phase != shim.Ended
	t.release()
}

// release takes the last account of a task that is over and removes its group.
func (t *Task) release() {
	t.Used, _ = t.Group.Usage()
	if s := t.State; s != nil {
		t.Used.CPU = max(t.Used.CPU, s.User+s.System)
		t.Used.Peak = max(t.Used.Peak, s.MaxRSS<<10)
	}
	t.Group.Remove()
}

// there reports whether the task's first process is: its number may be another's by now.
func (t *Task) there() bool {
	s := t.State
	if s == nil || s.Pid <= 0 {
		return false
	}
	b := shim.Birth(s.Pid)
	return b != 0 && b == s.Birth && (!t.legacy || t.has(s.Pid))
}

// has reports whether a process is the task's, whatever claims so.
func (t *Task) has(pid int) bool {
	if t.Group.Exists() {
		return slices.Contains(t.Group.Pids(), pid)
	}
	return slices.Contains(shim.StraysOf(t.Spec.Mark, t.UID), pid)
}

// signal sends to the task's process group, or to its first process; what stops
// or continues it does so for all of its group. The process number is the task's own as long as its shim lives: it
// reaps last.
func (t *Task) signal(s unix.Signal, shell bool) {
	if !t.there() {
		return
	}
	if shell {
		_ = unix.Kill(t.State.Pid, s)
		return
	}
	if s == unix.SIGCONT {
		t.Group.Freeze(false)
	}
	_ = unix.Kill(-t.State.Pid, s)
	if s == unix.SIGSTOP { // a process that left the process group does not get the signal
		t.Group.Freeze(true)
	}
}

// Failed reports whether a task that is over failed.
func (t *Task) Failed() bool { return t.Lost || t.State == nil || t.State.Exit != 0 }

// lock is the file that a task's shim holds locked for as long as it lives.
func (t *Task) lock() string { return t.Dir + lockSuffix }
