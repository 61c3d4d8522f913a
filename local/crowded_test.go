//go:build linux

package local

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// exhaust takes all file descriptors that this process may have, and returns what gives some of them back.
func exhaust(t *testing.T) (release func(n int)) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 400, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var fds []int
	release = func(n int) {
		for ; n > 0 && len(fds) > 0; n-- {
			_ = unix.Close(fds[0])
			fds = fds[1:]
		}
	}
	t.Cleanup(func() {
		release(len(fds))
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return release
		}
		fds = append(fds, fd)
	}
}

// Where others have taken all file descriptors, jobs start with those that are kept back for that.
func TestReserve(t *testing.T) {
	m := alive(t)
	until(t, m, submit(t, m, "true"), show.StateCompleted) // what is opened once is open
	exhaust(t)
	for range 3 {
		id := submit(t, m, "true")
		if j := until(t, m, id, show.StateCompleted); j.Restarts != 0 {
			t.Errorf("job %d was started %d times more", id, j.Restarts)
		}
	}
}

// Where those are gone as well, a job waits: it is no fault of its own.
func TestCrowded(t *testing.T) {
	m := alive(t)
	until(t, m, submit(t, m, "true"), show.StateCompleted)
	m.keeper.Reserve.End()
	release := exhaust(t)
	id := submit(t, m, "true")
	tries := 0
	// the third would be the last of a job that cannot be started
	for end := time.Now().Add(time.Minute); tries < 4; time.Sleep(10 * time.Millisecond) {
		m.mu.RLock()
		j := m.jobs[cluster.JobID(id)]
		if j != nil {
			tries = j.Info.Run
		}
		m.mu.RUnlock()
		if j == nil || time.Now().After(end) {
			release(400)
			v, err := m.Job(context.Background(), id)
			t.Fatalf("%d tries, then %s: %s (%v)", tries, v.State, v.Reason, err)
		}
	}
	wait(t, "it says why it waits", func() bool { // between two attempts
		v, err := m.Job(t.Context(), id)
		return err == nil && strings.Contains(v.Reason, "too many open files")
	})
	release(100)
	until(t, m, id, show.StateCompleted)
}
