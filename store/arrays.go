package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
)

// An array is stored as one record. An element gets a row of its own in the step in which something first
// happens to it alone; an element without a row is as the record says. Rows of elements are never removed,
// because an element without one would wait again.
const arraySchema = `
CREATE TABLE IF NOT EXISTS arrays (
	first INTEGER PRIMARY KEY,    -- job number of the first element
	count INTEGER NOT NULL,       -- of numbers from there on that are the array's
	open INTEGER NOT NULL,        -- 1: elements have no row of their own
	at INTEGER NOT NULL, what TEXT NOT NULL, -- history of elements without a row, Unix nanoseconds
	data BLOB NOT NULL,           -- what such an element is; empty when there is none left
	submission BLOB NOT NULL);    -- of elements whose own is empty
CREATE INDEX IF NOT EXISTS arrays_open ON arrays (first) WHERE open = 1;
`

// Array is the record of an array, of which some elements may have rows of their own.
type Array struct {
	First, Count int
	At           int64  // when it was submitted, Unix nanoseconds
	What         string // the state of its elements since then
	Data         []byte
	Submission   []byte
}

// PutArray writes the record of a new array.
func (t *Tx) PutArray(a *Array) error {
	t.job = max(t.job, a.First+a.Count-1)
	return t.exec(`INSERT INTO arrays (first, count, open, at, what, data, submission) VALUES (?,?,1,?,?,?,?)`,
		a.First, a.Count, a.At, a.What, a.Data, a.Submission)
}

// CloseArray records that all elements of an array have rows of their own.
func (t *Tx) CloseArray(first int) error {
	return t.exec(`UPDATE arrays SET open = 0, data = x'' WHERE first = ?`, first)
}

// Arrays returns the arrays with elements that have no row, by number.
func (s *Store) Arrays(ctx context.Context) (list []Array, err error) {
	rows, err := s.read.QueryContext(ctx,
		`SELECT first, count, at, what, data, submission FROM arrays WHERE open = 1 ORDER BY first`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var a Array
		if err := rows.Scan(&a.First, &a.Count, &a.At, &a.What, &a.Data, &a.Submission); err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, rows.Err()
}

// Rows returns, in order, which job numbers from first to last have rows.
func (s *Store) Rows(ctx context.Context, first, last int) (ids []int, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id FROM jobs WHERE id BETWEEN ? AND ? ORDER BY id`, first, last)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// asElement adds to the history of a job what happened to it while it had no row.
func (s *Store) asElement(ctx context.Context, job int, list []Moment) ([]Moment, error) {
	var count, first int
	var m Moment
	err := s.read.QueryRowContext(ctx,
		`SELECT first, count, at, what FROM arrays WHERE first <= ? ORDER BY first DESC LIMIT 1`, job).
		Scan(&first, &count, &m.At, &m.What)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return list, nil
	case err != nil:
		return nil, err
	// it is of no array, or had a row from the beginning
	case job >= first+count || len(list) > 0 && list[0].At == m.At:
		return list, nil
	}
	return slices.Insert(list, 0, m), nil
}
