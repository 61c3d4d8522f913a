package store

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/ask"
)

// Meta returns a value; ErrNotFound: it was never set.
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) {
	var v string
	err := s.read.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = ?`, key).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	return []byte(v), err
}

// Last returns the number of the last step and the highest assigned job number; 0 and -1: none.
func (s *Store) Last(ctx context.Context) (seq int64, job int, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT MAX(COALESCE((SELECT MAX(seq) FROM steps), 0), COALESCE((SELECT MAX(first) FROM segments), 1) - 1), MAX(COALESCE((SELECT MAX(id) FROM jobs), -1),
		COALESCE((SELECT first + count - 1 FROM arrays ORDER BY first DESC LIMIT 1), -1),
		COALESCE((SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?), -1))`, metaFloor).Scan(&seq, &job)
	return seq, job, err
}

const columns = `SELECT id, user, name, queue, state, active, submitted, started, ended,
	CASE WHEN submission = x'' THEN (SELECT a.submission FROM arrays a WHERE a.first <= jobs.id ORDER BY a.first DESC LIMIT 1) ELSE submission END, data FROM jobs `

// Active returns the jobs that are not over, by number.
func (s *Store) Active(ctx context.Context) ([]Job, error) {
	return s.jobs(ctx, columns+`WHERE active = 1 ORDER BY id`)
}

// Between returns the jobs with numbers from first to last, by number.
func (s *Store) Between(ctx context.Context, first, last int) ([]Job, error) {
	return s.jobs(ctx, columns+`WHERE id BETWEEN ? AND ? ORDER BY id`, first, last)
}

// Job returns a job.
func (s *Store) Job(ctx context.Context, id int) (*Job, error) {
	list, err := s.jobs(ctx, columns+`WHERE id = ?`, id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, ErrNotFound
	}
	return &list[0], nil
}

// Filter selects jobs; List ignores Arrays.
type Filter = ask.Filter

// List returns active and ended jobs, the latest first.
func (s *Store) List(ctx context.Context, f Filter) ([]Job, error) {
	var where []string
	var args []any
	add := func(cond string, arg ...any) { where, args = append(where, cond), append(args, arg...) }
	for _, c := range []struct{ col, v string }{{"user", f.User}, {"queue", f.Queue}, {"name", f.Name}} {
		if c.v != "" {
			add(c.col+" = ?", c.v)
		}
	}
	if f.Search != "" {
		number, err := strconv.Atoi(f.Search)
		if err != nil {
			number = -1
		}
		part := "%" + strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(f.Search) + "%"
		add(`(name LIKE ? ESCAPE '\' OR user LIKE ? ESCAPE '\' OR queue LIKE ? ESCAPE '\' OR id = ?)`, part, part, part,
			number)
	}
	if len(f.States) > 0 {
		var in []any
		for _, v := range f.States {
			in = append(in, v)
		}
		add("state IN (?"+strings.Repeat(",?", len(in)-1)+")", in...)
	}
	if f.Since > 0 {
		add("(active = 1 OR ended >= ?)", f.Since)
	}
	if f.Before > 0 {
		add("id < ?", f.Before)
	}
	q := columns
	if len(where) > 0 {
		q += "WHERE " + strings.Join(where, " AND ")
	}
	q += " ORDER BY id DESC"
	if f.Limit > 0 {
		q += " LIMIT ?"
		args = append(args, f.Limit)
	}
	return s.jobs(ctx, q, args...)
}

func (s *Store) jobs(ctx context.Context, query string, args ...any) (list []Job, err error) {
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var j Job
		if err := rows.Scan(&j.ID, &j.User, &j.Name, &j.Queue, &j.State, &j.Active, &j.Submitted, &j.Started, &j.Ended,
			&j.Submission, &j.Data); err != nil {
			return nil, err
		}
		list = append(list, j)
	}
	return list, rows.Err()
}

// Key returns the jobs of a submission with an idempotency key.
func (s *Store) Key(ctx context.Context, user, key string) (string, error) {
	var jobs string
	err := s.read.QueryRowContext(ctx, `SELECT jobs FROM keys WHERE user = ? AND key = ?`, user, key).Scan(&jobs)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ErrNotFound
	}
	return jobs, err
}

// Moment is an event in the history of a job.
type Moment struct {
	At         int64 // Unix nanoseconds
	What, Text string
}

// History returns the events of a job, in order.
func (s *Store) History(ctx context.Context, job int) (list []Moment, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT at, what, text FROM history WHERE job = ? ORDER BY rowid`, job)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var m Moment
		if err := rows.Scan(&m.At, &m.What, &m.Text); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return s.asElement(ctx, job, list)
}

// Segment is a part of the journal under one set of rules.
type Segment struct {
	First            int64
	Header, Snapshot []byte
}

// Segments returns the parts of the journal, in order.
func (s *Store) Segments(ctx context.Context) (list []Segment, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT first, header, snapshot FROM segments ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var g Segment
		if err := rows.Scan(&g.First, &g.Header, &g.Snapshot); err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, rows.Err()
}

// Steps calls f for each step from..to (inclusive) in order.
func (s *Store) Steps(ctx context.Context, from, to int64, f func(batch []byte, hash string) error) (err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT batch, hash FROM steps WHERE seq BETWEEN ? AND ? ORDER BY seq`, from,
		to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var batch []byte
		var hash string
		if err := rows.Scan(&batch, &hash); err != nil {
			return err
		}
		if err := f(batch, hash); err != nil {
			return err
		}
	}
	return rows.Err()
}
