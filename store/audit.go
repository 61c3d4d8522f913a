package store

import (
	"context"
	"errors"
	"strings"
)

const auditSchema = `
CREATE TABLE IF NOT EXISTS audit (
	id INTEGER PRIMARY KEY,
	at INTEGER NOT NULL,          -- Unix nanoseconds
	user TEXT NOT NULL, role TEXT NOT NULL, origin TEXT NOT NULL,
	action TEXT NOT NULL,
	job INTEGER NOT NULL,         -- 0: it is about no job
	owner TEXT NOT NULL,          -- of the job
	subject TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS audit_at ON audit (at);
CREATE INDEX IF NOT EXISTS audit_job ON audit (job) WHERE job > 0;
`

// mostAudit is how many entries are kept of what users did to their own jobs, and of everything else: many
// entries of one kind do not displace those of the other.
const mostAudit = 1_000_000

// Audit is an entry of the audit trail: an action, by which user and from where.
type Audit struct {
	ID, At               int64 // Unix nanoseconds
	User, Role, From     string
	Action               string
	Job                  int // 0: none
	Owner, Subject, Text string
}

// PutAudit adds to the audit trail.
func (t *Tx) PutAudit(a *Audit) error {
	return t.add(auditRows, a.At, a.User, a.Role, a.From, a.Action, a.Job, a.Owner, a.Subject, a.Text)
}

// ForgetAudit removes entries older than a time in Unix nanoseconds, and those beyond the limit.
func (t *Tx) ForgetAudit(before int64) error {
	const beyond = `DELETE FROM audit WHERE (user = owner) = ?1 AND id <=
		COALESCE((SELECT id FROM audit WHERE (user = owner) = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2), 0)`
	return errors.Join(t.flush(), t.exec(`DELETE FROM audit WHERE at < ?`, before), t.exec(beyond, 0, mostAudit),
		t.exec(beyond, 1, mostAudit))
}

// AuditFilter selects entries. Zero fields select all.
type AuditFilter struct {
	User, Action string
	Concerning   string // by this user, or on this user's jobs
	Job          int
	Since        int64 // Unix nanoseconds
	Limit        int
}

// AuditTrail returns entries, the latest first.
func (s *Store) AuditTrail(ctx context.Context, f AuditFilter) (list []Audit, err error) {
	where, args := []string{"at >= ?"}, []any{f.Since}
	add := func(cond string, arg ...any) { where, args = append(where, cond), append(args, arg...) }
	if f.User != "" {
		add("user = ?", f.User)
	}
	if f.Action != "" {
		add("action = ?", f.Action)
	}
	if f.Concerning != "" {
		add("(owner = ? OR user = ?)", f.Concerning, f.Concerning)
	}
	if f.Job != 0 {
		add("job = ?", f.Job)
	}
	if f.Limit <= 0 {
		f.Limit = mostAudit
	}
	rows, err := s.read.QueryContext(ctx,
		`SELECT id, at, user, role, origin, action, job, owner, subject, text FROM audit WHERE `+
			strings.Join(where, " AND ")+` ORDER BY id DESC LIMIT ?`, append(args, f.Limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var a Audit
		if err := rows.Scan(&a.ID, &a.At, &a.User, &a.Role, &a.From, &a.Action, &a.Job, &a.Owner, &a.Subject,
			&a.Text); err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, rows.Err()
}
