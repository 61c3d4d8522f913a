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
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP)
}

// Birth returns the start time of a process in clock ticks since boot; 0: there
// is none. With it a process number cannot be mistaken for a later one.
func Birth(pid int) uint64 {
	birth, _ := stat(pid)
	return birth
}

// Lives reports whether the process that was born then is there, and has not ended: one
// that has not been reaped yet has. Whose birth could not be seen then (0), or cannot now, as another user's
// where /proc is hidden, has ended only if no process has its number: what is not known is not taken for its
// end.
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
func Strays(mark string) []int { return straysIf(mark, func(int) bool { return true }) }

// StraysOf lists those of a user. Nothing that others' processes show is read: whoever
// reads the memory of a process may be made to wait by its user.
func StraysOf(mark string, uid int) []int {
	return straysIf(mark, func(pid int) bool { return Owner(pid) == uid })
}

func straysIf(mark string, look func(pid int) bool) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	want := []byte(mark)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !look(pid) {
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
	me := strconv.Itoa(os.Getpid())
	eachProcess(func(pid int, fields []string) {
		if len(fields) > 1 && fields[1] == me && fields[0] != "Z" {
			pids = append(pids, pid)
		}
	})
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
// theirs, until none is left. It returns how many there were.
func killStrays(t *Task) (n int) {
	if childless() {
		return 0
	}
	for round := range 100 {
		pids := children()
		if round == 0 && t.Group.Empty() { // else the daemon empties the group
			pids = append(pids, Strays(t.Mark)...)
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
	parent := map[int]int{} // looked up only
	var all []int
	eachProcess(func(p int, fields []string) {
		if len(fields) > 1 {
			parent[p], _ = strconv.Atoi(fields[1])
			all = append(all, p)
		}
	})
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
// inspects them only, where Family inspects all processes there are; one that is
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

// Session lists the processes of a session.
func Session(sid int) (pids []int) {
	want := strconv.Itoa(sid)
	eachProcess(func(pid int, fields []string) {
		if len(fields) > 3 && fields[3] == want && fields[0] != "Z" {
			pids = append(pids, pid)
		}
	})
	return pids
}

// eachProcess calls f with what stands behind the command's name in each process' stat.
func eachProcess(f func(pid int, fields []string)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
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
			f(pid, strings.Fields(rest))
		}
	}
}

// Owner is the real user of a process; -1: it is not known, or there is none.
func Owner(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				uid, err := strconv.Atoi(f[0])
				if err != nil {
					return -1
				}
				return uid
			}
		}
	}
	return -1
}

// Find lists the shims of the task with this folder that belong to a user.
func Find(dir string, uid int) (pids []int) {
	eachProcess(func(pid int, _ []string) {
		if Owner(pid) != uid { // nor is what others' processes show of themselves read
			return
		}
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			return
		}
		args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if n := len(args); n >= 3 && args[n-1] == dir && args[n-2] == Verb {
			pids = append(pids, pid)
		}
	})
	return pids
}

// Describe is the name and the state of a process, as proc_pid_stat(5) has them.
func Describe(pid int) (name, state string) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", "gone"
	}
	before, rest, _ := cut(string(text))
	if _, name, _ = strings.Cut(before, "("); rest != "" {
		state = strings.Fields(rest)[0]
	}
	return name, state
}
