package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// All rows that a transaction adds to a list are there after it, in order; none are if it is rolled back.
func TestLists(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "muster.db"))
	for _, n := range []int{1, rowsAtOnce - 1, rowsAtOnce, 2*rowsAtOnce + 3} {
		add := func(tx *Tx, job int) error {
			for i := range n {
				if err := errors.Join(tx.PutHistory(job, int64(i), "what", fmt.Sprint(i)),
					tx.PutAudit(&Audit{At: int64(i), Action: fmt.Sprint(i), Job: job})); err != nil {
					return err
				}
			}
			return nil
		}
		given := errors.New("given up")
		if err := s.Write(t.Context(), func(tx *Tx) error {
			return errors.Join(add(tx, 1000+n), given)
		}); !errors.Is(err, given) {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), func(tx *Tx) error { return add(tx, n) }); err != nil {
			t.Fatal(err)
		}
		for job, want := range map[int]int{n: n, 1000 + n: 0} {
			history, err := s.History(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			trail, err := s.AuditTrail(t.Context(), AuditFilter{Job: job, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if len(history) != want || len(trail) != want {
				t.Errorf("%d rows: %d and %d are stored", want, len(history), len(trail))
				continue
			}
			for i := range history {
				// the latest comes first
				if a := trail[want-1-i]; history[i].Text != fmt.Sprint(i) || a.Action != fmt.Sprint(i) {
					t.Errorf("of %d, row %d is %+v and %+v", n, i, history[i], a)
				}
			}
		}
	}
}
