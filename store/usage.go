package store

import (
	"context"
	"database/sql"
	"errors"
)

// usageSchema is what was measured of jobs and of the machine, and what waiting
// jobs were told.
const usageSchema = `
CREATE TABLE IF NOT EXISTS usage (job INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS hours (
	at INTEGER PRIMARY KEY,       -- Unix seconds at which the hour begins
	total REAL NOT NULL, held REAL NOT NULL, busy REAL NOT NULL, measured REAL NOT NULL); -- GPU-seconds
CREATE TABLE IF NOT EXISTS predictions (
	job INTEGER PRIMARY KEY, at INTEGER NOT NULL, -- Unix nanoseconds
	expected INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL);
`

// Hour is what became of the machine's GPUs within an hour, in GPU-seconds.
type Hour struct {
	At             int64   // Unix seconds
	Total          float64 // healthy
	Held           float64 // by jobs
	Busy, Measured float64 // computing, of those whose utilisation is known
}

// Prediction is when a job was expected to start, as it was told at submission,
// and when it did. Unix nanoseconds; Started 0: not yet.
type Prediction struct {
	Job                              int
	At, Expected, Low, High, Started int64
}

// PutUsage stores what was measured of a job.
func (t *Tx) PutUsage(job int, data []byte) error {
	return t.exec(`INSERT INTO usage VALUES (?,?) ON CONFLICT (job) DO UPDATE SET data=excluded.data`, job, data)
}

// AddHour adds to what is known of an hour.
func (t *Tx) AddHour(h Hour) error {
	return t.exec(`INSERT INTO hours VALUES (?,?,?,?,?) ON CONFLICT (at) DO UPDATE SET total=total+excluded.total, held=held+excluded.held,
		busy=busy+excluded.busy, measured=measured+excluded.measured`, h.At, h.Total, h.Held, h.Busy, h.Measured)
}

// PutPrediction stores what a job was told; the first one counts.
func (t *Tx) PutPrediction(p Prediction) error {
	return t.exec(`INSERT INTO predictions VALUES (?,?,?,?,?) ON CONFLICT (job) DO NOTHING`, p.Job, p.At, p.Expected, p.Low, p.High)
}

// Usage returns what was measured of a job.
func (s *Store) Usage(ctx context.Context, job int) ([]byte, error) {
	var data []byte
	err := s.read.QueryRowContext(ctx, `SELECT data FROM usage WHERE job = ?`, job).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	return data, err
}

// Hours returns the hours from a time on (Unix seconds), in order.
func (s *Store) Hours(ctx context.Context, since int64) (list []Hour, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT at, total, held, busy, measured FROM hours WHERE at >= ? ORDER BY at`, since)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var h Hour
		if err := rows.Scan(&h.At, &h.Total, &h.Held, &h.Busy, &h.Measured); err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, rows.Err()
}

// Predictions returns what jobs were told from a time on (Unix nanoseconds).
func (s *Store) Predictions(ctx context.Context, since int64) (list []Prediction, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT p.job, p.at, p.expected, p.low, p.high, j.started FROM predictions p
		JOIN jobs j ON j.id = p.job WHERE p.at >= ? ORDER BY p.job`, since)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p Prediction
		if err := rows.Scan(&p.Job, &p.At, &p.Expected, &p.Low, &p.High, &p.Started); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, rows.Err()
}
