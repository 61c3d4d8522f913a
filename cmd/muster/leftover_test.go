//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	runs "github.com/muster-gpu/muster/local/run"
)

// Daemons, shims and tasks outlive the process that started them, as they should. So tests clean up behind
// them, and a process of its own does so where the tests cannot: when they are killed, or a test
// takes too long. It is told which folders there are, and ends when the tests have.

// reapWord makes the test binary that process.
const reapWord = "__reap"

// reaper is its standard input; nil: it could not be started.
var reaper = sync.OnceValue(func() *os.File {
	in, out, err := os.Pipe()
	if err != nil {
		return nil
	}
	c := exec.Command(os.Args[0], reapWord)
	c.Stdin = in
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true} // what is meant for the tests is not for it
	if err := c.Start(); err != nil {
		return nil
	}
	_ = in.Close()
	return out
})

// leaves notes a folder that is to be gone when the tests have ended.
func leaves(dir string) {
	if w := reaper(); w != nil {
		_, _ = w.WriteString(dir + "\n")
	}
}

// reap waits for the end of all that write to it, and removes the folders that are left,
// after what runs in them.
func reap() int {
	var dirs []string
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		dirs = append(dirs, in.Text())
	}
	dirs = slices.DeleteFunc(dirs, func(d string) bool { _, err := os.Stat(d); return errors.Is(err, fs.ErrNotExist) })
	killAbout(dirs...)
	for _, d := range dirs {
		_ = unix.Unmount(filepath.Join(d, "state"), unix.MNT_DETACH) // a small disk
		_ = os.RemoveAll(d)
	}
	return 0
}

// killAbout kills all processes that name one of the folders in their command or environment,
// until there are none.
func killAbout(dirs ...string) {
	for range 100 {
		found := false
		files, _ := filepath.Glob("/proc/[0-9]*")
		for _, proc := range files {
			pid, err := strconv.Atoi(filepath.Base(proc))
			if err != nil || pid == os.Getpid() {
				continue
			}
			command, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
			environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
			if slices.ContainsFunc(dirs, func(d string) bool { return names(command, d) || names(environ, d) }) {
				found = unix.Kill(pid, unix.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// removeGroups removes the control groups of tasks of a state. Nobody else does where a daemon was killed that does not
// come back, and thousands of them slow down what looks for one.
func removeGroups(state string) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, _ := filepath.Glob(filepath.Join(root, "muster", "*."+runs.Places{Dir: state}.State()))
		for _, g := range groups {
			_ = os.Remove(g)
		}
	}
}

// names reports whether a text has a path, or one below it.
func names(text []byte, path string) bool {
	for {
		_, rest, found := bytes.Cut(text, []byte(path))
		if !found {
			return false
		}
		if text = rest; len(rest) == 0 ||
			!strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", rune(rest[0])) {
			return true
		}
	}
}

// privateCache has the commands that tests run keep nothing in the user's own cache; Go
// programs are still built from there.
func privateCache() (dir string) {
	own, err := os.UserCacheDir()
	if err == nil && os.Getenv("GOCACHE") == "" {
		err = os.Setenv("GOCACHE", filepath.Join(own, "go-build"))
	}
	if err == nil {
		dir, err = os.MkdirTemp("", "muster-cache")
	}
	if err == nil {
		err = os.Setenv("XDG_CACHE_HOME", dir)
	}
	if err != nil {
		panic(err)
	}
	return dir
}

// What tests leave behind that were killed is ended and removed, and nothing else.
func TestReap(t *testing.T) {
	top := t.TempDir()
	dirs := []string{filepath.Join(top, "1"), filepath.Join(top, "12")}
	var ran []*exec.Cmd
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, env := range []string{"MUSTER_CHECKPOINT_DIR=" + filepath.Join(dir, "deep"), ""} {
			c := exec.Command("sh", "-c", "sleep 1000; :", filepath.Join(dir, "job"))
			if env != "" {
				c = exec.Command("sleep", "1000")
			}
			c.Env = append(os.Environ(), env)
			c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Kill(-c.Process.Pid, unix.SIGKILL) })
			ran = append(ran, c)
		}
	}
	c := exec.Command(os.Args[0], reapWord)
	c.Stdin = strings.NewReader(dirs[0] + "\n" + filepath.Join(top, "gone") + "\n")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, c := range ran {
		if i < 2 {
			if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("process %d: %v", i, err)
			}
		} else if err := unix.Kill(c.Process.Pid, 0); err != nil {
			t.Errorf("process %d, which is another's: %v", i, err)
		}
	}
	for i, dir := range dirs {
		if _, err := os.Stat(dir); (err == nil) != (i == 1) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// One tuner of a search has its lock, however many come and go, and no file is left of it.
func TestLockSearch(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("MUSTER_SOCKET", filepath.Join(cache, "s"))
	var all sync.WaitGroup
	var mu sync.Mutex
	inside, most, got := 0, 0, 0
	for range 8 {
		all.Go(func() {
			for range 300 {
				unlock, err := lockSearch("x")
				if err != nil {
					continue
				}
				mu.Lock()
				inside, got = inside+1, got+1
				most = max(most, inside)
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				unlock()
			}
		})
	}
	all.Wait()
	if most != 1 || got == 0 {
		t.Errorf("%d had it at once, it was had %d times", most, got)
	}
	if left, err := os.ReadDir(filepath.Join(cache, "muster")); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
