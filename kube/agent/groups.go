//go:build linux

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// podGroups are the control groups that a kubelet makes of pods, by their UIDs. Which processes of a pod are in which
// container's group below is the runtime's affair.
type podGroups struct {
	root string // of the hierarchy
}

// Where a kubelet has its pods, with systemd and without (--cgroup-driver).
const (
	slice  = "kubepods.slice"
	folder = "kubepods"
)

// findPods finds the hierarchy.
func findPods(root string) (*podGroups, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: root, Err: err}
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("%s: %w", root, errNoV2)
	}
	return &podGroups{root: root}, nil
}

var errNoV2 = errors.New("no control groups of version 2 are there, by which packets of pods are told apart")

// Levels implements dscp.Groups: guaranteed pods are right below the kubelet's group, others below that of their class.
func (g *podGroups) Levels() []uint32 { return []uint32{2, 3} }

// dir is the folder of a pod's group; "": there is none.
func (g *podGroups) dir(uid string) string {
	if uid == "" || strings.ContainsAny(uid, "/.") {
		return ""
	}
	escaped := strings.ReplaceAll(uid, "-", "_") // a dash is a level to systemd
	for _, path := range []string{
		slice + "/kubepods-pod" + escaped + ".slice",
		slice + "/kubepods-burstable.slice/kubepods-burstable-pod" + escaped + ".slice",
		slice + "/kubepods-besteffort.slice/kubepods-besteffort-pod" + escaped + ".slice",
		folder + "/pod" + uid,
		folder + "/burstable/pod" + uid,
		folder + "/besteffort/pod" + uid,
	} {
		path = filepath.Join(g.root, path)
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return path
		}
	}
	return ""
}

// ID implements dscp.Groups.
func (g *podGroups) ID(uid string) (uint64, error) {
	dir := g.dir(uid)
	if dir == "" {
		return 0, fs.ErrNotExist
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return st.Ino, nil
}

// Pids implements dscp.Groups.
func (g *podGroups) Pids(uid string) (list []int) {
	dir := g.dir(uid)
	if dir == "" {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "cgroup.procs" { // a container may have ended
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, line := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 { // 0: of another namespace of processes
				list = append(list, pid)
			}
		}
		return nil
	})
	return list
}
