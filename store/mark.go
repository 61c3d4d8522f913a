package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A database that lost its last commits (a deleted or damaged WAL, an older copy) is still a valid database.
// Therefore a small file next to it, the mark, says after each commit how many commits there were and which job
// number was the highest. It is written after the commit is durable and not synced at each commit, so it can be
// behind the database, never ahead of it: a database that is behind its mark has lost something.

const (
	markSuffix = ".mark"
	markSize   = 512 // one sector, so that it is written as a whole or not at all
	markWord   = "muster-mark"
	// reserve is how many job numbers one durable write of the mark covers.
	reserve = 1000
)

// The keys in the table meta.
const (
	metaID      = "state_id"
	metaCommits = "commits"
	metaFloor   = "number_floor"
)

// Mark is the content of the file next to a database.
type Mark struct {
	ID       string // of the state
	Commits  int64
	Job      int // highest job number that was committed
	Reserved int // durable upper bound of all assigned job numbers
}

// MarkPath is the path of the mark of a database.
func MarkPath(db string) string { return db + markSuffix }

// ReadMark reads the mark of a database; ErrNotFound: there is none, or it is unreadable.
func ReadMark(db string) (Mark, error) {
	text, err := os.ReadFile(MarkPath(db))
	if errors.Is(err, fs.ErrNotExist) {
		return Mark{}, ErrNotFound
	}
	if err != nil {
		return Mark{}, err
	}
	var k Mark
	var sum uint32
	line, _, _ := strings.Cut(string(text), "\n")
	if _, err := fmt.Sscanf(line, markWord+" 1 %32s %d %d %d %x", &k.ID, &k.Commits, &k.Job, &k.Reserved,
		&sum); err != nil || k.sum() != sum {
		return Mark{}, fmt.Errorf("%w: %s is damaged", ErrNotFound, MarkPath(db))
	}
	return k, nil
}

// ErrLost is returned for a database that lacks commits which its mark records.
var ErrLost = errors.New("the state is not what it was")

// Covers says which commits of the mark a database with this content lacks; nil: none.
func (k *Mark) Covers(db Mark) error {
	switch {
	case k.ID == "" || k.ID == anyState:
		return nil
	case db.ID != k.ID:
		return fmt.Errorf("%w: the database is of another state than the mark next to it", ErrLost)
	case db.Commits < k.Commits:
		return fmt.Errorf("%w: the last %d of %d changes are missing", ErrLost, k.Commits-db.Commits, k.Commits)
	}
	return nil
}

func (k *Mark) line() string {
	return fmt.Sprintf("%s 1 %s %d %d %d", markWord, k.ID, k.Commits, k.Job, k.Reserved)
}

func (k *Mark) sum() uint32 { return crc32.ChecksumIEEE([]byte(k.line())) }

func (k *Mark) text() []byte {
	return fmt.Appendf(nil, "%-*s\n", markSize-1, fmt.Sprintf("%s %08x\n", k.line(), k.sum()))
}

// anyState is the identity in a mark that only reserves job numbers.
const anyState = "-"

// Accept makes the mark fit any database from now on, while no job number is assigned again.
func Accept(db string, highest int) error {
	k := Mark{ID: anyState, Reserved: highest}
	path := MarkPath(db)
	if err := os.WriteFile(path+".new", k.text(), 0o600); err != nil {
		return err
	}
	return errors.Join(os.Rename(path+".new", path), syncDir(filepath.Dir(path)))
}

// marker writes the mark of an open database.
type marker struct {
	mu   sync.Mutex
	f    *os.File
	mark Mark
}

// openMarker starts a mark, or continues one, for a database that is not behind it.
func openMarker(db string, k Mark) (*marker, error) {
	f, err := os.OpenFile(MarkPath(db), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if old, err := ReadMark(db); err == nil && (old.ID == k.ID || old.ID == anyState) {
		k.Reserved = max(k.Reserved, old.Reserved)
		if m := (&marker{f: f, mark: k}); k.Reserved == old.Reserved { // durable already
			return m, m.write()
		}
	}
	m := &marker{f: f, mark: k}
	if err := errors.Join(m.write(), f.Sync(), syncDir(filepath.Dir(db))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

func (m *marker) write() error {
	_, err := m.f.WriteAt(m.mark.text(), 0)
	return err
}

// reserve makes durable that numbers up to this one may have been assigned.
func (m *marker) reserve(job int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if job <= m.mark.Reserved {
		return nil
	}
	was := m.mark.Reserved
	m.mark.Reserved = job + reserve
	err := errors.Join(m.write(), m.f.Sync())
	if err != nil {
		m.mark.Reserved = was
	}
	return err
}

// committed records a commit. A mark that cannot be written is behind, which is safe.
func (m *marker) committed(n int64, job int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mark.Commits, m.mark.Job = max(m.mark.Commits, n), max(m.mark.Job, job)
	_ = m.write()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ID is the identity of the state, a random text made when the state was created.
func (s *Store) ID() string { return s.marker.mark.ID }

// identify gives a new state its identity, and opens its mark.
func (s *Store) identify(path string) error {
	k, err := markOf(s.write)
	if err != nil {
		return err
	}
	old, err := ReadMark(path)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := old.Covers(k); err != nil {
		return err
	}
	if k.ID == "" {
		k.ID = rand.Text()
		if _, err := s.write.Exec(`INSERT INTO meta VALUES (?,?)`, metaID, k.ID); err != nil {
			return err
		}
	}
	s.commits = k.Commits
	if _, err := s.write.Exec(`INSERT OR IGNORE INTO meta VALUES (?,?)`, metaCommits, k.Commits); err != nil {
		return err
	}
	s.marker, err = openMarker(path, k)
	return err
}

// markOf is the mark that matches the content of a database.
func markOf(db *sql.DB) (k Mark, err error) {
	var arrays bool // the database has records of arrays
	if err := db.QueryRow(`SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'arrays')`).Scan(
		&arrays); err != nil {
		return k, err
	}
	if arrays {
		if err := db.QueryRow(
			`SELECT COALESCE((SELECT first + count - 1 FROM arrays ORDER BY first DESC LIMIT 1), 0)`).Scan(
			&k.Job); err != nil {
			return k, err
		}
	}
	highest := k.Job
	err = db.QueryRow(`SELECT COALESCE((SELECT value FROM meta WHERE key = ?), ''), COALESCE((SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?), 0),
		COALESCE((SELECT MAX(id) FROM jobs), 0)`, metaID, metaCommits).Scan(&k.ID, &k.Commits, &k.Job)
	k.Job = max(k.Job, highest)
	k.Reserved = k.Job
	return k, err
}

// View is a database opened read-only: neither the file nor its WAL is changed, whatever is wrong with them.
type View struct {
	db   *sql.DB
	Mark Mark // matching its content
}

// OpenView opens an existing database read-only. A missing file, an empty one, and one without the tables of a
// state are ErrNotFound.
func OpenView(path string) (*View, error) {
	if fi, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && fi.Size() == 0 && walSize(path) == 0 {
		return nil, ErrNotFound
	} else if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+escapePath(path)+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	v := &View{db: db}
	if err := v.read(); err != nil {
		return nil, errors.Join(damage(err), db.Close())
	}
	return v, nil
}

// damage converts errors that report damage to ErrDamaged.
func damage(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB) {
		return fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	return err
}

func walSize(path string) int64 {
	fi, err := os.Stat(path + "-wal")
	if err != nil {
		return 0
	}
	return fi.Size()
}

func (v *View) read() error {
	var n int
	if err := v.db.QueryRow(`SELECT COUNT(*) FROM sqlite_master WHERE name IN ('meta', 'jobs')`).Scan(&n); err != nil {
		return err
	}
	if n < 2 {
		return ErrNotFound
	}
	var err error
	v.Mark, err = markOf(v.db)
	return err
}

// Sound checks every page of the file.
func (v *View) Sound() error { return sound(v.db) }

// Job returns the stored data of a job, without its submission; ErrNotFound: there is none.
func (v *View) Job(ctx context.Context, id int) (*Job, error) {
	j := &Job{ID: id}
	err := v.db.QueryRowContext(ctx, `SELECT name, user, active, data FROM jobs WHERE id = ?`, id).Scan(&j.Name,
		&j.User, &j.Active, &j.Data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	return j, err
}

// Close closes the file.
func (v *View) Close() error { return v.db.Close() }

// SetFloor makes job numbers continue above this one.
func (t *Tx) SetFloor(job int) error { return t.PutMeta(metaFloor, fmt.Append(nil, job)) }
