//go:build linux

package shim

import (
	"bufio"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The short way to ask whether anybody handles a signal says the same as to look at every
// process: of none, of a child, of a grandchild, and of one that ignores it.
func TestFamilyHandles(t *testing.T) {
	for _, c := range []struct {
		script string
		want   bool
	}{
		{`echo; sleep 100; :`, false},
		{`trap : USR1; echo; sleep 100 & wait`, true},
		{`trap '' USR1; echo; sleep 100; :`, false},
		{`sh -c 'sh -c "trap : USR1; echo; sleep 100; :"; :'; :`, true},
		{`sh -c 'sleep 100; :' & sh -c 'echo; sleep 100; :'; :`, false},
	} {
		cmd := exec.Command("sh", "-c", c.script)
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		short := FamilyHandles(pid, unix.SIGUSR1)
		long := slices.ContainsFunc(Family(pid), func(p int) bool { return Handles(p, unix.SIGUSR1) })
		if short != c.want || long != c.want {
			t.Errorf("%s: handles the signal: %v, by a look at every process %v, want %v", c.script, short, long,
				c.want)
		}
		if err := unix.Kill(-pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	}
	if FamilyHandles(1<<22, unix.SIGUSR1) {
		t.Error("a process that is not there handles a signal")
	}
}
