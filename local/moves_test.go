//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Two of four GPUs are free, one on each of two NVLink islands, and a job needs two on
// one: a real process is moved to the other island when an operator says so, also when the rules
// change meanwhile, and the journal replays it.
func TestMoves(t *testing.T) {
	m := alive(t, func(o *Options) {
		o.Rules.Spec.Nodes = []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 4, Islands: 2}}
		o.Rules.Stop = &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Checkpoint, Grace: time.Minute}, {How: engine.Kill}}
		o.GPUs = nil
		for i := range 4 {
			o.GPUs = append(o.GPUs, api.GPU{Index: i, UUID: fmt.Sprintf("GPU-simulated-%d", i), Simulated: true, Healthy: true})
		}
	})
	long := func(s *api.Submission) { s.GPUs, s.Estimate = 1, api.Duration(10*time.Hour) }
	var ids []int
	leave := filepath.Join(t.TempDir(), "leave") // who is told to stop does when it is there
	for range 4 {
		id := submit(t, m, "trap 'while [ ! -e "+leave+" ]; do sleep 0.05; done; exit 143' TERM; sleep 1000 & wait", long)
		until(t, m, id, api.StateRunning)
		ids = append(ids, id)
	}
	for _, id := range []int{ids[1], ids[3]} { // one on each island
		if err := m.Act(t.Context(), id, "cancel"); err != nil {
			t.Fatal(err)
		}
	}
	mark(t, leave)
	for _, id := range []int{ids[1], ids[3]} {
		until(t, m, id, api.StateCancelled)
	}
	if err := os.Remove(leave); err != nil {
		t.Fatal(err)
	}
	gang := submit(t, m, "sleep 1000", func(s *api.Submission) {
		s.GPUs, s.Level, s.Required, s.Estimate = 2, "nvlink", true, api.Duration(time.Hour)
	})
	if _, err := m.MakeMoves(t.Context(), &api.MovesRequest{Job: gang}); err == nil || !strings.Contains(err.Error(), "off") {
		t.Fatalf("moves that the configuration does not allow: %v", err)
	}
	s := m.settings()
	s.Defrag = &engine.Defrag{}
	if _, err := m.Reconfigure(t.Context(), s, "ann", "defragment: off -> plan"); err != nil {
		t.Fatal(err)
	}
	list, err := m.PlanMoves(&api.MovesRequest{})
	if err != nil || len(list) != 1 || !list[0].Worth || list[0].Made || len(list[0].Moves) != 1 || list[0].Job != gang {
		t.Fatalf("%+v, %v", list, err)
	}
	mover := list[0].Moves[0].Job
	if w, err := m.Why(t.Context(), gang, true); err != nil || !strings.Contains(w.Moves, fmt.Sprintf("job %d (1 GPU) from n1:", mover)) {
		t.Errorf("why: %q, %v", w.Moves, err)
	}
	if _, err := m.PlanMoves(&api.MovesRequest{Job: 99}); err == nil {
		t.Error("moves for a job that there is not")
	}
	until(t, m, gang, api.StatePending) // a question changes nothing
	if list, err = m.MakeMoves(t.Context(), &api.MovesRequest{Job: gang}); err != nil || len(list) != 1 || !list[0].Made {
		t.Fatalf("%+v, %v", list, err)
	}
	s = m.settings() // the engine begins anew from what is stored, as when a daemon dies
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
	until(t, m, gang, api.StateRunning)
	if j := until(t, m, mover, api.StateRunning); j.Restarts != 1 {
		t.Errorf("the moved job: %+v", j)
	}
	cancelAll(t, m, ids[0], ids[2], gang)
	replaysAll(t, m)
}

// mark makes a file.
func mark(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
