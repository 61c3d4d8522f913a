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

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/evidence"
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

// A folder that is there and is somebody else's is not given to a job's user, and the job says so.
func TestFolderOfAnother(t *testing.T) {
	onlyRoot(t)
	for _, name := range []string{"checkpoint", "1/0"} {
		m := alive(t)
		path := filepath.Join(m.opt.Dir, "jobs", "1", name)
		if err := errors.Join(evidence.Folder(filepath.Join(m.opt.Dir, "jobs"), m.store.ID(), 1),
			os.MkdirAll(path, 0o700), os.Chown(path, stranger, -1)); err != nil {
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
		fi, err := os.Lstat(path)
		if err != nil || evidence.OwnerOf(fi) != stranger {
			t.Errorf("%s was given away: %v, %v", path, fi, err)
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
		id := submit(t, m, "echo $$ > pid.new; mv pid.new pid; exec sleep 1000", func(s *ask.Submission) {
			s.Dir = dir
		})
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
		if got, rank, ok := m.keeper.TaskOf(pid); !ok || got != cluster.JobID(id) || rank != 0 {
			t.Errorf("the job's process is of job %d, task %d, %v", got, rank, ok)
		}
		c := exec.Command("setpriv", "--reuid", strconv.Itoa(stranger), "--clear-groups", "sh", "-c",
			"echo; exec sleep 1000")
		c.Env = append(os.Environ(), m.keeper.Mark(cluster.JobID(id), 1, 0))
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
		if got, _, ok := m.keeper.TaskOf(c.Process.Pid); ok {
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

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
