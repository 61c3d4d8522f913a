package store

import (
	"errors"
	"path/filepath"
	"testing"
)

// Predictions are found again with the starts of their jobs: the latest under a policy, in the order of the
// starts.
func TestAsked(t *testing.T) {
	s, ctx := open(t, filepath.Join(t.TempDir(), "muster.db")), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Write(ctx, func(tx *Tx) error {
		for i := 1; i <= 4; i++ {
			policy := "fifo"
			if i == 3 {
				policy = "las"
			}
			if err := errors.Join(
				tx.PutAsked(&Asked{Job: i, At: 100, Start: 200, Waited: 5, Milli: 1000, Tier: 1, Policy: policy}),
				tx.PutJob(&Job{ID: i, State: "running", Started: int64(1000 - 100*i), Data: []byte("{}"),
					Submission: []byte("{}")})); err != nil {
				return err
			}
		}
		// in a later wait than that for its first start
		return tx.PutAsked(&Asked{Job: 1, At: 950, Start: 990, Policy: "fifo"})
	}))
	list, err := s.Asked(ctx, "fifo", 2)
	must(err)
	if len(list) != 2 ||
		list[0] != (Asked{Job: 2, At: 100, Start: 200, Waited: 5, Milli: 1000, Tier: 1, Happened: 800,
			Policy: "fifo"}) || list[1].Job != 1 || list[1].Happened != 900 {
		t.Errorf("%+v", list)
	}
}

// Answers are stored with their predictions, and found by job; answers stored by an earlier version are read
// without the later fields.
func TestAskedOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "muster.db")
	s, ctx := open(t, path), t.Context()
	want := Asked{Job: 7, At: 300, Start: 400, Waited: 5, Milli: 1000, Tier: 1, Policy: "fifo", Bounded: true,
		Low: -0.5, High: 1.25, Mid: 0.125}
	if err := s.Write(ctx, func(tx *Tx) error {
		other := want
		other.Policy, other.Job = "las", 8
		early := want
		early.Job = 3
		gone := want
		gone.Job = 9
		return errors.Join(tx.PutAsked(&want), tx.PutAsked(&other), tx.PutAsked(&early), tx.PutAsked(&gone),
			tx.exec(`CREATE TABLE asked (job, at, start, waited, milli, tier, policy)`),
			tx.exec(`INSERT INTO asked VALUES (7, 100, 200, 5, 2000, 1, 'fifo')`))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	list, err := s.AskedOf(ctx, "fifo", 4, func(job int) bool { return job != 9 })
	if err != nil {
		t.Fatal(err)
	}
	if old := (Asked{Job: 7, At: 100, Start: 200, Waited: 5, Milli: 2000, Tier: 1, Policy: "fifo"}); len(list) != 2 ||
		list[0] != old || list[1] != want {
		t.Errorf("%+v", list)
	}
}
