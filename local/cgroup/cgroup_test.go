//go:build linux

package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// need opens the groups of this machine, or skips the test, loudly.
func need(t *testing.T, controllers ...string) *Manager {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root can make control groups")
	}
	m := Open()
	for _, c := range controllers {
		if m.dirs[c] == "" {
			t.Skipf("NOT TESTED: no %s controller here: %v", c, m.Notes())
		}
	}
	return m
}

// start runs a shell in a group: it waits for a line before it does anything.
func start(t *testing.T, m *Manager, l Limits, script string) (*Group, *exec.Cmd) {
	t.Helper()
	g := m.Group("test." + strings.ReplaceAll(t.Name(), "/", "."))
	if err := g.Create(l); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "read go; "+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := g.Place().Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill(0)
		_ = cmd.Wait()
		g.Remove()
		if g.exists() {
			t.Error("the group is still there")
		}
	})
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	return g, cmd
}

func (g *Group) exists() bool {
	for _, d := range g.m.folders() {
		if _, err := os.Stat(g.path(d)); err == nil {
			return true
		}
	}
	return false
}

// A task that takes more memory than it was given is killed, and that is known.
func TestMemory(t *testing.T) {
	m := need(t, Memory)
	g, cmd := start(t, m, Limits{Memory: 64 << 20}, "x=x; while :; do x=$x$x; done")
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v, not by SIGKILL", err)
	}
	u, ok := g.Usage()
	if !ok || u.Killed == 0 || u.Peak < 32<<20 || u.Peak > 64<<20 {
		t.Errorf("usage %+v %v: the kernel killed it at 64 MiB", u, ok)
	}
}

// A task of half a core gets no more than that, and its time is counted.
func TestCPU(t *testing.T) {
	m := need(t, CPU)
	begun := time.Now()
	g, cmd := start(t, m, Limits{CPU: 500}, "while :; do :; done")
	time.Sleep(time.Second)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	u, ok := g.Usage()
	if took := time.Since(begun); !ok || u.CPU == 0 || u.CPU > took*9/10 {
		t.Errorf("it used %v of CPU within %v; at most half of it is its own", u.CPU, took)
	}
}

// A task cannot have more processes than it may.
func TestPids(t *testing.T) {
	m := need(t, Pids)
	_, cmd := start(t, m, Limits{Pids: 4}, "for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; wait")
	if err := cmd.Wait(); err == nil {
		t.Error("eight processes ran where four may")
	}
}

// What is frozen stands still, whichever process group it is in; killing
// reaches all, frozen or not, but the one that is spared.
func TestFreezeKill(t *testing.T) {
	m := need(t)
	if m.unified == "" && m.dirs[Freezer] == "" {
		t.Skip("NOT TESTED: nothing can be frozen here")
	}
	file := t.TempDir() + "/count"
	g, cmd := start(t, m, Limits{}, "setsid sh -c 'while :; do echo x >> "+file+"; sleep 0.01; done' & wait")
	size := func() int64 {
		fi, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	for size() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	g.Freeze(true)
	time.Sleep(50 * time.Millisecond)
	before := size()
	time.Sleep(200 * time.Millisecond)
	if size() != before {
		t.Error("it went on while it was frozen")
	}
	g.Freeze(false)
	for try := 0; size() == before; try++ {
		if try > 400 {
			t.Fatal("it did not go on after it was thawed")
		}
		time.Sleep(5 * time.Millisecond)
	}
	g.Freeze(true)
	g.Kill(cmd.Process.Pid)
	for try := 0; ; try++ { // on a busy machine the dead are seen for a while
		pids := g.Pids()
		if len(pids) == 0 || len(pids) == 1 && pids[0] == cmd.Process.Pid {
			break
		}
		if try > 2000 {
			t.Fatalf("left are %v; only %d was to be spared", pids, cmd.Process.Pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A device that belongs to another cannot be opened; others can. /dev/zero
// stands for a GPU.
func TestDevices(t *testing.T) {
	m := need(t, Devices)
	check := func(t *testing.T) {
		g, cmd := start(t, m, Limits{Deny: []Device{{1, 5}, {195, 3}}},
			"head -c1 /dev/zero >/dev/null 2>&1 && exit 1; head -c1 /dev/urandom >/dev/null || exit 2")
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v (1: it opened what is not its own, 2: it could not open what is)", g.name, err)
		}
	}
	t.Run("version 1 or 2", check)
	if m.unified == "" || !m.v1[Devices] {
		return
	}
	m.v1[Devices], m.dirs[Devices] = false, m.unified // the program of version 2, too
	probe := m.Group("test.probe")
	if err := probe.make(m.unified); err != nil {
		t.Fatal(err)
	}
	defer probe.Remove()
	if err := denyByProgram(probe.path(m.unified), []Device{{195, 254}}); err != nil {
		t.Skipf("NOT TESTED: programs for devices: %v", err)
	}
	t.Run("version 2", check)
}

// What is left over is removed, with the processes in it; what is not stays.
func TestSweep(t *testing.T) {
	m := need(t)
	old := m.Group("test.old")
	if err := old.Create(Limits{}); err != nil {
		t.Fatal(err)
	}
	for _, leftOver := range []bool{false, true} {
		t.Run(map[bool]string{false: "kept", true: "left over"}[leftOver], func(t *testing.T) {
			live, cmd := start(t, m, Limits{}, "sleep 1000 & setsid sleep 1000 & sleep 1000")
			m.Sweep(func(name string) bool { return name == old.name || leftOver && name == live.name })
			if leftOver {
				_ = cmd.Wait()
			}
			if old.exists() || len(m.folders()) > 0 && live.exists() == leftOver {
				t.Errorf("the empty group is there: %v; the one with processes: %v", old.exists(), live.exists())
			}
		})
	}
}

// What is started in a group is in it in every hierarchy, with all that it starts, and nobody
// else is: neither the process that started it nor any thread of that.
func TestPlace(t *testing.T) {
	m := need(t)
	g, cmd := start(t, m, Limits{}, "sleep 1000 & wait")
	for _, d := range m.folders() {
		for try := 0; ; try++ {
			tasks := "tasks"
			if d == m.unified {
				tasks = "cgroup.threads"
			}
			text, err := os.ReadFile(g.path(d) + "/" + tasks)
			if err != nil {
				t.Fatal(err)
			}
			var others []string
			for _, id := range strings.Fields(string(text)) {
				if _, err := os.Stat("/proc/self/task/" + id); err == nil {
					others = append(others, id)
				}
			}
			if strings.Contains("\n"+string(text), "\n"+strconv.Itoa(cmd.Process.Pid)+"\n") && len(others) == 0 {
				break
			}
			if try > 1000 { // the thread that started it may take a moment to end
				t.Fatalf("%s: the process is %d, threads of this one are %v:\n%s", g.path(d), cmd.Process.Pid, others,
					text)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Without groups everything is still called, and the notes say what is missing.
func TestNothing(t *testing.T) {
	m := &Manager{}
	m.describe(errors.New("permission denied"))
	if n := m.Notes(); len(n) != 1 ||
		n[0] != "not enforced: memory, CPU, the number of processes, access to GPUs of others (permission denied)" {
		t.Errorf("notes %q", n)
	}
	g := m.Group("task")
	if err := g.Create(Limits{CPU: 1, Memory: 1, Pids: 1, Deny: []Device{{1, 5}}}); err != nil {
		t.Error(err)
	}
	if p := g.Place(); !p.Empty() {
		t.Errorf("there are no groups, but a place %+v", p)
	}
	g.Freeze(true)
	g.Kill(0)
	g.Remove()
	if _, ok := g.Usage(); ok {
		t.Error("nothing counts, but there is a usage")
	}
}
