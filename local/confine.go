//go:build linux

package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/run"
)

// nvidiaMajor is the major number of /dev/nvidiaN (Linux, devices.txt).
const nvidiaMajor = 195

// limits is what a task of a set is kept to.
func (r *runner) limits(t *run.Task) cgroup.Limits {
	l := cgroup.Limits{Pids: mostPids(), CPU: t.Request.CPU, Memory: t.Request.RAM << 20}
	for _, minor := range r.m.gpus.Others(t.Devices) {
		l.Deny = append(l.Deny, cgroup.Device{Major: nvidiaMajor, Minor: minor})
	}
	return l
}

// mostPids is half of the process numbers that there are: a job that starts
// processes without end does not take the machine with it.
var mostPids = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n / 2
})

// confine makes the group in which a task is to begin.
func (r *runner) confine(t *run.Task) error {
	if err := t.Group.Create(r.limits(t)); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	t.Spec.Group = t.Group.Place()
	return nil
}

// setOf is the task set to which the task of a rank belongs.
func setOf(allocs []engine.Alloc, rank int) int {
	for i := range allocs {
		if rank -= int(allocs[i].Tasks); rank < 0 {
			return int(allocs[i].Set)
		}
	}
	return 0
}

// killed is what the kernel did to a task that took too much memory; "": nothing.
func (r *runner) killed(t *run.Task) string {
	if t.Used.Killed == 0 {
		return ""
	}
	if l := r.limits(t).Memory; l > 0 {
		return fmt.Sprintf("out of memory: killed at its limit of %d MiB; ask for more with --mem", l>>20)
	}
	return "out of memory: the machine had none left"
}
