//go:build linux

package share

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/shim"
)

// t0 is when the tests begin.
var t0 = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// uuid is the GPU on which the tests' shares are.
const uuid = "GPU-b"

// machine plays the machine: jobs with shares of the GPU, by number, and their users.
type machine struct {
	opt       Options
	running   context.Context
	mps       *MPS
	jobs      map[cluster.JobID]int
	exclusive bool
}

func (m *machine) Sharers(string) []cluster.JobID { return slices.Sorted(maps.Keys(m.jobs)) }

func (m *machine) UserOf(id cluster.JobID) int {
	if uid, ok := m.jobs[id]; ok {
		return uid
	}
	return -1
}

func (m *machine) Exclusive(_ string, on bool) error {
	m.exclusive = on
	return nil
}

// find begins again, as the next service does.
func (m *machine) find(t *testing.T) {
	t.Helper()
	var err error
	if m.mps, err = Find(m.running, m.opt); err != nil {
		t.Fatal(err)
	}
}

// shared is a machine whose job 7 has a share of the GPU; MPS' control program is a script.
func shared(t *testing.T, now func() time.Time, text string) *machine {
	t.Helper()
	m := &machine{running: t.Context(), jobs: map[cluster.JobID]int{7: 0}}
	m.opt = Options{Dir: t.TempDir(), Program: filepath.Join(t.TempDir(), "control"), Host: m, Now: now,
		Log: slog.Default()}
	if err := os.WriteFile(m.opt.Program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	m.find(t)
	if err := m.mps.Need(uuid); err != nil {
		t.Fatal(err)
	}
	return m
}

// others are the jobs whose fault it may be that a job failed then, as a text.
func (m *machine) others(id cluster.JobID, failed time.Time) string {
	return Numbers(m.mps.Fault(uuid, id, failed))
}

// playedControl is a control program whose daemon runs while its file is there.
const playedControl = "#!/bin/sh\n[ \"$1\" = -d ] && { : >$CUDA_MPS_PIPE_DIRECTORY/up; exit; }\n" +
	"[ -e $CUDA_MPS_PIPE_DIRECTORY/up ] || exit 1\nread c; [ $c = quit ] && rm $CUDA_MPS_PIPE_DIRECTORY/up; exit 0\n"

// up reports whether its daemon runs.
func (m *machine) up() bool {
	_, err := os.Stat(filepath.Join(m.opt.Dir, uuid, "pipe", "up"))
	return err == nil
}

// A control daemon stays for a while after the last share has left its GPU, and is
// told to quit then; its GPU is no longer MPS' alone.
func TestMPSLingers(t *testing.T) {
	now := t0
	m := shared(t, func() time.Time { return now }, playedControl)
	if !m.exclusive {
		t.Error("the GPU is not MPS' alone")
	}
	d := m.mps.of(uuid)
	for _, step := range []struct {
		after time.Duration
		held  bool
		up    bool
	}{{0, true, true}, {time.Hour, true, true}, {time.Second, false, true}, {linger - 1, false, true},
		{1, false, false}} {
		now = now.Add(step.after)
		if !step.held {
			delete(m.jobs, 7)
		}
		if m.mps.tendOne(d); m.up() != step.up {
			t.Errorf("after another %v, a share there: %v: it runs: %v", step.after, step.held, m.up())
		}
	}
	if m.exclusive || len(m.mps.all()) != 0 {
		t.Error("the GPU is not given back")
	}
	if err := os.Remove(m.opt.Program); err != nil {
		t.Fatal(err)
	}
	if err := m.mps.Need(uuid); err == nil {
		t.Error("a control daemon that cannot be started is no error")
	}
}

// When the service ends, so do the control daemons of GPUs without shares, as nobody else would end them. The others go
// on, as the jobs do.
func TestMPSEndsWithService(t *testing.T) {
	for _, held := range []bool{true, false} {
		m := shared(t, time.Now, playedControl)
		if !held {
			delete(m.jobs, 7)
		}
		ends, end := context.WithCancel(t.Context())
		m.mps.running = ends
		end()
		m.mps.Tend(time.Hour)
		if m.up() != held || m.exclusive != held {
			t.Errorf("a share is there: %v: it runs: %v, MPS' alone: %v", held, m.up(), m.exclusive)
		}
	}
}

// NVIDIA's MPS documentation: a client may have less than its share, by its own environment, not
// more; the last of several counts, as in the environment itself.
func TestMPSThreads(t *testing.T) {
	for _, c := range []struct {
		share int64
		own   string
		want  string
	}{
		{500, "", "50"}, {500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80", "50"},
		{500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "30"},
		{100, "", "10"}, {333, "", "33"}, {5, "", "1"}, {500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=much", "50"},
		{500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=0", "50"},
		{500, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40", "40"},
		{5, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=7", "1"},
	} {
		if got := threads(c.share, strings.Fields(c.own)); got != c.want {
			t.Errorf("a share of %d, %q: %s, want %s", c.share, c.own, got, c.want)
		}
	}
}

// playedServers is a control program that answers with a file, once it was started.
const playedServers = "#!/bin/sh\n[ \"$1\" = -d ] || [ -d $CUDA_MPS_PIPE_DIRECTORY ] && cat "

// A job that fails when its GPU's server ends, while others are on it, too, may not be the
// cause; one that fails at another time is, and so is one whose server ended for another user's.
// A server may end while nobody answers, or while the service is down: then it did so at some
// time in between.
func TestFault(t *testing.T) {
	now := t0
	list := filepath.Join(t.TempDir(), "servers")
	write(t, list, "\n")
	m := shared(t, func() time.Time { return now }, playedServers+list+"\n")
	for _, c := range []struct {
		what   string
		users  []int         // of jobs 7, 8, 9
		of     int           // the server's user, played: this one is perhaps root
		failed time.Duration // job 7 did, after the server was seen last
		late   time.Duration // it was seen that it is gone
		down   bool          // ... by the next service
		want   string
	}{
		{what: "at the fault", users: []int{5, 5}, of: 5, want: "8"},
		{what: "soon after it", users: []int{5, 5, 5}, of: 5, failed: 5 * time.Second, want: "8, 9"},
		{what: "before it was noticed", users: []int{5, 5}, of: 5, failed: -2 * time.Second, want: "8"},
		{what: "long after it", users: []int{5, 5}, of: 5, failed: 16 * time.Second},
		{what: "long before it", users: []int{5, 5}, of: 5, failed: -time.Minute},
		{what: "alone", users: []int{5}, of: 5},
		{what: "the server was another user's", users: []int{5, 5}, of: 6},
		{what: "whose server it was is not known", users: []int{5, 5}, want: "8"},
		{what: "the answer was late", users: []int{5, 5}, of: 5, failed: time.Second, late: answersWithin, want: "8"},
		{what: "nobody answered, and it was not the server", users: []int{5, 5}, of: 5, failed: -time.Minute,
			late: answersWithin},
		{what: "the service was down", users: []int{5, 5}, of: 5, failed: 20 * time.Minute, late: time.Hour, down: true,
			want: "8"},
		{what: "before the service was down", users: []int{5, 5}, of: 5, failed: -time.Minute, late: time.Hour,
			down: true},
		{what: "the service was down, and it was alone", users: []int{5}, of: 5, failed: 20 * time.Minute,
			late: time.Hour, down: true},
	} {
		clear(m.jobs)
		now = t0.Add(time.Hour)
		for i, uid := range c.users {
			m.jobs[cluster.JobID(7+i)] = uid
		}
		d, process := m.mps.of(uuid), served(t)
		d.known = known{At: now, Servers: []server{{PID: process.Pid, UID: c.of, Birth: shim.Birth(process.Pid)}}}
		write(t, list, fmt.Sprintln(process.Pid))
		if err := m.mps.checkServers(d); err != nil {
			t.Fatal(err)
		}
		end(t, process)
		write(t, list, "1\n")
		if now = now.Add(c.late); c.down {
			m.find(t)
			m.mps.Missed()
		} else {
			_ = m.mps.checkServers(d)
		}
		now = now.Add(max(0, c.failed))
		if got := m.others(7, t0.Add(time.Hour+c.failed)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	if v := m.mps.serverOf(&control{}, os.Getpid()); v.UID != os.Getuid() {
		t.Errorf("this process is user %d's", v.UID)
	}
}

// A server whose control daemon does not answer, or was started again and does not know of it,
// has not ended; one that has is missed also if a later process has its number. What is known
// in a file that is not whole is not known.
func TestServerLives(t *testing.T) {
	list := filepath.Join(t.TempDir(), "servers")
	write(t, list, "\n")
	m := shared(t, func() time.Time { return t0 }, playedServers+list+"\n")
	d, process := m.mps.of(uuid), served(t)
	look := func(text string) {
		if write(t, list, text); text == "" {
			if err := os.Remove(list); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.mps.checkServers(d); (err != nil) != (text == "") {
			t.Error(err)
		}
	}
	look(fmt.Sprintln(process.Pid))
	for _, text := range []string{"", "\n", fmt.Sprintln(process.Pid)} {
		if look(text); len(d.known.Faults) != 0 || len(d.known.Servers) != 1 {
			t.Errorf("it lives and the control daemon says %q: %+v", text, d.known)
		}
	}
	d.known.Servers[0].Birth = 0 // it could not be seen
	for range 3 {
		if look(""); len(d.known.Faults) != 0 || len(d.known.Servers) != 1 {
			t.Errorf("it lives, its birth was not seen, and nobody answers: %+v", d.known)
		}
	}
	look(fmt.Sprintln(process.Pid))
	d.known.Servers[0].Birth = shim.Birth(process.Pid) - 1 // now it is a process that had the number before
	if look(fmt.Sprintln(process.Pid)); len(d.known.Faults) == 0 || len(d.known.Servers) != 1 {
		t.Errorf("another process has its number: %+v", d.known)
	}
	if m.find(t); len(m.mps.of(uuid).known.Faults) == 0 || len(m.mps.of(uuid).known.Servers) != 1 {
		t.Errorf("the next service knows %+v", m.mps.of(uuid).known)
	}
	write(t, filepath.Join(d.dir, knownFile), "{\"at\":")
	if m.find(t); len(m.mps.of(uuid).known.Servers) != 0 {
		t.Errorf("from half a file the next service knows %+v", m.mps.of(uuid).known)
	}
	end(t, process)
}

// served is a process that plays a server.
func served(t *testing.T) *os.Process {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c.Process
}

func end(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
