//go:build linux

package local

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/show"
)

// stranger is the user number of somebody else.
const stranger = 54321

func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root makes files and groups of others")
	}
}

// Progress is read from a regular file of the job's user, and from nothing that may stand in its place.
func TestProgressFile(t *testing.T) {
	onlyRoot(t)
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
		if text := p.tail(&task{dir: dir, uid: stranger}); (len(text) > 0) != (name == "") {
			t.Errorf("%q is read of %s", text, name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A folder that is there and is somebody else's is not given to a job's user, and the job says so.
func TestFolderOfAnother(t *testing.T) {
	onlyRoot(t)
	for _, name := range []string{"checkpoint", "1/0"} {
		m := alive(t)
		path := filepath.Join(m.opt.Dir, "jobs", "1", name)
		if err := errors.Join(evidence.Folder(filepath.Join(m.opt.Dir, "jobs"), m.store.ID(), 1), os.MkdirAll(path, 0o700), os.Chown(path, stranger, -1)); err != nil {
			t.Fatal(err)
		}
		id := submit(t, m, "true")
		if name == "checkpoint" { // a second attempt has a folder of its own for its tasks
			j := until(t, m, id, show.StateFailed)
			if !strings.Contains(j.Reason, path) {
				t.Errorf("it failed because %q", j.Reason)
			}
		} else {
			until(t, m, id, show.StateCompleted)
		}
		if got := folderOwner(path); got != stranger {
			t.Errorf("%s was given to user %d", path, got)
		}
	}
}

// A process belongs to the job in whose control group it is, whatever its environment says.
func TestWhose(t *testing.T) {
	onlyRoot(t)
	groups := cgroup.Open()
	for _, grouped := range []bool{true, false} {
		m := alive(t, func(o *Options) {
			if grouped {
				o.Groups = groups
			}
		})
		dir := t.TempDir()
		id := submit(t, m, "echo $$ > pid.new; mv pid.new pid; exec sleep 1000", func(s *ask.Submission) { s.Dir = dir })
		pid := 0
		wait(t, "the job says who it is", func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			return err == nil && pid > 0
		})
		wait(t, "it is sleep: while a process becomes another program, its environment cannot be read", func() bool {
			name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
			return err == nil && string(name) == "sleep\n"
		})
		if got, rank, ok := m.taskOf(pid); !ok || got != cluster.JobID(id) || rank != 0 {
			t.Errorf("the job's process is of job %d, task %d, %v", got, rank, ok)
		}
		c := exec.Command("setpriv", "--reuid", strconv.Itoa(stranger), "--clear-groups", "sh", "-c", "echo; exec sleep 1000")
		c.Env = append(os.Environ(), m.mark(cluster.JobID(id), 1, 0))
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if got, _, ok := m.taskOf(c.Process.Pid); ok {
			t.Errorf("groups %v: another user's process with the job's mark counts as job %d's", grouped, got)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		if err := m.Act(t.Context(), id, "cancel", ""); err != nil {
			t.Fatal(err)
		}
		until(t, m, id, show.StateCancelled)
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
	wait(t, want, func() bool { return describeLeft([]int{c.Process.Pid}) == want })
	if got := describeLeft([]int{1 << 22}); !strings.Contains(got, "state gone") {
		t.Errorf("of a process that is not there: %s", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
