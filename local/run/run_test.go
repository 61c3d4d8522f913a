//go:build linux

package run

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/shim"
)

// Before a job ends its last line may be incomplete; when it has ended, that line counts without its end.
func TestLastLine(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, shim.ProgressFile), `{"step": 7}`)
	p := reports{}
	if news, _ := p.read([]*Task{{Dir: dir}}, false); news != nil {
		t.Errorf("half a line is read: %+v", news)
	}
	if news, _ := p.read([]*Task{{Dir: dir}}, true); news == nil || news.Step != 7 {
		t.Errorf("%+v", news)
	}
}

// Progress is read from a regular file of the job's user, and from nothing that may stand in its place.
func TestProgressFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root makes files of others")
	}
	const stranger = 54321 // the user number of somebody else
	dir := t.TempDir()
	path := filepath.Join(dir, shim.ProgressFile)
	elsewhere := filepath.Join(t.TempDir(), "file")
	write(t, elsewhere, `{"step": 1}`+"\n")
	if err := os.Chown(elsewhere, stranger, -1); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func() error{
		"":                func() error { write(t, path, `{"step": 1}`+"\n"); return os.Chown(path, stranger, -1) },
		"a link":          func() error { return os.Symlink(elsewhere, path) },
		"a fifo":          func() error { return errors.Join(unix.Mkfifo(path, 0o666), os.Chown(path, stranger, -1)) },
		"a folder":        func() error { return errors.Join(os.Mkdir(path, 0o755), os.Chown(path, stranger, -1)) },
		"somebody else's": func() error { write(t, path, `{"step": 1}`+"\n"); return nil },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		p := &reports{at: map[int]int64{}}
		if text := p.tail(&Task{Dir: dir, UID: stranger}); (len(text) > 0) != (name == "") {
			t.Errorf("%q is read of %s", text, name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// What holds up a job's devices is said by name and state.
func TestDescribeLeft(t *testing.T) {
	c := exec.Command("sh", "-c", "echo; kill -STOP $$")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	want := "process " + strconv.Itoa(c.Process.Pid) + ` ("sh", state T)`
	for try := 0; describeLeft([]int{c.Process.Pid}) != want; try++ {
		if try > 1000 {
			t.Fatalf("it is %s", describeLeft([]int{c.Process.Pid}))
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := describeLeft([]int{1 << 22}); !strings.Contains(got, "state gone") {
		t.Errorf("of a process that is not there: %s", got)
	}
}

// Numbers of a task that stand in names are read back; names of another state's tasks are not.
func TestNames(t *testing.T) {
	p, other := Places{Dir: "/var/lib/a"}, Places{Dir: "/var/lib/b"}
	id, run, rank, ok := p.parseMark(strings.TrimPrefix(p.Mark(12, 3, 4), markName))
	if !ok || id != 12 || run != 3 || rank != 4 {
		t.Errorf("%d, %d, %d, %v", id, run, rank, ok)
	}
	if _, _, _, ok := other.parseMark(strings.TrimPrefix(p.Mark(12, 3, 4), markName)); ok {
		t.Error("a task of another state counts")
	}
	id, run, rank, ok = parseLock(p.TaskDir(12, 3, 4) + lockSuffix)
	if !ok || id != 12 || run != 3 || rank != 4 {
		t.Errorf("%d, %d, %d, %v", id, run, rank, ok)
	}
	for _, name := range []string{"", "1.2.3", "a.2.3." + p.State(), "1.2.3.4." + p.State()} {
		if _, _, _, ok := p.parseMark(name); ok {
			t.Errorf("%q is a mark", name)
		}
	}
	if _, _, _, ok := parseLock("jobs/x/1/2.lock"); ok {
		t.Error("x is a number")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
