//go:build linux

package run

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/shim"
)

// A task's devices are given back when nothing is left of it: no shim, and no
// process in its control group. Where there are no groups, its processes are
// those that descend from its shim, are in its session or hold its mark, and
// belong to the job's user.

// patience is how long processes that were killed may take before it is said
// that they have not ended.
const patience = 10 * time.Second

// gone waits in the background for a shim's end, then for the end of whatever
// is left of its task, and reports the task as ended.
func (r *Run) gone(t *Task, shimEnds func()) {
	ended := r.ended // another run has another
	go func() {
		shimEnds()
		if r.vacate(t) {
			ended <- t
		}
	}()
}

// vacate kills what is left of a task whose shim has ended, and returns when
// there is nothing; false: the daemon ends before.
func (r *Run) vacate(t *Task) bool {
	complained := false
	for wait, waited := time.Millisecond, time.Duration(0); ; wait = min(2*wait, time.Second) {
		left := t.killLeft(0)
		if len(left) == 0 {
			return true
		}
		if waited >= patience && !complained {
			complained = true
			r.owner.Delayed(t.Rank, "its devices are not free yet: "+describeLeft(left)+" was killed and has not ended")
		}
		select {
		case <-r.k.Running.Done():
			return false
		case <-time.After(wait):
		}
		waited += wait
	}
}

// describeLeft names processes and what they wait for.
func describeLeft(pids []int) string {
	var list []string
	for _, pid := range pids[:min(len(pids), 5)] {
		name, state := shim.Describe(pid)
		if state == "D" {
			state = "D, uninterruptible: it waits for a device or a file system"
		}
		list = append(list, fmt.Sprintf("process %d (%q, state %s)", pid, name, state))
	}
	return strings.Join(list, ", ")
}

// kill kills the process group and what left it. The shim stays: it says how the task ended.
func (t *Task) kill() {
	t.signal(unix.SIGKILL, false)
	but := t.shim
	if t.legacy && t.State != nil { // it is in the group of its task
		but = t.State.Shim
	}
	t.killLeft(but)
}

// killLeft kills the task's processes, but for one, and returns those that are still there.
func (t *Task) killLeft(but int) []int {
	if t.Group.Exists() {
		return t.Group.Kill(but)
	}
	left := slices.DeleteFunc(t.strays(), func(pid int) bool { return pid == but })
	for _, pid := range left {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return left
}

// strays lists the task's processes where no control group does.
func (t *Task) strays() []int {
	pids := shim.StraysOf(t.Spec.Mark, t.UID)
	alive := locked(t.lock())
	if t.shim != 0 && alive {
		pids = append(pids, shim.Family(t.shim)...)
	}
	if t.shim != 0 && (alive || shim.Birth(t.shim) == 0) { // else its number is another's by now
		pids = append(pids, shim.Session(t.shim)...)
	}
	slices.Sort(pids)
	return slices.DeleteFunc(slices.Compact(pids), func(pid int) bool {
		return pid == t.shim || shim.Owner(pid) != t.UID
	})
}

// daemonUser is the user of the shims.
var daemonUser = os.Getuid()

// killShim kills the process that owns the task: the last resort.
func (t *Task) killShim() {
	if t.child != nil {
		_ = t.child.Kill()
		return
	}
	if !locked(t.lock()) {
		return
	}
	uid := t.UID
	if !t.legacy {
		uid = daemonUser
	}
	for _, pid := range shim.Find(t.Dir, uid) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
