package store

import (
	"path/filepath"
	"testing"
)

// BenchmarkWrite is a durable submission as the store sees it: a job and a step in one commit.
func BenchmarkWrite(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "muster.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 300)
	n := 0
	for b.Loop() {
		n++
		if err := s.Write(b.Context(), func(t *Tx) error {
			if err := t.PutJob(&Job{ID: n, User: "ann", State: "pending", Active: true, Submission: data,
				Data: data}); err != nil {
				return err
			}
			if err := t.PutStep(int64(n), data, "0"); err != nil {
				return err
			}
			return t.PutMeta("engine", data)
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "commits/s")
}
