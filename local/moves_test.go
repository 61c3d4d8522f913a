//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/show"
)

// Two of four GPUs are free, one on each of two NVLink islands, and a job needs two on
// one: a real process is moved to the other island when an operator says so, also when the rules
// change meanwhile, and the journal replays it.
func TestMoves(t *testing.T) {
	m := alive(t, func(o *Options) {
		o.Rules.Spec.Nodes = []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 4, Islands: 2}}
		o.Rules.Stop = &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Checkpoint, Grace: time.Minute},
			{How: engine.Kill}}
		o.GPUs = nil
		for i := range 4 {
			o.GPUs = append(o.GPUs,
				show.GPU{Index: i, UUID: fmt.Sprintf("GPU-simulated-%d", i), Simulated: true, Healthy: true})
		}
	})
	long := func(s *ask.Submission) { s.GPUs, s.Estimate = 1, ask.Duration(10*time.Hour) }
	var ids []int
	leave := filepath.Join(t.TempDir(), "leave") // who is told to stop does when it is there
	for range 4 {
		id := submit(t, m, "trap 'while [ ! -e "+leave+" ]; do sleep 0.2; done; exit 143' TERM; sleep 1000 & wait",
			long)
		until(t, m, id, show.StateRunning)
		ids = append(ids, id)
	}
	for _, id := range []int{ids[1], ids[3]} { // one on each island
		if err := m.Act(t.Context(), id, "cancel", ""); err != nil {
			t.Fatal(err)
		}
	}
	mark(t, leave)
	for _, id := range []int{ids[1], ids[3]} {
		until(t, m, id, show.StateCancelled)
	}
	if err := os.Remove(leave); err != nil {
		t.Fatal(err)
	}
	gang := submit(t, m, "sleep 1000", func(s *ask.Submission) {
		s.GPUs, s.Level, s.Required, s.Estimate = 2, "nvlink", true, ask.Duration(time.Hour)
	})
	if _, err := m.MakeMoves(t.Context(), &ask.MovesRequest{Job: gang}); err == nil ||
		!strings.Contains(err.Error(), "off") {
		t.Fatalf("moves that the configuration does not allow: %v", err)
	}
	s := m.settings()
	s.Defrag = &engine.Defrag{Protected: &cluster.Weekly{Zone: "UTC", Hours: []cluster.Hours{aroundNow()}}}
	if _, err := m.Reconfigure(t.Context(), s, "ann", "defragment: off -> plan, protected now"); err != nil {
		t.Fatal(err)
	}
	if list, err := m.PlanMoves(&ask.MovesRequest{}); err != nil || len(list) != 1 || list[0].Worth ||
		len(list[0].Moves) != 1 || !strings.HasPrefix(list[0].Text, "protected until ") {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := m.MakeMoves(t.Context(), &ask.MovesRequest{Job: gang}); !errors.Is(err, driver.ErrProtected) ||
		!strings.Contains(err.Error(), "no job is moved now: protected until ") {
		t.Fatalf("moves in a protected time: %v", err)
	}
	s.Defrag = &engine.Defrag{}
	if _, err := m.Reconfigure(t.Context(), s, "ann", "defragment: never protected"); err != nil {
		t.Fatal(err)
	}
	list, err := m.PlanMoves(&ask.MovesRequest{})
	if err != nil || len(list) != 1 || !list[0].Worth || list[0].Made || len(list[0].Moves) != 1 ||
		list[0].Job != gang {
		t.Fatalf("%+v, %v", list, err)
	}
	mover := list[0].Moves[0].Job
	if w, err := m.Why(t.Context(), gang, &User{}); err != nil ||
		!strings.Contains(w.Moves, fmt.Sprintf("job %d (1 GPU) from n1:", mover)) {
		t.Errorf("why: %q, %v", w.Moves, err)
	}
	if _, err := m.PlanMoves(&ask.MovesRequest{Job: 99}); err == nil {
		t.Error("moves for a job that there is not")
	}
	until(t, m, gang, show.StatePending) // a question changes nothing
	if list, err = m.MakeMoves(t.Context(), &ask.MovesRequest{Job: gang}); err != nil || len(list) != 1 ||
		!list[0].Made {
		t.Fatalf("%+v, %v", list, err)
	}
	s = m.settings() // the engine begins again from what is stored, as when a daemon dies
	s.MinRuntime = time.Second
	if _, err := m.Reconfigure(t.Context(), s, "ann", "min_runtime: 0s -> 1s"); err != nil {
		t.Fatal(err)
	}
	m.mu.RLock()
	if r := m.eng.Record(cluster.JobID(mover)); r.State != engine.Stopping || r.Dest == nil {
		t.Errorf("the job that moves is %v and goes to %+v", r.State, r.Dest)
	}
	m.mu.RUnlock()
	mark(t, leave)
	until(t, m, gang, show.StateRunning)
	if j := until(t, m, mover, show.StateRunning); j.Restarts != 1 {
		t.Errorf("the moved job: %+v", j)
	}
	cancelAll(t, m, ids[0], ids[2], gang)
	replaysAll(t, m)
}

// aroundNow are the hours from one before now, in UTC, to one after it.
func aroundNow() cluster.Hours {
	now := time.Now().UTC()
	hour := func(d time.Duration) time.Duration { return time.Duration(now.Add(d).Hour()) * time.Hour }
	return cluster.Hours{From: hour(-time.Hour), To: hour(2 * time.Hour)}
}

// mark makes a file.
func mark(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// On four NVLink islands of four GPUs one each is free, and a job needs four on one: one that
// has two leaves for where another was that goes elsewhere. It is gone first, and starts when the
// other's process has left, whatever happens meanwhile: the daemon ends and another goes on from what is stored, and
// the other job's process dies while it writes its checkpoint. No job is lost.
func TestMovesChain(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 16, Islands: 4}}})
	opt.Rules.Stop = &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Checkpoint, Grace: time.Minute},
		{How: engine.Kill}}
	opt.KillWait = time.Minute // a job that is told to leave does when its file is there, and not before
	opt.Rules.Defrag, opt.GPUs = &engine.Defrag{}, nil
	for i := range 16 {
		opt.GPUs = append(opt.GPUs,
			show.GPU{Index: i, UUID: fmt.Sprintf("GPU-simulated-%d", i), Simulated: true, Healthy: true})
	}
	m, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- m.Run(ctx) }()
	dir := t.TempDir()
	// job id leaves when it is told to and this is there
	leave := func(id int) string { return filepath.Join(dir, fmt.Sprintf("leave-%d", id)) }
	// is there when its job can be told to leave
	pidFile := func(id string) string { return filepath.Join(dir, "pid-"+id) }
	var ids, over []int
	for k := range 12 {
		id := submit(t, m, "trap 'while [ ! -e "+filepath.Join(dir, "leave-$MUSTER_JOB_ID")+
			" ]; do sleep 0.2; done; exit 143' TERM; echo $$ > "+pidFile("$MUSTER_JOB_ID")+"; sleep 1000 & wait",
			func(s *ask.Submission) {
				s.GPUs, s.Level, s.Required, s.Estimate = []int{2, 1, 1}[k%3], "nvlink", true,
					ask.Duration(10*time.Hour)
			})
		until(t, m, id, show.StateRunning)
		wait(t, "the job catches the signal", func() bool { return evidence.Exists(pidFile(strconv.Itoa(id))) })
		if ids = append(ids, id); k%3 == 2 {
			over = append(over, id)
		}
	}
	for _, id := range over {
		mark(t, leave(id))
	}
	cancelAll(t, m, over...)
	gang := submit(t, m, "sleep 1000", func(s *ask.Submission) {
		s.GPUs, s.Level, s.Required, s.Estimate = 4, "nvlink", true, ask.Duration(time.Hour)
	})
	list, err := m.MakeMoves(t.Context(), &ask.MovesRequest{Job: gang})
	if err != nil || len(list) != 1 || !list[0].Made || len(list[0].Moves) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	var behind *show.Move
	for i := range list[0].Moves {
		if x := &list[0].Moves[i]; len(x.After) > 0 {
			behind = x
		}
	}
	if behind == nil || behind.GPUs != 2 || len(behind.After) != 1 {
		t.Fatalf("no chain: %+v", list[0].Moves)
	}
	for i := range list[0].Moves { // all but the one that makes room leave
		if x := &list[0].Moves[i]; x.Job != behind.After[0] {
			mark(t, leave(x.Job))
		}
	}
	until(t, m, gang, show.StateRunning)
	end()
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	m = alive(t, func(o *Options) { *o = opt })
	m.mu.RLock()
	if r := m.eng.Record(cluster.JobID(behind.Job)); r.State != engine.Placed || r.Waits != 1 {
		t.Errorf("the job that waits is %v and waits for %d", r.State, r.Waits)
	}
	if r := m.eng.Record(cluster.JobID(behind.After[0])); r.State != engine.Stopping || r.Dest == nil {
		t.Errorf("the one that makes room is %v and goes to %+v", r.State, r.Dest)
	}
	m.mu.RUnlock()
	pid, err := os.ReadFile(pidFile(strconv.Itoa(behind.After[0])))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(pid))); err != nil || unix.Kill(n, unix.SIGKILL) != nil {
		t.Fatalf("process %q, %v", pid, err)
	}
	until(t, m, behind.Job, show.StateRunning)
	for _, x := range list[0].Moves {
		if j := until(t, m, x.Job, show.StateRunning); j.Restarts != 1 {
			t.Errorf("a moved job: %+v", j)
		}
	}
	for k, id := range ids {
		if k%3 != 2 {
			mark(t, leave(id))
			if j := until(t, m, id, show.StateRunning); j.Restarts > 1 {
				t.Errorf("%+v", j)
			}
		}
	}
	replaysAll(t, m)
}
