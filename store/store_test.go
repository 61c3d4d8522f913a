package store

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/oldkeys"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Written data is there after the file is closed and opened again; a failed transaction leaves nothing behind.
func TestWriteRead(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "x", "muster.db")
	s := open(t, path)
	a := Job{ID: 1, User: "ann", Name: "train", Queue: "vision", State: "running", Active: true, Submitted: 10,
		Submission: []byte(`{"a":1}`), Data: []byte(`{}`)}
	if err := s.Write(ctx, func(tx *Tx) error {
		return errors.Join(tx.PutJob(&a), tx.PutStep(1, []byte("b"), "h"), tx.PutMeta("k", []byte("v")),
			tx.PutHistory(1, 11, "running", ""), tx.PutKey("ann", "key", "[1]", 12))
	}); err != nil {
		t.Fatal(err)
	}
	a.Submission, a.State, a.Active, a.Ended, a.Data = nil, "completed", false, 20, []byte(`{"x":2}`)
	no := errors.New("no")
	if err := s.Write(ctx, func(tx *Tx) error { return errors.Join(tx.PutJob(&a), no) }); !errors.Is(err, no) {
		t.Fatalf("error %v", err)
	}
	if list, err := s.Active(ctx); err != nil || len(list) != 1 || list[0].State != "running" {
		t.Fatalf("after a transaction that failed: %v, %v", list, err)
	}
	if err := s.Write(ctx, func(tx *Tx) error { return tx.PutJob(&a) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	j, err := s.Job(ctx, 1)
	if err != nil || j.State != "completed" || string(j.Submission) != `{"a":1}` || string(j.Data) != `{"x":2}` ||
		j.Active {
		t.Errorf("job %+v, %v", j, err)
	}
	if _, err := s.Job(ctx, 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("a job that is not there: %v", err)
	}
	if jobs, err := s.Key(ctx, "ann", "key"); err != nil || jobs != "[1]" {
		t.Errorf("key: %q, %v", jobs, err)
	}
	if seq, last, err := s.Last(ctx); seq != 1 || last != 1 || err != nil {
		t.Errorf("last step %d, job %d, %v", seq, last, err)
	}
}

// Lists are filtered, paged, and have the latest first.
func TestList(t *testing.T) {
	ctx := t.Context()
	s := open(t, filepath.Join(t.TempDir(), "muster.db"))
	if err := s.Write(ctx, func(tx *Tx) error {
		var err error
		for i := 1; i <= 9; i++ {
			j := Job{ID: i, User: []string{"ann", "bob"}[i%2], Queue: "q", State: "pending", Active: i > 3,
				Ended: int64(i), Submission: []byte("{}"), Data: []byte("{}")}
			if i <= 3 {
				j.State = "completed"
			}
			err = errors.Join(err, tx.PutJob(&j))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    Filter
		want []int
	}{
		{Filter{Limit: 3}, []int{9, 8, 7}},
		{Filter{Limit: 2, Before: 4}, []int{3, 2}},
		{Filter{User: "ann", Limit: 2}, []int{8, 6}},
		{Filter{States: []string{"completed"}}, []int{3, 2, 1}},
		{Filter{Since: 3, Before: 5}, []int{4, 3}},
		{Filter{Queue: "other"}, nil},
	} {
		list, err := s.List(ctx, c.f)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for i := range list {
			got = append(got, list[i].ID)
		}
		if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] || len(got) > 1 && got[1] != c.want[1] {
			t.Errorf("%+v lists %v, not %v", c.f, got, c.want)
		}
	}
}

// The files are readable by the daemon only, and those of a later program are refused.
func TestFile(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, "a?b#c%d.db") // the driver does not interpret the path
	s := open(t, path)
	if err := s.Write(ctx, func(tx *Tx) error { return tx.PutMeta("version", []byte("99")) }); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if fi, err := f.Info(); err != nil || fi.Mode().Perm() != 0o600 || !strings.HasPrefix(f.Name(), "a?b#c%d.db") {
			t.Errorf("%s has mode %v (%v)", f.Name(), fi.Mode(), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a file of a later version: %v", err)
	}
}

// A file of a version whose records have other names is refused, and nothing in it is changed.
func TestNewerNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := open(t, path)
	err := s.Write(t.Context(), func(tx *Tx) error { return tx.PutMeta(metaNames, []byte("99")) })
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, oldkeys.ErrNewer) {
		t.Errorf("%v", err)
	}
}

// All records of an earlier version get the names of this one when the file is opened, however many they are, and one
// that cannot be read changes none.
func TestRename(t *testing.T) {
	const n = 2500
	path := filepath.Join(t.TempDir(), "a.db")
	s := open(t, path)
	fill := func(tx *Tx) error {
		err := errors.Join(tx.PutMeta(metaNames, []byte("1")), tx.PutMeta("engine", []byte(`{"fresh":true}`)))
		for i := 1; i <= n; i++ {
			text := `{"told":7}`
			if i == n {
				text = `{"told"`
			}
			err = errors.Join(err, tx.PutUsage(i, []byte(text)))
		}
		return err
	}
	if err := errors.Join(s.Write(t.Context(), fill), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "usage 2500") {
		t.Fatalf("a damaged record: %v", err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	changed := -1
	err = db.QueryRow(`SELECT COUNT(*) FROM usage WHERE CAST(data AS TEXT) LIKE '%memory_reported%'`).Scan(&changed)
	if err != nil || changed != 0 {
		t.Errorf("%d records were changed, %v", changed, err)
	}
	_, err = db.Exec(`UPDATE usage SET data = CAST('{"told":7}' AS BLOB) WHERE job = ?`, n)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	for _, i := range []int{1, 1000, 1001, n} {
		if text, err := s.Usage(t.Context(), i); err != nil || string(text) != `{"memory_reported":7}` {
			t.Errorf("record %d is %s, %v", i, text, err)
		}
	}
	if text, err := s.Meta(t.Context(), "engine"); err != nil || string(text) != `{"pass_due":true}` {
		t.Errorf("the engine's is %s, %v", text, err)
	}
}

// A cancelled transaction leaves nothing behind, and the next one is written.
func TestGivenUp(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "muster.db"))
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Write(ctx, func(tx *Tx) error {
		if err := tx.PutMeta("a", []byte("1")); err != nil {
			return err
		}
		cancel()
		return tx.PutMeta("b", []byte("1"))
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := s.Write(ctx, func(*Tx) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("begun after it was given up: %v", err)
	}
	if _, err := s.Meta(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("half of it is there: %v", err)
	}
	if err := s.Write(t.Context(), func(tx *Tx) error { return tx.PutMeta("a", []byte("2")) }); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Meta(t.Context(), "a"); string(v) != "2" || err != nil {
		t.Errorf("%s, %v", v, err)
	}
}

// The record of an array has the submission and the history of its elements until they have their own.
func TestArray(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "muster.db")
	s := open(t, path)
	row := func(id int, submission string) *Job {
		return &Job{ID: id, User: "ann", State: "running", Active: true, Submission: []byte(submission),
			Data: []byte(`{}`)}
	}
	if err := s.Write(ctx, func(tx *Tx) error {
		return errors.Join(tx.PutJob(row(1, "one")),
			tx.PutArray(&Array{First: 2, Count: 5, At: 10, What: "pending", Data: []byte("d"),
				Submission: []byte("all")}),
			tx.PutJob(row(3, "")), tx.PutHistory(3, 10, "starting", ""), tx.PutPrediction(Prediction{Job: 4, At: 10}))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(ctx, func(tx *Tx) error {
		return errors.Join(tx.PutJob(row(5, "")), tx.PutHistory(5, 12, "starting", ""), tx.PutJob(row(7, "seven")))
	}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int]string{1: "one", 3: "all", 5: "all", 7: "seven"} {
		if j, err := s.Job(ctx, id); err != nil || string(j.Submission) != want {
			t.Errorf("job %d: %v, %v", id, j, err)
		}
	}
	if ids, err := s.Rows(ctx, 2, 6); err != nil || !slices.Equal(ids, []int{3, 5}) {
		t.Errorf("elements with rows: %v, %v", ids, err)
	}
	for id, want := range map[int][]Moment{1: nil, 3: {{10, "starting", ""}}, 4: {{10, "pending", ""}},
		5: {{10, "pending", ""}, {12, "starting", ""}}, 7: nil} {
		if list, err := s.History(ctx, id); err != nil || !slices.Equal(list, want) {
			t.Errorf("history of %d: %v, %v", id, list, err)
		}
	}
	if list, err := s.Predictions(ctx, 0); err != nil || len(list) != 1 || list[0].Happened != 0 {
		t.Errorf("what an element without a row was told: %v, %v", list, err)
	}
	if err := s.Write(ctx, func(tx *Tx) error {
		return tx.PutArray(&Array{First: 20, Count: 100, What: "pending", Data: []byte("d"), Submission: []byte("s")})
	}); err != nil {
		t.Fatal(err)
	}
	if _, last, err := s.Last(ctx); last != 119 || err != nil {
		t.Errorf("the last number is %d, %v", last, err)
	}
	if err := s.Write(ctx, func(tx *Tx) error { return tx.CloseArray(2) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if k, err := ReadMark(path); err != nil || k.Job != 119 || k.Reserved < 119 {
		t.Errorf("the mark says %+v, %v", k, err)
	}
	s = open(t, path)
	if list, err := s.Arrays(ctx); err != nil || len(list) != 1 || list[0].First != 20 || string(list[0].Data) != "d" {
		t.Errorf("open arrays: %v, %v", list, err)
	}
	if j, err := s.Job(ctx, 3); err != nil || string(j.Submission) != "all" {
		t.Errorf("an element of a closed array: %v, %v", j, err)
	}
}
