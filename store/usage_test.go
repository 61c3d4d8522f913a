package store

import (
	"errors"
	"path/filepath"
	"testing"
)

// What was foreseen of jobs is found again with their starts: the latest under a policy, in the order of the starts.
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
			if err := errors.Join(tx.PutAsked(&Asked{Job: i, At: 100, Start: 200, Waited: 5, Milli: 1000, Tier: 1, Policy: policy}),
				tx.PutJob(&Job{ID: i, State: "running", Started: int64(1000 - 100*i), Data: []byte("{}"), Submission: []byte("{}")})); err != nil {
				return err
			}
		}
		return tx.PutAsked(&Asked{Job: 1, At: 950, Start: 990, Policy: "fifo"}) // in a later wait than that for its first start
	}))
	list, err := s.Asked(ctx, "fifo", 2)
	must(err)
	if len(list) != 2 || list[0] != (Asked{Job: 2, At: 100, Start: 200, Waited: 5, Milli: 1000, Tier: 1, Happened: 800, Policy: "fifo"}) || list[1].Job != 1 || list[1].Happened != 900 {
		t.Errorf("%+v", list)
	}
}
