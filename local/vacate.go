//go:build linux

package local

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
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
func (r *runner) gone(t *task, shimEnds func()) {
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
func (r *runner) vacate(t *task) bool {
	complained := false
	for wait, waited := time.Millisecond, time.Duration(0); ; wait = min(2*wait, time.Second) {
		left := t.killLeft(0)
		if len(left) == 0 {
			return true
		}
		if waited >= patience && !complained {
			complained = true
			r.complain(t, left)
		}
		select {
		case <-r.m.running.Done():
			return false
		case <-time.After(wait):
		}
		waited += wait
	}
}

// complain says which processes hold up a job's devices, in the log and in the job's history.
func (r *runner) complain(t *task, left []int) {
	text := "its devices are not free yet: " + describeLeft(left) + " was killed and has not ended"
	r.m.opt.Log.Warn(text, "job", r.id, "task", t.rank)
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run != r {
			return nil, nil
		}
		r.job.said = append(r.job.said, text)
		return []engine.Event{{Type: engine.Progress, Job: r.id}}, nil
	})
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

// killLeft kills the task's processes, but for one, and returns those that are still there.
func (t *task) killLeft(but int) []int {
	if t.group.Exists() {
		return t.group.Kill(but)
	}
	left := slices.DeleteFunc(t.strays(), func(pid int) bool { return pid == but })
	for _, pid := range left {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return left
}

// strays lists the task's processes where no control group does.
func (t *task) strays() []int {
	pids := shim.StraysOf(t.spec.Mark, t.uid)
	alive := locked(t.dir + ".lock")
	if t.shim != 0 && alive {
		pids = append(pids, shim.Family(t.shim)...)
	}
	if t.shim != 0 && (alive || shim.Birth(t.shim) == 0) { // else its number is another's by now
		pids = append(pids, shim.Session(t.shim)...)
	}
	slices.Sort(pids)
	return slices.DeleteFunc(slices.Compact(pids), func(pid int) bool { return pid == t.shim || shim.Owner(pid) != t.uid })
}

// daemonUser is whose the shims are.
var daemonUser = os.Getuid()

// killShim kills the process that owns the task: the last resort.
func (t *task) killShim() {
	if t.child != nil {
		_ = t.child.Kill()
		return
	}
	if !locked(t.dir + ".lock") {
		return
	}
	uid := t.uid
	if !t.legacy {
		uid = daemonUser
	}
	for _, pid := range shim.Find(t.dir, uid) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
