//go:build linux

package cgroup

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ByID reports whether the kernel tells our groups' sockets apart by the numbers of groups of version 2, and the level
// of our groups there.
func (m *Manager) ByID() (level int, ok bool) { return m.level, m.unified != "" }

// ByClass reports whether it does so by what Group.SetClass sets.
func (m *Manager) ByClass() bool { return m.dirs[NetCls] != "" }

// ID is the number of the group in version 2, which no other group of this boot has.
func (g *Group) ID() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(g.path(g.m.unified), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: g.path(g.m.unified), Err: err}
	}
	return st.Ino, nil
}

// Classes are the class identifiers that are set of groups whose names have an ending.
func (m *Manager) Classes(ending string) map[string]uint32 {
	found := map[string]uint32{}
	if !m.ByClass() {
		return found
	}
	entries, _ := os.ReadDir(m.dirs[NetCls])
	for _, e := range entries {
		if id, ok := number(m.Group(e.Name()).path(m.dirs[NetCls]), "net_cls.classid"); ok && id != 0 &&
			strings.HasSuffix(e.Name(), ending) {
			found[e.Name()] = uint32(id)
		}
	}
	return found
}

// SetClass sets the class identifier (net_cls) of the group's sockets, those that are open too.
func (g *Group) SetClass(id uint32) error {
	return write(g.path(g.m.dirs[NetCls]), "net_cls.classid", strconv.FormatUint(uint64(id), 10))
}
