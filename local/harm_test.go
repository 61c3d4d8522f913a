//go:build linux

package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/show"
)

// alive is a machine with two GPUs that schedules until the test ends.
func alive(t testing.TB, change ...func(*Options)) *Machine {
	t.Helper()
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}})
	for _, f := range change {
		f(&opt)
	}
	return lasting(t, opt)
}

// lasting is a machine that schedules until the test ends, and leaves nothing running.
func lasting(t testing.TB, opt Options) *Machine {
	t.Helper()
	m, end := running(t, opt)
	t.Cleanup(func() {
		end()
		m.jobs = nil
		if err := m.sweep(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// submit submits a shell script that holds a GPU.
func submit(t *testing.T, m *Machine, script string, change ...func(*ask.Submission)) int {
	t.Helper()
	s := &ask.Submission{Command: []string{"sh", "-c", script}, Dir: t.TempDir(), Output: "/dev/null", GPUs: 1}
	for _, f := range change {
		f(s)
	}
	ids, err := m.Submit(t.Context(), self(t), s, "")
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

// until waits until a job is in a state.
func until(t *testing.T, m *Machine, id int, state string) show.Job {
	t.Helper()
	var j show.Job
	for range 12_000 { // two minutes
		var err error
		if j, err = m.Job(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if j.State == state {
			return j
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("job %d is %s (%s), not %s", id, j.State, j.Reason, state)
	return j
}

// left lists the processes of a job's first task that are there.
func left(m *Machine, id, run int) []int {
	return shim.Strays(m.keeper.Mark(cluster.JobID(id), run, 0))
}

// When a job is over, or told to be, nothing of it is left on its devices,
// whatever it did to get away.
func TestNobodyGetsAway(t *testing.T) {
	m := alive(t)
	for name, script := range map[string]string{
		"setsid":      "setsid sleep 1000 & sleep 0.1",
		"double fork": "(setsid sh -c 'sleep 1000 & sleep 1000 &' &) ; sleep 0.1",
		"nohup":       "nohup sleep 1000 >/dev/null 2>&1 & sleep 0.1",
		"orphans":     "(trap '' TERM HUP INT; while :; do sleep 0.01; done) & sleep 0.1",
		"clean":       "env -i setsid sh -c 'sleep 1000 & sleep 1000' & sleep 0.1",
	} {
		t.Run(name, func(t *testing.T) {
			id := submit(t, m, script)
			until(t, m, id, show.StateCompleted)
			if pids := left(m, id, 1); len(pids) > 0 {
				t.Errorf("processes %v are left", pids)
			}
		})
	}
	stubborn := submit(t, m,
		"trap '' TERM USR1; setsid sh -c \"trap '' TERM; while :; do sleep 0.01; done\" & while :; do sleep 0.01; done")
	until(t, m, stubborn, show.StateRunning)
	if err := m.Act(t.Context(), stubborn, "cancel", ""); err != nil {
		t.Fatal(err)
	}
	until(t, m, stubborn, show.StateCancelled)
	if pids := left(m, stubborn, 1); len(pids) > 0 {
		t.Errorf("of a cancelled job that ignores SIGTERM processes %v are left", pids)
	}
}

// A shim that is killed takes its task with it, and the job runs again.
func TestShimKilled(t *testing.T) {
	m := alive(t)
	id := submit(t, m, `[ "$MUSTER_RESTART_COUNT" = 1 ] && exit 0; setsid sleep 1000 & sleep 1000`)
	until(t, m, id, show.StateRunning)
	s, err := shim.ReadState(m.keeper.TaskDir(cluster.JobID(id), 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(s.Shim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j := until(t, m, id, show.StateCompleted)
	if pids := left(m, id, 1); len(pids) > 0 || j.Restarts != 1 {
		t.Errorf("%d restarts; processes %v of the first run are left", j.Restarts, pids)
	}
}

// A machine on which nothing can be started fails a job after three attempts
// and says why; one that recovers meanwhile runs it.
func TestCannotStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shim")
	var recovers func()
	m := alive(t, func(o *Options) {
		exe := o.Shim[0]
		o.Shim = []string{path}
		recovers = func() {
			if err := os.WriteFile(path, []byte("#!/bin/sh\nexec "+exe+" "+shimWord+" \"$@\"\n"), 0o700); err != nil {
				t.Error(err)
			}
		}
	})
	id := submit(t, m, "true")
	j := until(t, m, id, show.StateFailed)
	if !strings.Contains(j.Reason, path+": no such file") {
		t.Errorf("the job failed because %q", j.Reason)
	}
	id = submit(t, m, "exit 0")
	wait(t, "a second attempt fails", func() bool { // the third comes two seconds later
		m.mu.RLock()
		defer m.mu.RUnlock()
		j := m.jobs[cluster.JobID(id)]
		return j == nil || j.Info.Run >= 2
	})
	recovers()
	until(t, m, id, show.StateCompleted)
}

// The wall clock may be set as anybody likes: jobs neither time out at once nor
// run for ever.
func TestClockIsSet(t *testing.T) {
	for name, off := range map[string]time.Duration{"forward": 24 * time.Hour, "back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			m := alive(t)
			const most = 5 * time.Second
			limit := func(s *ask.Submission) { s.Limit = ask.Duration(most) }
			begin, end := time.Now(), filepath.Join(t.TempDir(), "end")
			short := submit(t, m, "until [ -e "+end+" ]; do sleep 0.2; done", limit)
			long := submit(t, m, "sleep 1000", limit)
			until(t, m, short, show.StateRunning)
			until(t, m, long, show.StateRunning)
			m.clock.Skew(off)
			m.event(engine.Event{Type: engine.Tick})
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			until(t, m, short, show.StateCompleted)
			until(t, m, long, show.StateTimeout)
			if took := time.Since(begin); took < most*10/11 { // a clock that was set forward goes a tenth faster
				t.Errorf("the limit of %v struck after %v", most, took)
			}
		})
	}
}
