package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
)

// writer is the only connection that writes. Its statements are compiled once.
type writer struct {
	mu    *sync.Mutex // held by a transaction
	conn  *sql.Conn
	ready map[string]*sql.Stmt
}

func newWriter(db *sql.DB) (writer, error) {
	conn, err := db.Conn(context.Background())
	return writer{mu: &sync.Mutex{}, conn: conn, ready: map[string]*sql.Stmt{}}, err
}

func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, st := range w.ready {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// exec runs a statement. All statements are constants, so the cache of compiled ones stays small.
func (w *writer) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	st := w.ready[query]
	if st == nil {
		var err error
		if st, err = w.conn.PrepareContext(ctx, query); err != nil {
			return nil, err
		}
		w.ready[query] = st
	}
	return st.ExecContext(ctx, args...)
}

// Tx is a transaction being written.
type Tx struct {
	ctx context.Context
	w   *writer
	job int // highest number of a job that is new in it

	waiting [len(lists)][]any // values of rows that are not inserted yet
}

// list is a table to which rows are appended, many per statement: a statement for each costs more than the row.
type list struct {
	columns   int
	one, many string // statements for one row, and for rowsAtOnce
}

const rowsAtOnce = 50

// lists are the tables that are appended to in this way. Code that reads or changes one of them in a transaction
// that may have added to it calls flush first.
var lists = [...]list{
	historyRows: listOf(`INSERT INTO history VALUES `, 4),
	auditRows:   listOf(`INSERT INTO audit (at, user, role, origin, action, job, owner, subject, text) VALUES `, 9),
}

const (
	historyRows = iota
	auditRows
)

func listOf(insert string, columns int) list {
	row := "(?" + strings.Repeat(",?", columns-1) + ")"
	return list{columns: columns, one: insert + row, many: insert + row + strings.Repeat(","+row, rowsAtOnce-1)}
}

// add adds a row to a list.
func (t *Tx) add(to int, values ...any) error {
	t.waiting[to] = append(t.waiting[to], values...)
	if l := &lists[to]; len(t.waiting[to]) == rowsAtOnce*l.columns {
		defer func() { t.waiting[to] = t.waiting[to][:0] }()
		return t.exec(l.many, t.waiting[to]...)
	}
	return nil
}

// flush inserts the pending rows.
func (t *Tx) flush() error {
	for to := range lists {
		for row := range slices.Chunk(t.waiting[to], lists[to].columns) {
			if err := t.exec(lists[to].one, row...); err != nil {
				return err
			}
		}
		t.waiting[to] = t.waiting[to][:0]
	}
	return nil
}

// Write runs f in a transaction; when Write returns nil, what f wrote is durable.
func (s *Store) Write(ctx context.Context, f func(*Tx) error) error {
	w := &s.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	t := &Tx{ctx: ctx, w: w}
	n := s.commits + 1
	err := f(t)
	if err == nil {
		err = t.flush()
	}
	if err == nil {
		err = errors.Join(t.exec(`UPDATE meta SET value = ? WHERE key = '`+metaCommits+`'`, n), s.marker.reserve(t.job))
	}
	if err == nil {
		_, err = w.exec(ctx, `COMMIT`)
	}
	if err != nil { // it may have been rolled back already, as on a full disk
		_, _ = w.exec(context.WithoutCancel(ctx), `ROLLBACK`)
		return err
	}
	s.commits = n
	s.marker.committed(n, t.job)
	return nil
}

func (t *Tx) exec(query string, args ...any) error {
	_, err := t.result(query, args...)
	return err
}

// result runs a statement of the transaction. Cancellation is checked between statements: watching for it during
// one costs as much as the statement.
func (t *Tx) result(query string, args ...any) (sql.Result, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	return t.w.exec(context.WithoutCancel(t.ctx), query, args...)
}
