package replicas_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/replicas"
)

func newJob(id int, within time.Duration) *record.Job {
	j := &record.Job{Info: &record.Info{}, Sub: &ask.Submission{}}
	j.ID = cluster.JobID(id)
	if within > 0 {
		j.Sub.Replica = &ask.Replica{Within: within}
	}
	return j
}

func seconds(n int) cluster.Time { return cluster.Time(time.Duration(n) * time.Second) }

// TestReturn: jobs leave in the time that a service grants, and how long it took is counted from when the first of them
// was asked, also if the daemon restarts in between; each wait is counted for itself.
func TestReturn(t *testing.T) {
	const minute = time.Minute
	var l replicas.Loans
	replica, saves, killed, other := newJob(9, 20*time.Second), newJob(1, 0), newJob(2, 0), newJob(3, 0)
	if d := l.Ask(saves, replica, engine.Checkpoint, minute, 4*time.Second, seconds(100)); d != 15*time.Second {
		t.Errorf("a job that saves has %v to leave", d)
	}
	if d := l.Ask(killed, replica, engine.Kill, minute, 4*time.Second, seconds(103)); d != 19*time.Second {
		t.Errorf("a job that is killed has %v to leave", d)
	}
	if d := l.Ask(other, newJob(10, 0), engine.Kill, minute, 4*time.Second, seconds(103)); d != minute {
		t.Errorf("a job that makes room for no replica has %v to leave", d)
	}
	if d := l.Grace(saves.ID, minute); d != 15*time.Second {
		t.Errorf("it has %v", d)
	}
	text, err := json.Marshal(replica.Info)
	if err != nil {
		t.Fatal(err)
	}
	again := newJob(9, 20*time.Second)
	if err := json.Unmarshal(text, again.Info); err != nil {
		t.Fatal(err)
	}
	l = replicas.Loans{} // of the next daemon
	l.Back(again, seconds(110))
	loan := again.Info.Loan
	if loan == nil || loan.Back.Sub(loan.Asked) != 10*time.Second || !slices.Equal(loan.Jobs, []int{1, 2}) {
		t.Fatalf("%+v", loan)
	}
	l.Ask(saves, again, engine.Checkpoint, minute, 4*time.Second, seconds(200))
	if now := again.Info.Loan; !now.Back.IsZero() || now.Asked.Unix() != 200 || !slices.Equal(now.Jobs, []int{1}) {
		t.Errorf("%+v", now)
	}
	l.Back(again, seconds(201))
	l.Back(again, seconds(300)) // another run, for which there was room
	if again.Info.Loan != nil {
		t.Errorf("%+v", again.Info.Loan)
	}
}

// TestSay: what is said of jobs holds until something else is said.
func TestSay(t *testing.T) {
	var l replicas.Loans
	l.Say(map[int]string{3: "service vision lends it a GPU"})
	if l.Text(3) == "" || l.Text(4) != "" {
		t.Errorf("%q %q", l.Text(3), l.Text(4))
	}
	if l.Say(nil); l.Text(3) != "" {
		t.Errorf("%q", l.Text(3))
	}
}
