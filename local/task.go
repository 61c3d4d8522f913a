//go:build linux

package local

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/show"
)

// task is one process of a gang, with its shim.
type task struct {
	rank      int
	dir       string
	uid       int // of its job's user
	spec      *shim.Task
	devices   []show.Device
	state     *shim.State
	shim      int         // process number of its shim; 0: not known for sure
	child     *os.Process // ... which is a child of this daemon; nil: it is not
	legacy    bool        // its shim is the user's, and so is what it says (shim.Legacy)
	prepared  bool        // its folder is made, and the user's
	alive     bool        // it is not over, as far as the runner knows
	requested bool        // a checkpoint, by a signal that a process of it handles
	lost      bool        // its shim ended without saying how the task did
	request   cluster.Request
	group     *cgroup.Group
	used      cgroup.Usage
}

func (m *Machine) jobDir(id cluster.JobID) string {
	return filepath.Join(m.opt.Dir, "jobs", strconv.Itoa(int(id)))
}

func (m *Machine) taskDir(id cluster.JobID, run, rank int) string {
	return filepath.Join(m.jobDir(id), strconv.Itoa(run), strconv.Itoa(rank))
}

// mark is the environment variable by which processes of a task are known.
func (m *Machine) mark(id cluster.JobID, run, rank int) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(m.opt.Dir))
	return fmt.Sprintf("MUSTER_TASK_ID=%d.%d.%d.%08x", id, run, rank, h.Sum32())
}

// writeOwn writes a file of the task's folder, which is the daemon's still.
func (r *runner) writeOwn(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) { // of a start that was interrupted
		if err = os.Remove(path); err == nil {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, r.ownFile(f), f.Close())
}

// ownFile gives an open file to the job's user.
func (r *runner) ownFile(f *os.File) error {
	if os.Getuid() != 0 {
		return nil
	}
	return f.Chown(r.job.info.User.UID, r.job.info.User.GID)
}

// read reads what the task's shim wrote.
func (t *task) read() error {
	if t.legacy {
		s, err := shim.LegacyState(t.dir)
		if s != nil {
			t.state = s
		}
		return err
	}
	s, err := shim.ReadState(t.dir)
	if s == nil {
		return err
	}
	if t.state = s; t.shim == 0 {
		t.shim = s.Shim
	}
	return err
}

// over is called when the shim has ended and nothing is left of the task.
func (t *task) over() {
	err := t.read()
	t.alive = false
	t.lost = err != nil || t.state == nil || t.state.Phase != shim.Ended
	t.release()
}

// there reports whether the task's first process is: its number may be another's by now.
func (t *task) there() bool {
	s := t.state
	if s == nil || s.Pid <= 0 {
		return false
	}
	b := shim.Birth(s.Pid)
	return b != 0 && b == s.Birth && (!t.legacy || t.has(s.Pid))
}

// has reports whether a process is the task's, whoever claims so.
func (t *task) has(pid int) bool {
	if t.group.Exists() {
		return slices.Contains(t.group.Pids(), pid)
	}
	return slices.Contains(shim.StraysOf(t.spec.Mark, t.uid), pid)
}

// signal sends to the task's process group, or to its first process; what stops
// or continues it does so for all of its group. The process number is the task's own as long as its shim lives: it reaps last.
func (t *task) signal(s unix.Signal, shell bool) {
	if !t.there() {
		return
	}
	if shell {
		_ = unix.Kill(t.state.Pid, s)
		return
	}
	if s == unix.SIGCONT {
		t.group.Freeze(false)
	}
	_ = unix.Kill(-t.state.Pid, s)
	if s == unix.SIGSTOP { // whoever left the process group does not get the signal
		t.group.Freeze(true)
	}
}

// kill kills the process group and whoever left it. The shim stays: it says how the task ended.
func (t *task) kill() {
	t.signal(unix.SIGKILL, false)
	but := t.shim
	if t.legacy && t.state != nil { // it is in the group of its task
		but = t.state.Shim
	}
	t.killLeft(but)
}

// plan makes the tasks of a run from what the engine gave it.
func (r *runner) plan(allocs []engine.Alloc) (tasks []*task) {
	r.port = freePort()
	for i := range allocs {
		a := &allocs[i]
		end := i + 1
		for end < len(allocs) && a.Share > 0 && allocs[end].Tasks == 0 { // a share of another GPU, of the same task
			end++
		}
		devices := r.m.devices(allocs[i:end])
		each := len(devices)
		if a.Tasks > 0 && a.Share == 0 {
			each = len(devices) / int(a.Tasks)
		}
		for k := range int(a.Tasks) {
			own := devices
			if a.Share == 0 {
				own = devices[k*each : (k+1)*each]
			}
			rank := len(tasks)
			t := &task{rank: rank, dir: r.m.taskDir(r.id, r.n, rank), uid: r.job.info.User.UID, request: r.job.spec.Tasks[a.Set].Request}
			t.spec = &shim.Task{Mark: r.m.mark(r.id, r.n, rank), User: r.shimUser()}
			t.group = r.m.groupOf(t.spec.Mark)
			r.describe(t, own)
			tasks = append(tasks, t)
		}
	}
	for _, t := range tasks {
		t.spec.Env = r.environment(t, len(tasks))
	}
	return tasks
}
