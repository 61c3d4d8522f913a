// Package store keeps in one SQLite file what muster serve must not lose: jobs, the journal, usage. A
// transaction that Write reports as done survives a power cut (WAL with synchronous=FULL).
package store

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/muster-gpu/muster/internal/oldkeys"
)

// version is the schema's. A file of a later version is refused; one of an earlier version is converted.
// 2: arrays have records. 3: metaNames has the version of the records' key names (oldkeys).
const version = 3

const schema = `
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (
	id INTEGER PRIMARY KEY,
	user TEXT NOT NULL, name TEXT NOT NULL, queue TEXT NOT NULL, state TEXT NOT NULL,
	active INTEGER NOT NULL,      -- 1: not done
	submitted INTEGER NOT NULL,   -- Unix nanoseconds
	started INTEGER NOT NULL, ended INTEGER NOT NULL,
	submission BLOB NOT NULL,     -- written once
	data BLOB NOT NULL);          -- written with every change
CREATE INDEX IF NOT EXISTS jobs_active ON jobs (id) WHERE active = 1;
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (ended) WHERE active = 0;
CREATE TABLE IF NOT EXISTS segments (
	id INTEGER PRIMARY KEY,       -- one for each start of the daemon, and each change of its rules
	first INTEGER NOT NULL,       -- its first step
	header BLOB NOT NULL, snapshot BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
	seq INTEGER PRIMARY KEY, batch BLOB NOT NULL, hash TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS history (
	job INTEGER NOT NULL, at INTEGER NOT NULL, what TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_job ON history (job);
CREATE TABLE IF NOT EXISTS keys (
	user TEXT NOT NULL, key TEXT NOT NULL, jobs TEXT NOT NULL, at INTEGER NOT NULL,
	PRIMARY KEY (user, key)) WITHOUT ROWID;
`

// Store is an open file. Its methods are safe for concurrent use.
type Store struct {
	write   *sql.DB // a single connection
	writer  writer  // the holder of that connection
	read    *sql.DB
	commits int64 // the number of the last transaction
	marker  *marker
}

// ErrNotFound is returned for data that is not in the store.
var ErrNotFound = errors.New("not found")

// Open opens or creates the file.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	// SQLite gives its other files the mode of the first; jobs' environments must be readable by this user only.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	dsn := "file:" + escapePath(path) +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	s := &Store{}
	if s.write, err = sql.Open("sqlite", dsn); err != nil {
		return nil, err
	}
	s.write.SetMaxOpenConns(1)
	if err := s.init(path); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), s.write.Close())
	}
	if s.writer, err = newWriter(s.write); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	if s.read, err = sql.Open("sqlite", dsn+"&_pragma=query_only(1)"); err != nil {
		return nil, err
	}
	s.read.SetMaxOpenConns(4)
	return s, nil
}

// escapePath keeps the driver from interpreting a path.
func escapePath(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}

// ErrDamaged is returned for a file whose pages contradict each other.
var ErrDamaged = errors.New("the state is damaged")

// sound checks every page of the file: a daemon must not build on damaged data.
func sound(db *sql.DB) error {
	var text string
	if err := db.QueryRow(`PRAGMA quick_check(1)`).Scan(&text); err != nil {
		text = err.Error()
	}
	if text == "ok" {
		return nil
	}
	if strings.Contains(text, "readonly") || strings.Contains(text, "read-only") {
		return errors.New("the state is on a read-only file system, or this user may not write to it")
	}
	return fmt.Errorf("%w (%s): restore it from a backup, or start once with muster serve --accept-loss, which sets it aside and begins a new one",
		ErrDamaged, text)
}

func (s *Store) init(path string) error {
	if err := sound(s.write); err != nil {
		return err
	}
	if _, err := s.write.Exec(schema + arraySchema + tokenSchema + serviceSchema + usageSchema +
		auditSchema); err != nil {
		return err
	}
	var have int
	err := s.write.QueryRow(`SELECT value FROM meta WHERE key = 'version'`).Scan(&have)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err = s.write.Exec(`INSERT INTO meta VALUES ('version', ?), (?, ?)`, version, metaNames, oldkeys.Current)
		if err != nil {
			return err
		}
	case err != nil:
		return err
	case have > version:
		return fmt.Errorf("the file is of version %d; this program writes version %d: use a newer one", have, version)
	default:
		if err := s.rename(); err != nil {
			return err
		}
	}
	return s.identify(path)
}

// Close closes the file.
func (s *Store) Close() error {
	return errors.Join(s.read.Close(), s.writer.close(), s.write.Close(), s.marker.f.Close())
}

// Job is a stored job. Times are Unix nanoseconds; 0: not yet.
type Job struct {
	ID                        int
	User, Name, Queue, State  string
	Active                    bool
	Submitted, Started, Ended int64
	Submission                []byte // nil in PutJob: unchanged; empty: it is the array's
	Data                      []byte
}

// PutJob writes a job: a new one with its submission, or a change.
func (t *Tx) PutJob(j *Job) error {
	if j.Submission == nil {
		return t.exec(`UPDATE jobs SET name=?, queue=?, state=?, active=?, started=?, ended=?, data=? WHERE id=?`,
			j.Name, j.Queue, j.State, j.Active, j.Started, j.Ended, j.Data, j.ID)
	}
	t.job = max(t.job, j.ID)
	return t.exec(`INSERT INTO jobs (id, user, name, queue, state, active, submitted, started, ended, submission, data)
		VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET name=excluded.name, queue=excluded.queue, state=excluded.state,
		active=excluded.active, started=excluded.started, ended=excluded.ended, submission=excluded.submission, data=excluded.data`,
		j.ID, j.User, j.Name, j.Queue, j.State, j.Active, j.Submitted, j.Started, j.Ended, j.Submission, j.Data)
}

// PutStep appends a step to the journal.
func (t *Tx) PutStep(seq int64, batch []byte, hash string) error {
	return t.exec(`INSERT INTO steps VALUES (?,?,?)`, seq, batch, hash)
}

// PutSegment begins a segment of the journal with the step first.
func (t *Tx) PutSegment(first int64, header, snapshot []byte) error {
	return t.exec(`INSERT INTO segments (first, header, snapshot) VALUES (?,?,?)`, first, header, snapshot)
}

// Forget removes what is older than a time in Unix nanoseconds: segments of the journal that ended before it,
// with their steps, and idempotency keys.
func (t *Tx) Forget(before int64) error {
	return errors.Join(
		t.exec(`DELETE FROM keys WHERE at < ?`, before),
		t.exec(`DELETE FROM segments WHERE id < (SELECT MAX(id) FROM segments WHERE CAST(json_extract(CAST(snapshot AS TEXT), '$.now') AS INTEGER) < ?)`, before),
		t.exec(`DELETE FROM steps WHERE seq < (SELECT MIN(first) FROM segments)`))
}

// PutMeta sets a value.
func (t *Tx) PutMeta(key string, value []byte) error {
	return t.exec(`INSERT INTO meta VALUES (?,?) ON CONFLICT (key) DO UPDATE SET value=excluded.value`, key,
		string(value))
}

// PutHistory adds an event to the history of a job.
func (t *Tx) PutHistory(job int, at int64, what, text string) error {
	return t.add(historyRows, job, at, what, text)
}

// PutKey records the jobs of a submission with an idempotency key.
func (t *Tx) PutKey(user, key, jobs string, at int64) error {
	return t.exec(`INSERT INTO keys VALUES (?,?,?,?)`, user, key, jobs, at)
}
