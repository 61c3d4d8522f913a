//go:build linux

package local

import (
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
	leaves := submit(t, m, "trap '' TERM; while :; do sleep 0.05; done",
		func(s *ask.Submission) { s.Tier = "best-effort" })
	until(t, m, leaves, show.StateRunning)
	replica := submit(t, m, "sleep 100", func(s *ask.Submission) {
		s.Tier, s.Replica = "critical", &ask.Replica{Service: "vision", Within: 20 * time.Second}
	})
	until(t, m, leaves, show.StateStopping)
	asked, before := time.Now(), until(t, m, replica, show.StatePending)
	if before.Loan == nil || !before.Loan.Back.IsZero() {
		t.Errorf("it waits for %+v", before.Loan)
	}
	end()
	m, end = running(t, opt)
	t.Cleanup(func() {
		end()
		m.jobs = nil
		if err := m.sweep(); err != nil {
			t.Error(err)
		}
	})
	loan := until(t, m, replica, show.StateRunning).Loan
	if loan == nil || len(loan.Jobs) != 1 || loan.Jobs[0] != leaves || loan.Asked.After(asked) ||
		loan.Back.Before(asked) {
		t.Errorf("it got back %+v", loan)
	}
}
