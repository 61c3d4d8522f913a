//go:build linux

// Package cgroup keeps each task to what it was given: one control group per
// task, with limits of CPU, memory and processes, and without the devices of
// others. It works with version 2 (unified), version 1 and machines that have
// both, and says what it cannot enforce where it cannot.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/cgroup/spawn"
)

// Limits is what a task is kept to. Zero: no limit.
type Limits struct {
	CPU    int64    // milli-cores
	Memory int64    // bytes
	Pids   int64    // processes and threads
	Deny   []Device // character devices that it must not open
}

// Device is a character device.
type Device struct{ Major, Minor int64 }

// Usage is what a task used so far.
type Usage struct {
	CPU    time.Duration
	Memory int64 // bytes, now
	Peak   int64 // bytes
	Killed int64 // processes that the kernel killed for want of memory
}

// The controllers.
const (
	CPU     = "cpu"
	Account = "cpuacct" // of version 1; version 2 counts in cpu
	Memory  = "memory"
	Pids    = "pids"
	Freezer = "freezer" // of version 1; every group of version 2 can be frozen
	Devices = "devices" // of version 1; version 2 has programs for it
	NetCls  = "net_cls" // of version 1; version 2 knows the group of a socket without it
)

var controllers = []string{CPU, Account, Memory, Pids, Freezer, Devices, NetCls}

// Manager makes groups below one of its own in every hierarchy.
type Manager struct {
	unified string            // our folder in version 2; empty: not there
	level   int               // of our groups in version 2, as the kernel counts: 0 is the root
	dirs    map[string]string // our folder for a controller, in whichever version has it
	v1      map[string]bool   // the controller is of version 1
	notes   []string
}

// Group is the group of one task.
type Group struct {
	m    *Manager
	name string
}

// what each controller is for, in the words of the notes, in their order.
var purposes = []struct{ controller, text string }{{Memory, "memory"}, {CPU, "CPU"}, {Pids, "the number of processes"},
	{Devices, "access to GPUs of others"}}

// Open finds the hierarchies and makes our own folder in each. The folders stay:
// another daemon of this machine may be about to use them.
func Open() *Manager {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return &Manager{notes: []string{"jobs are not kept to what they asked for: " + err.Error()}}
	}
	defer mounts.Close()
	m := &Manager{dirs: map[string]string{}, v1: map[string]bool{}}
	var failed error
	freezer, netCls := "", ""
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		at, kind := strings.Fields(before), strings.Fields(after)
		if len(at) < 5 || len(kind) < 3 {
			continue
		}
		dir := filepath.Join(at[4], "muster")
		switch kind[0] {
		case "cgroup2":
			failed = errors.Join(failed, m.openUnified(at[4], dir))
			m.level = len(strings.FieldsFunc(at[3], func(r rune) bool { return r == '/' })) + 2
		case "cgroup":
			for _, c := range strings.Split(kind[2], ",") {
				switch {
				case !slices.Contains(controllers, c), m.dirs[c] != "":
				case c == Freezer:
					freezer = dir
				case c == NetCls:
					netCls = dir
				default:
					failed = errors.Join(failed, m.openOld(c, dir))
				}
			}
		}
	}
	if m.unified == "" { // version 2 does both: fewer folders for each task
		for c, dir := range map[string]string{Freezer: freezer, NetCls: netCls} {
			if dir != "" {
				failed = errors.Join(failed, m.openOld(c, dir))
			}
		}
	}
	m.describe(failed)
	return m
}

// openOld makes our folder for a controller of version 1.
func (m *Manager) openOld(controller, dir string) error {
	if err := makeOwn(dir); err != nil {
		return err
	}
	m.dirs[controller], m.v1[controller] = dir, true
	return nil
}

// makeOwn makes a folder in which we make others. It may be there and be another daemon's, of root.
func makeOwn(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

// openUnified makes our folder in version 2 and asks for its controllers.
func (m *Manager) openUnified(mount, dir string) error {
	if err := makeOwn(dir); err != nil {
		return err
	}
	m.unified = dir
	text, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var failed error
	for _, c := range strings.Fields(string(text)) {
		if c != CPU && c != Memory && c != Pids {
			continue
		}
		var err error
		for _, d := range []string{mount, dir} {
			err = errors.Join(err, write(d, "cgroup.subtree_control", "+"+c))
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		m.dirs[c] = dir
	}
	return failed
}

// describe notes what cannot be enforced. Devices are tried: the kernel may
// refuse programs.
func (m *Manager) describe(failed error) {
	if m.dirs[Devices] == "" && m.unified != "" {
		g := m.Group("probe")
		if err := g.make(m.unified); err == nil && denyByProgram(g.path(m.unified), []Device{{195, 254}}) == nil {
			m.dirs[Devices] = m.unified
		}
		g.Remove()
	}
	for _, p := range purposes {
		if m.dirs[p.controller] == "" {
			m.notes = append(m.notes, p.text)
		}
	}
	if len(m.notes) == 0 {
		return
	}
	why := "this kernel does not offer it"
	if failed != nil {
		why = strings.ReplaceAll(failed.Error(), "\n", "; ")
	}
	m.notes = []string{"not enforced: " + strings.Join(m.notes, ", ") + " (" + why + ")"}
}

// Notes says what is not enforced, and why.
func (m *Manager) Notes() []string { return m.notes }

// folders lists our folders, each once.
func (m *Manager) folders() (list []string) {
	if m.unified != "" {
		list = append(list, m.unified)
	}
	for _, c := range controllers {
		if d := m.dirs[c]; d != "" && !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// Sweep removes the groups whose names are left over, and kills the processes in them.
func (m *Manager) Sweep(leftOver func(name string) bool) {
	for _, d := range m.folders() {
		entries, err := os.ReadDir(d)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !e.IsDir() || !leftOver(e.Name()) {
				continue
			}
			if g := m.Group(e.Name()); len(g.Kill(0)) == 0 {
				g.Remove()
			}
		}
	}
}

// shims is the name of the group of all shims: they are in no task's group, nor in the
// daemon's, with which they would end.
const shims = "shims"

// Shims is where shims begin.
func (m *Manager) Shims() *spawn.Place {
	g := m.Group(shims)
	for _, d := range m.folders() {
		if g.make(d) != nil {
			return nil
		}
	}
	return g.Place()
}

// Group is a task's group; whether it exists is another question.
func (m *Manager) Group(name string) *Group { return &Group{m, name} }

func (g *Group) path(dir string) string { return filepath.Join(dir, g.name) }

func (g *Group) make(dir string) error {
	if err := os.Mkdir(g.path(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Create makes the group with its limits.
func (g *Group) Create(l Limits) error {
	var errs error
	for _, d := range g.m.folders() {
		errs = errors.Join(errs, g.make(d))
	}
	set := func(controller, v1, v2, value string) {
		if d := g.m.dirs[controller]; d != "" && g.m.v1[controller] && v1 != "" {
			errs = errors.Join(errs, write(g.path(d), v1, value))
		} else if d != "" && !g.m.v1[controller] && v2 != "" {
			errs = errors.Join(errs, write(g.path(d), v2, value))
		}
	}
	const period = 100_000 // µs, the kernel's own
	if l.CPU > 0 {
		quota := max(1000, l.CPU*period/1000) // the kernel's least
		set(CPU, "cpu.cfs_quota_us", "", strconv.FormatInt(quota, 10))
		set(CPU, "", "cpu.max", fmt.Sprintf("%d %d", quota, period))
	}
	if l.Memory > 0 {
		n := strconv.FormatInt(l.Memory, 10)
		set(Memory, "memory.limit_in_bytes", "memory.max", n)
		for _, swap := range []struct{ file, value string }{{"memory.memsw.limit_in_bytes", n},
			{"memory.swap.max", "0"}} {
			if p := g.path(g.m.dirs[Memory]); g.m.dirs[Memory] != "" { // where swap is counted
				if _, err := os.Stat(filepath.Join(p, swap.file)); err == nil {
					errs = errors.Join(errs, write(p, swap.file, swap.value))
				}
			}
		}
	}
	if l.Pids > 0 {
		set(Pids, "pids.max", "pids.max", strconv.FormatInt(l.Pids, 10))
	}
	return errors.Join(errs, g.deny(l.Deny))
}

func (g *Group) deny(list []Device) error {
	d := g.m.dirs[Devices]
	if d == "" || len(list) == 0 {
		return nil
	}
	if !g.m.v1[Devices] {
		return denyByProgram(g.path(d), list)
	}
	for _, v := range list {
		if err := write(g.path(d), "devices.deny", fmt.Sprintf("c %d:%d rwm", v.Major, v.Minor)); err != nil {
			return err
		}
	}
	return nil
}

// Place is where a process is to begin so that it, and what it starts, is in the group.
func (g *Group) Place() *spawn.Place {
	p := &spawn.Place{}
	for _, d := range g.m.folders() {
		if d == g.m.unified {
			p.Unified = g.path(d)
		} else {
			p.Old = append(p.Old, g.path(d))
		}
	}
	return p
}

// Freeze stops all processes of the group, or lets them go on. Where there is
// no means to do it nothing happens: the processes got a signal as well.
func (g *Group) Freeze(stop bool) {
	switch {
	case g.m.unified != "":
		value := "0"
		if stop {
			value = "1"
		}
		_ = write(g.path(g.m.unified), "cgroup.freeze", value)
	case g.m.dirs[Freezer] != "":
		value := "THAWED"
		if stop {
			value = "FROZEN"
		}
		_ = write(g.path(g.m.dirs[Freezer]), "freezer.state", value)
	}
}

// Exists reports whether there are groups, and the kernel says which processes are in this one.
func (g *Group) Exists() bool {
	folders := g.m.folders()
	if len(folders) == 0 {
		return false
	}
	_, err := os.Stat(g.path(folders[0]))
	return err == nil
}

// Of is the name of the group that a process is in, if it is one of ours; false: there are
// no groups here.
func (m *Manager) Of(pid int) (name string, ok bool) {
	if len(m.folders()) == 0 {
		return "", false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", true
	}
	for line := range strings.Lines(string(text)) {
		name := filepath.Base(strings.TrimSpace(line))
		// others may have folders of that name
		if strings.Contains(line, "/muster/") && slices.Contains(m.Group(name).Pids(), pid) {
			return name, true
		}
	}
	return "", true
}

// Pids lists the processes of the group.
func (g *Group) Pids() (list []int) {
	folders := g.m.folders()
	if len(folders) == 0 {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(g.path(folders[0]), "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, line := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
			list = append(list, pid)
		}
	}
	return list
}

// Kill kills the processes of the group but one, and whatever they start
// meanwhile; it thaws them, because the dead must run to die. It returns those
// that are still there after a moment.
func (g *Group) Kill(but int) (left []int) {
	for range 20 {
		left = slices.DeleteFunc(g.Pids(), func(pid int) bool { return pid == but })
		if len(left) > 0 && (but == 0 || !slices.Contains(g.Pids(), but)) && g.m.unified != "" {
			_ = write(g.path(g.m.unified), "cgroup.kill", "1") // since Linux 5.14: no process begins meanwhile
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		g.Freeze(false)
		if len(left) == 0 {
			return nil
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 2_000_000}, nil)
	}
	return left
}

// Remove removes the group, if it is empty.
func (g *Group) Remove() {
	for _, d := range g.m.folders() {
		for range 50 { // the last process may not be quite gone
			if err := os.Remove(g.path(d)); !errors.Is(err, unix.EBUSY) {
				break
			}
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 2_000_000}, nil)
		}
	}
}

// Usage is what the group used so far; false: it is not there, or nothing counts.
func (g *Group) Usage() (u Usage, ok bool) {
	if d := g.m.dirs[Memory]; d != "" && g.m.v1[Memory] {
		u.Memory, ok = number(g.path(d), "memory.usage_in_bytes")
		u.Peak, _ = number(g.path(d), "memory.max_usage_in_bytes")
		u.Killed, _ = field(g.path(d), "memory.oom_control", "oom_kill")
	} else if d != "" {
		u.Memory, ok = number(g.path(d), "memory.current")
		u.Peak, _ = number(g.path(d), "memory.peak") // since Linux 5.19
		u.Killed, _ = field(g.path(d), "memory.events", "oom_kill")
	}
	u.Peak = max(u.Peak, u.Memory)
	if d := g.m.dirs[Account]; d != "" {
		ns, counts := number(g.path(d), "cpuacct.usage")
		u.CPU, ok = time.Duration(ns), ok || counts
	} else if d := g.m.dirs[CPU]; d != "" {
		us, counts := field(g.path(d), "cpu.stat", "usage_usec")
		u.CPU, ok = time.Duration(us)*time.Microsecond, ok || counts
	}
	return u, ok
}

func write(dir, file, value string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
}

func number(dir, file string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// field reads "name value" among lines of them.
func field(dir, file, name string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
