//go:build linux

package local

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Shims, tasks and what plays MPS outlive what started them, as they should. All that tests start has a folder below
// one of the tests' own in its command or environment: when the tests have ended, be it that they were killed
// or took too long, a process of its own ends what is left, and removes the folder.

// reapWord makes the test binary that process.
const reapWord = "__reap"

// ownFolder has all temporary files be below a folder, and starts who watches over it.
func ownFolder() error {
	dir, err := os.MkdirTemp("", "muster-local")
	if err != nil {
		return err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	c := exec.Command(os.Args[0], reapWord, dir)
	c.Stdin, c.SysProcAttr = in, &unix.SysProcAttr{Setsid: true} // what is meant for the tests is not for it
	if err := c.Start(); err != nil {
		return err
	}
	keep = out
	_ = in.Close()
	return os.Setenv("TMPDIR", dir)
}

// keep is open for as long as the tests run.
var keep *os.File

// reap waits for the end of the tests, ends what is left of them, and removes their folder.
func reap(dir string) int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	for range 1000 {
		left := about(dir)
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = os.RemoveAll(dir)
	return 0
}

// about lists the processes, but for this one, that name a folder in their command or environment.
func about(dir string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range files {
		command, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil && pid != os.Getpid() &&
			(bytes.Contains(command, []byte(dir)) || bytes.Contains(environ, []byte(dir))) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// What tests leave behind that were killed is ended, and their folder removed.
func TestReap(t *testing.T) {
	const left = "MUSTER_TEST_LEAVES"
	if path := os.Getenv(left); path != "" { // the tests that are killed
		c := exec.Command("sleep", "1000")
		c.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		write(t, path+".new", strconv.Itoa(c.Process.Pid)+" "+os.Getenv("TMPDIR"))
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
	}
	path := filepath.Join(t.TempDir(), "left")
	c := exec.Command(os.Args[0], "-test.run", "^TestReap$")
	c.Env = append(os.Environ(), left+"="+path, "TMPDIR=/tmp")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	var pid, folder string
	wait(t, "it has left a process behind", func() bool {
		text, err := os.ReadFile(path)
		a, b, ok := bytes.Cut(text, []byte(" "))
		pid, folder = string(a), string(b)
		return err == nil && ok
	})
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	wait(t, "that process has ended", func() bool {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || bytes.Contains(state, []byte(") Z "))
	})
	wait(t, "the folder is gone", func() bool { _, err := os.Stat(folder); return os.IsNotExist(err) })
}

func wait(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not so", what)
		}
	}
}
