//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Enter moves a process that another one started into the group. leave moves it back to where it was.
func (g *Group) Enter(pid int) (leave func(), err error) {
	was, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, err
	}
	text := strconv.Itoa(pid)
	leave = func() {
		for _, d := range g.m.folders() {
			_ = write(filepath.Join(filepath.Dir(d), g.m.pathOf(d, string(was))), "cgroup.procs", text)
		}
	}
	var errs error
	for _, d := range g.m.folders() {
		errs = errors.Join(errs, write(g.path(d), "cgroup.procs", text))
	}
	if errs != nil {
		leave()
		return nil, errs
	}
	return leave, nil
}

// pathOf finds in a /proc/PID/cgroup the group of a process in the hierarchy of one of our folders, below its
// mount point.
func (m *Manager) pathOf(folder, text string) string {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[1] == "" && folder == m.unified {
			return f[2]
		}
		for _, c := range strings.Split(f[1], ",") {
			if c != "" && m.v1[c] && m.dirs[c] == folder {
				return f[2]
			}
		}
	}
	return "/"
}
