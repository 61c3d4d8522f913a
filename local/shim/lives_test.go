//go:build linux

package shim

import (
	"os/exec"
	"testing"
	"time"
)

// A process has ended when it has, reaped or not; one whose birth was not seen has not as long as
// there is one with its number. A later process with the number is another one.
func TestLives(t *testing.T) {
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pid, birth := c.Process.Pid, Birth(c.Process.Pid)
	if birth == 0 {
		t.Fatal("its birth cannot be seen")
	}
	for _, x := range []struct {
		pid   int
		birth uint64
		want  bool
	}{{pid, birth, true}, {pid, 0, true}, {pid, birth - 1, false}, {0, 0, false}, {-1, 0, false}} {
		if got := Lives(x.pid, x.birth); got != x.want {
			t.Errorf("process %d, born at %d: it lives: %v", x.pid, x.birth, got)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// nobody has reaped it
	for deadline := time.Now().Add(time.Minute); Lives(pid, birth); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it was killed and lives")
		}
	}
	if Lives(pid, 0) {
		t.Error("nobody has reaped it, and it lives")
	}
	if err := c.Wait(); err == nil {
		t.Error("it was not killed")
	}
	if Lives(pid, birth) || Lives(pid, 0) {
		t.Error("it is gone and lives")
	}
}
