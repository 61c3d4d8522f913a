package store

import (
	"context"
	"database/sql"
	"errors"
)

// usageSchema has measurements of jobs and of the machine, and the predicted starts and ends of jobs.
const usageSchema = `
CREATE TABLE IF NOT EXISTS usage (job INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS hours (
	at INTEGER PRIMARY KEY,       -- Unix seconds at which the hour begins
	total REAL NOT NULL, held REAL NOT NULL, busy REAL NOT NULL, measured REAL NOT NULL); -- GPU-seconds
CREATE TABLE IF NOT EXISTS told (
	job INTEGER NOT NULL, at INTEGER NOT NULL, -- Unix nanoseconds
	expected INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, PRIMARY KEY (job, at)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS predictions (job, at, expected, low, high); -- of earlier versions: a job's first ones
INSERT OR IGNORE INTO told SELECT job, at, expected, low, high FROM predictions;
DROP TABLE predictions;
CREATE TABLE IF NOT EXISTS answers ( -- what was foreseen when a job was told something, and what was said then
	job INTEGER NOT NULL, at INTEGER NOT NULL, start INTEGER NOT NULL, -- Unix nanoseconds
	waited INTEGER NOT NULL, milli INTEGER NOT NULL, tier INTEGER NOT NULL, policy TEXT NOT NULL,
	bounded INTEGER NOT NULL,     -- 1: it said an interval
	low REAL NOT NULL, high REAL NOT NULL, mid REAL NOT NULL, -- logarithms of ratios to the wait foreseen
	PRIMARY KEY (job, at)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked (job, at, start, waited, milli, tier, policy); -- of earlier versions: nothing of what was said
INSERT OR IGNORE INTO answers SELECT job, at, start, waited, milli, tier, policy, 0, 0, 0, 0 FROM asked;
DROP TABLE asked;
CREATE TABLE IF NOT EXISTS ends (job INTEGER PRIMARY KEY, at INTEGER NOT NULL, expected INTEGER NOT NULL); -- of running jobs, Unix nanoseconds
`

// Hour is the use of the machine's GPUs within an hour, in GPU-seconds.
type Hour struct {
	At             int64   // Unix seconds
	Total          float64 // healthy
	Held           float64 // by jobs
	Busy, Measured float64 // computing, of those whose utilisation is known
}

// Prediction is the expected start of a job, as answered at its submission or later, and the actual start; or
// likewise its end. Unix nanoseconds; Happened 0: not yet.
type Prediction struct {
	Job                               int
	At, Expected, Low, High, Happened int64
	Later                             bool // it is not the first answer for the job
}

// Asked is the prediction of a job's start, the answer that was given, and the actual start. Unix nanoseconds.
type Asked struct {
	Job, Tier                          int
	At, Start, Waited, Milli, Happened int64
	Policy                             string
	Bounded                            bool // the answer had an interval
	Low, High, Mid                     float64
}

// PutAsked stores a prediction.
func (t *Tx) PutAsked(a *Asked) error {
	return t.exec(`INSERT INTO answers VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`, a.Job, a.At, a.Start,
		a.Waited, a.Milli, a.Tier, a.Policy,
		a.Bounded, a.Low, a.High, a.Mid)
}

// Asked returns the latest predictions under a policy for jobs that have started since, in the order of the
// starts.
func (s *Store) Asked(ctx context.Context, policy string, most int) ([]Asked, error) {
	return s.asked(ctx, nil, `SELECT job, at, start, waited, milli, tier, policy, bounded, low, high, mid, started FROM (SELECT a.*, j.started FROM answers a
		JOIN jobs j ON j.id = a.job WHERE a.policy = ? AND j.started >= a.at ORDER BY j.started DESC, a.job DESC, a.at DESC LIMIT ?) ORDER BY started, job, at`, policy, most)
}

// AskedOf returns the predictions under a policy for jobs that takes accepts, in the order in which they were
// made; no job has a number below from.
func (s *Store) AskedOf(ctx context.Context, policy string, from int, takes func(job int) bool) ([]Asked, error) {
	return s.asked(ctx, takes, `SELECT job, at, start, waited, milli, tier, policy, bounded, low, high, mid, 0 FROM answers
		WHERE job >= ? AND policy = ? ORDER BY at, job`, from, policy)
}

func (s *Store) asked(ctx context.Context, takes func(job int) bool, query string, args ...any) (list []Asked,
	err error) {
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var a Asked
		if err := rows.Scan(&a.Job, &a.At, &a.Start, &a.Waited, &a.Milli, &a.Tier, &a.Policy, &a.Bounded, &a.Low,
			&a.High, &a.Mid, &a.Happened); err != nil {
			return nil, err
		}
		if takes == nil || takes(a.Job) {
			list = append(list, a)
		}
	}
	return list, rows.Err()
}

// PutUsage stores the measurements of a job.
func (t *Tx) PutUsage(job int, data []byte) error {
	return t.exec(`INSERT INTO usage VALUES (?,?) ON CONFLICT (job) DO UPDATE SET data=excluded.data`, job, data)
}

// AddHour adds to the record of an hour.
func (t *Tx) AddHour(h Hour) error {
	return t.exec(`INSERT INTO hours VALUES (?,?,?,?,?) ON CONFLICT (at) DO UPDATE SET total=total+excluded.total, held=held+excluded.held,
		busy=busy+excluded.busy, measured=measured+excluded.measured`, h.At, h.Total, h.Held, h.Busy, h.Measured)
}

// PutPrediction stores an answer about a job.
func (t *Tx) PutPrediction(p Prediction) error {
	return t.exec(`INSERT INTO told VALUES (?,?,?,?,?) ON CONFLICT DO NOTHING`, p.Job, p.At, p.Expected, p.Low, p.High)
}

// PutEnd stores the end that a job's progress predicts; each run counts by itself.
func (t *Tx) PutEnd(p Prediction) error {
	return t.exec(`INSERT INTO ends VALUES (?,?,?) ON CONFLICT (job) DO UPDATE SET at=excluded.at, expected=excluded.expected`, p.Job, p.At, p.Expected)
}

// Usage returns the measurements of a job.
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
	rows, err := s.read.QueryContext(ctx, `SELECT at, total, held, busy, measured FROM hours WHERE at >= ? ORDER BY at`,
		since)
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

// Predictions returns the answers from a time on (Unix nanoseconds), by job and time.
func (s *Store) Predictions(ctx context.Context, since int64) (list []Prediction, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT p.job, p.at, p.expected, p.low, p.high, COALESCE(j.started, 0),
		EXISTS (SELECT 1 FROM told o WHERE o.job = p.job AND o.at < p.at) FROM told p
		LEFT JOIN jobs j ON j.id = p.job WHERE p.at >= ? ORDER BY p.job, p.at`, since)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p Prediction
		if err := rows.Scan(&p.Job, &p.At, &p.Expected, &p.Low, &p.High, &p.Happened, &p.Later); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

// Ends returns the ends that progress predicted from a time on (Unix nanoseconds), with the actual ends of jobs
// that completed.
func (s *Store) Ends(ctx context.Context, since int64) (list []Prediction, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT e.job, e.at, e.expected, CASE WHEN j.state = 'completed' THEN j.ended ELSE 0 END FROM ends e
		JOIN jobs j ON j.id = e.job WHERE e.at >= ? ORDER BY e.job`, since)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p Prediction
		if err := rows.Scan(&p.Job, &p.At, &p.Expected, &p.Happened); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, rows.Err()
}
