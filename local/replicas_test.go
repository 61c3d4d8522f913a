//go:build linux

package local

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// A daemon that begins while a job makes room for a replica knows since when the replica waits for it.
func TestReturnOverRestart(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 1}}})
	opt.Rules.Stop[2].Grace, opt.KillWait = 3*time.Second, 3*time.Second
	m, end := running(t, opt)
	leaves := submit(t, m, "trap '' TERM; while :; do sleep 0.2; done",
		func(s *ask.Submission) { s.Tier = "best-effort" })
	until(t, m, leaves, show.StateRunning)
	replica := submit(t, m, "sleep 1000", func(s *ask.Submission) {
		s.Tier, s.Replica = "critical", &ask.Replica{Service: "vision", Within: 20 * time.Second}
	})
	until(t, m, leaves, show.StateStopping)
	asked, before := time.Now(), until(t, m, replica, show.StatePending)
	if before.Loan == nil || !before.Loan.Back.IsZero() {
		t.Errorf("it waits for %+v", before.Loan)
	}
	end()
	m = lasting(t, opt)
	loan := until(t, m, replica, show.StateRunning).Loan
	if loan == nil || len(loan.Jobs) != 1 || loan.Jobs[0] != leaves || loan.Asked.After(asked) ||
		loan.Back.Before(asked) {
		t.Errorf("it got back %+v", loan)
	}
}

// What a service lends, a best-effort job may have and a standard one may not, which is told why; the next daemon knows
// it. A replica has it back.
func TestLend(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}})
	m, end := running(t, opt)
	replica := func(s *ask.Submission) {
		s.Tier, s.Replica = "critical", &ask.Replica{Service: "vision", Within: 20 * time.Second}
	}
	next := &ask.Submission{Command: []string{"true"}, Dir: t.TempDir(), GPUs: 1}
	replica(next)
	if err := m.Lend([]Lender{{Owner: self(t), Replica: next, Replicas: 1}}); err != nil {
		t.Fatal(err)
	}
	const forever = "sleep 1000"
	first, second := submit(t, m, forever), submit(t, m, forever)
	until(t, m, first, show.StateRunning)
	lent := submit(t, m, forever, func(s *ask.Submission) { s.Tier = "best-effort" })
	until(t, m, lent, show.StateRunning)
	end()
	m = lasting(t, opt)
	until(t, m, second, show.StatePending)
	why, err := m.Why(t.Context(), second, nil)
	if text := strings.Join(why.Blockers, "; "); err != nil || !strings.Contains(text,
		"service vision lends 1 GPU of T4-16GB, which only best-effort and elastic jobs may have") {
		t.Errorf("%v: %s", err, text)
	}
	until(t, m, submit(t, m, forever, replica), show.StateRunning)
	if err := m.Act(t.Context(), first, "cancel", "test"); err != nil {
		t.Fatal(err)
	}
	until(t, m, second, show.StateRunning) // all replicas run: nothing is lent
}
