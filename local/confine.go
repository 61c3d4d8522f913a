//go:build linux

package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
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

// Use is what the tasks of a job used of the machine, all runs together.
type Use struct {
	CPU  time.Duration `json:"cpu,omitempty"`
	Peak int64         `json:"peak,omitempty"` // bytes of host memory, all tasks of a run
	// Lost is the GPU time, in whole GPUs, whose work runs that were stopped did
	// not save.
	Lost time.Duration `json:"lost,omitempty"`
	// Back is the GPU time, in whole GPUs, for which an elastic job held devices
	// that it was to give back: the engine counts what it is to hold.
	Back time.Duration `json:"back,omitempty"`
}

// add books a run that is over.
func (u *Use) add(tasks []*run.Task) {
	var peak int64
	for _, t := range tasks {
		u.CPU += t.Used.CPU
		peak += t.Used.Peak
	}
	u.Peak = max(u.Peak, peak)
}

// lose books the work that a stopped run takes with it.
func (u *Use) lose(rec *engine.JobRecord, now cluster.Time, kept time.Duration) {
	milli := milliOf(rec.Allocs)
	if lost := rec.DoneAt(now) - kept; lost > 0 {
		u.Lost += time.Duration(float64(lost) * float64(milli) / float64(cluster.Whole))
	}
}

// milliOf is what allocations hold of GPUs.
func milliOf(allocs []engine.Alloc) (milli cluster.Milli) {
	for i := range allocs {
		milli += allocs[i].Milli()
	}
	return milli
}

// givenBack is what a job that shrinks still holds of what it gives back.
type givenBack struct {
	Since cluster.Time  `json:"since"`
	Milli cluster.Milli `json:"milli"`
}

func (b *givenBack) until(now cluster.Time) time.Duration {
	return time.Duration(float64(max(0, now.Sub(b.Since))) * float64(b.Milli) / float64(cluster.Whole))
}

// giveBack books, with its record, since when a job holds devices that it gives
// back, and what that came to when it has left them.
func (i *Info) giveBack(now cluster.Time) {
	milli := milliOf(i.Record.Leaving)
	if i.Back != nil && i.Back.Milli == milli {
		return
	}
	if i.Back != nil {
		i.Use.Back += i.Back.until(now)
		i.Back = nil
	}
	if milli > 0 {
		i.Back = &givenBack{now, milli}
	}
}

// backHours is the GPU-hours of devices that were given back, until they were left.
func (i *Info) backHours(now cluster.Time) float64 {
	d := i.Use.Back
	if i.Back != nil {
		d += i.Back.until(now)
	}
	return d.Hours()
}
