//go:build linux

package run

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/shim"
)

// Places are where what belongs to tasks lies in the folder of a state, and by what names their processes are known.
type Places struct {
	Dir         string
	Checkpoints string // folder for the folders that jobs save in; "": those of the jobs
}

// JobDir is the folder of a job.
func (p Places) JobDir(id cluster.JobID) string {
	return filepath.Join(p.Dir, "jobs", strconv.Itoa(int(id)))
}

// RunDir is the folder of a run, which is the daemon's; users pass through it.
func (p Places) RunDir(id cluster.JobID, run int) string {
	return filepath.Join(p.JobDir(id), strconv.Itoa(run))
}

// TaskDir is the folder of a task of a run.
func (p Places) TaskDir(id cluster.JobID, run, rank int) string {
	return filepath.Join(p.RunDir(id, run), strconv.Itoa(rank))
}

// Mark is the environment variable by which processes of a task are known.
func (p Places) Mark(id cluster.JobID, run, rank int) string {
	return fmt.Sprintf("%s%d.%d.%d.%s", markName, id, run, rank, p.State())
}

const markName = "MUSTER_TASK_ID="

// State is a number of this state, which distinguishes its tasks from those of others.
func (p Places) State() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.Dir))
	return fmt.Sprintf("%08x", h.Sum32())
}

// parseMark reads the numbers in the value of a task's mark, which is the name of its group, too.
func (p Places) parseMark(name string) (id cluster.JobID, run, rank int, ok bool) {
	f := strings.Split(name, ".")
	if len(f) != 4 || f[3] != p.State() {
		return 0, 0, 0, false
	}
	return numbers(f[:3])
}

// locks are the locks of all tasks that have folders.
func (p Places) locks() ([]string, error) {
	return filepath.Glob(filepath.Join(p.Dir, "jobs", "*", "*", "*"+lockSuffix))
}

const lockSuffix = ".lock"

// parseLock reads the numbers in jobs/ID/RUN/RANK.lock.
func parseLock(path string) (id cluster.JobID, run, rank int, ok bool) {
	parts := strings.Split(strings.TrimSuffix(path, lockSuffix), string(filepath.Separator))
	if len(parts) < 3 {
		return 0, 0, 0, false
	}
	return numbers(parts[len(parts)-3:])
}

func numbers(parts []string) (id cluster.JobID, run, rank int, ok bool) {
	var n [3]int
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil {
			return 0, 0, 0, false
		}
		n[i] = v
	}
	return cluster.JobID(n[0]), n[1], n[2], true
}

// folderOwner is the user of a folder in one of the daemon's; -1: there is none.
func folderOwner(path string) int {
	fi, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	return evidence.OwnerOf(fi)
}

// Keeper is what the runs of a machine have in common.
type Keeper struct {
	Places
	Groups  *cgroup.Manager
	Shim    []string // the command line of a task's shim, without the task's folder
	Reserve Reserve
	Running context.Context // ends when the daemon does; tasks go on
	Log     *slog.Logger
	Now     func() time.Time
	Crash   func(point string) // a place at which the daemon may be made to die; nil: it is not
}

func (k *Keeper) crash(point string) {
	if k.Crash != nil {
		k.Crash(point)
	}
}

// Group is the control group of a task.
func (k *Keeper) Group(mark string) *cgroup.Group { return k.Groups.Group(GroupName(mark)) }

// GroupName is the name of the control group of a task.
func GroupName(mark string) string { return strings.TrimPrefix(mark, markName) }

// TaskOf finds the task of a process: by its control group or, where there are none, by the
// mark in its environment, which must be of a job of its own user.
func (k *Keeper) TaskOf(pid int) (id cluster.JobID, rank int, ok bool) {
	if name, grouped := k.Groups.Of(pid); grouped {
		id, _, rank, ok = k.parseMark(name)
		return id, rank, ok
	}
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return 0, 0, false
	}
	for _, kv := range strings.Split(string(env), "\x00") {
		name, ok := strings.CutPrefix(kv, markName)
		if !ok {
			continue
		}
		id, run, rank, ok := k.parseMark(name)
		return id, rank, ok && shim.Owner(pid) == folderOwner(k.TaskDir(id, run, rank))
	}
	return 0, 0, false
}

// Dial connects to the terminal of a run's first task, or to the pipe that is its standard input.
func (k *Keeper) Dial(id cluster.JobID, run, uid int) (net.Conn, error) {
	dir := k.TaskDir(id, run, 0)
	if shim.Legacy(dir) {
		return shim.LegacyDial(dir, uid)
	}
	return shim.Dial(dir)
}
