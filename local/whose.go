//go:build linux

package local

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/shim"
)

// taskOf finds the task of a process: by its control group or, where there are none, by the
// mark in its environment, which must be of a job of its own user.
func (m *Machine) taskOf(pid int) (id cluster.JobID, rank int, ok bool) {
	if name, grouped := m.groups.Of(pid); grouped {
		id, _, rank, ok = m.parseMark(name)
		return id, rank, ok
	}
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return 0, 0, false
	}
	for _, kv := range strings.Split(string(env), "\x00") {
		name, ok := strings.CutPrefix(kv, "MUSTER_TASK_ID=")
		if !ok {
			continue
		}
		id, run, rank, ok := m.parseMark(name)
		return id, rank, ok && shim.Owner(pid) == folderOwner(m.taskDir(id, run, rank))
	}
	return 0, 0, false
}

// parseMark reads the numbers in the value of a task's mark, which is the name of its group, too.
func (m *Machine) parseMark(name string) (id cluster.JobID, run, rank int, ok bool) {
	f := strings.Split(name, ".")
	if len(f) != 4 || !strings.HasSuffix(m.mark(0, 0, 0), "."+f[3]) {
		return 0, 0, 0, false
	}
	var n [3]int
	for i := range n {
		v, err := strconv.Atoi(f[i])
		if err != nil {
			return 0, 0, 0, false
		}
		n[i] = v
	}
	return cluster.JobID(n[0]), n[1], n[2], true
}
