//go:build linux

package shim

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signalsOff makes the shim deaf to what is meant for its task, or for a
// terminal that it no longer has. The signals are caught, not ignored: what is
// ignored stays so in the task, whose shell could then not trap it.
func signalsOff() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP)
}

// Birth returns the start time of a process in clock ticks since boot; 0: there
// is none. With it a process number cannot be mistaken for a later one.
func Birth(pid int) uint64 {
	birth, _ := stat(pid)
	return birth
}

// Lives reports whether the process that was born then is there, and has not ended: one
// that nobody has reaped yet has. Whose birth could not be seen then (0), or cannot now, as another user's where /proc is
// hidden, has ended only if no process has its number: what is not known is not taken for its end.
func Lives(pid int, birth uint64) bool {
	if pid <= 0 {
		return false
	}
	switch b, state := stat(pid); {
	case b == 0:
		return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	case state == "Z" || state == "X":
		return false
	default:
		return birth == 0 || b == birth
	}
}

// stat returns a process' start time in clock ticks since boot, and its state; 0: there is none.
func stat(pid int) (birth uint64, state string) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, ""
	}
	_, rest, ok := cut(string(text))
	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return 0, ""
	}
	n, _ := strconv.ParseUint(f[19], 10, 64) // field 22 of proc_pid_stat(5)
	return n, f[0]
}

// cut splits a stat line behind the command's name, which may hold anything.
func cut(stat string) (before, after string, ok bool) {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return "", "", false
	}
	return stat[:i], stat[i+1:], true
}

// Strays lists the processes whose environment holds the mark.
func Strays(mark string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	want := []byte(mark)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // gone, or another user's
		}
		for _, kv := range bytes.Split(env, []byte{0}) {
			if bytes.Equal(kv, want) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// children lists the processes whose parent is this one: a subreaper inherits
// whatever its task leaves behind.
func children() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	me := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		if _, rest, ok := cut(string(text)); ok {
			if f := strings.Fields(rest); len(f) > 1 && f[1] == me && f[0] != "Z" {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// childless reports whether this process has no children: whatever a task leaves
// behind is inherited by its shim, so nothing is left then. It costs one call
// where looking through /proc costs milliseconds.
func childless() bool {
	var info unix.Siginfo
	return errors.Is(unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// killStrays kills what the task left behind: children that were orphaned, and
// theirs, until there is nobody left. It returns how many there were.
func killStrays(mark string) (n int) {
	if childless() {
		return 0
	}
	for round := range 100 {
		pids := children()
		if round == 0 {
			pids = append(pids, Strays(mark)...)
		}
		if len(pids) == 0 {
			return n
		}
		for _, pid := range pids {
			if unix.Kill(pid, unix.SIGKILL) == nil {
				n++
			}
		}
		var status unix.WaitStatus
		for {
			if got, err := unix.Wait4(-1, &status, unix.WNOHANG, nil); err != nil || got <= 0 {
				break
			}
		}
		if round > 0 {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1_000_000}, nil)
		}
	}
	return n
}

// Family lists a process and all its descendants.
func Family(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []int{pid}
	}
	parent := map[int]int{} // looked up only
	var all []int
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		if _, rest, ok := cut(string(text)); ok {
			if f := strings.Fields(rest); len(f) > 1 {
				parent[p], _ = strconv.Atoi(f[1])
				all = append(all, p)
			}
		}
	}
	var family []int
	for _, p := range all {
		for up, steps := p, 0; up > 1 && steps < 1000; up, steps = parent[up], steps+1 {
			if up == pid {
				family = append(family, p)
				break
			}
		}
	}
	return family
}

// Handles reports whether a process catches a signal, or waits for it blocked:
// whether it would do anything but die of it, or not notice.
func Handles(pid int, s unix.Signal) bool {
	caught, blocked := handling(pid, s)
	for range 3 { // a shell blocks signals for a moment while it forks
		if caught || !blocked {
			break
		}
		time.Sleep(5 * time.Millisecond)
		caught, blocked = handling(pid, s)
	}
	return caught || blocked
}

func handling(pid int, s unix.Signal) (caught, blocked bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return false, false
	}
	for _, line := range strings.Split(string(text), "\n") {
		name, mask, _ := strings.Cut(line, ":")
		bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		in := err == nil && bits>>(uint(s)-1)&1 == 1
		switch name {
		case "SigCgt":
			caught = in
		case "SigBlk":
			blocked = in
		}
	}
	return caught, blocked
}

// FamilyHandles reports whether a process or one of its descendants handles a signal. It
// looks at them only, where Family looks at all processes there are; one that is
// born meanwhile may be missed.
func FamilyHandles(pid int, s unix.Signal) bool {
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return false // gone
	}
	if Handles(pid, s) {
		return true
	}
	for _, t := range threads {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", t.Name(), "children"))
		if err != nil && t.Name() == strconv.Itoa(pid) && Birth(pid) != 0 { // a kernel that does not list them
			return slices.ContainsFunc(Family(pid), func(p int) bool { return Handles(p, s) })
		}
		for _, c := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(c); err == nil && FamilyHandles(child, s) {
				return true
			}
		}
	}
	return false
}
