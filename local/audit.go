//go:build linux

package local

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Actor is who asks for something, in which role, and from where.
type Actor struct{ User, Role, From string }

type actorKey struct{}

// WithActor says who makes a request.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// actor is who makes a request; without anybody it is the daemon itself, or who is named.
func actor(ctx context.Context, otherwise string) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	if otherwise == "" {
		otherwise = "muster"
	}
	return Actor{User: otherwise, From: "the daemon"}
}

// named is a context whose actor is who is named, unless it has one.
func named(ctx context.Context, by string) context.Context { return WithActor(ctx, actor(ctx, by)) }

// trail is what was done in the present step; it is stored with it.
type trail []store.Audit

// note adds what was done to a job.
func (t *trail) note(ctx context.Context, now cluster.Time, action string, j *job, text string) {
	a := actor(ctx, "")
	*t = append(*t, store.Audit{At: int64(now), User: a.User, Role: a.Role, From: a.From, Action: action,
		Job:   int(j.id),
		Owner: j.info.User.Name, Text: text})
}

func (t trail) put(tx *store.Tx) error {
	for i := range t {
		if err := tx.PutAudit(&t[i]); err != nil {
			return err
		}
	}
	return nil
}

// audited is an entry that belongs to no job.
func audited(ctx context.Context, now time.Time, action, subject, text string) *store.Audit {
	a := actor(ctx, "")
	return &store.Audit{At: now.UnixNano(), User: a.User, Role: a.Role, From: a.From, Action: action, Subject: subject,
		Text: text}
}

// Audit adds to the audit trail what is not a change of the state itself.
func (m *Machine) Audit(ctx context.Context, action, subject, text string) error {
	return m.store.Write(ctx, func(t *store.Tx) error {
		return t.PutAudit(audited(ctx, m.opt.Now(), action, subject, text))
	})
}

// AuditTrail returns what was done, the latest first.
func (m *Machine) AuditTrail(ctx context.Context, f store.AuditFilter) ([]show.Audit, error) {
	rows, err := m.store.AuditTrail(ctx, f)
	list := []show.Audit{}
	for i := range rows {
		r := &rows[i]
		list = append(list, show.Audit{ID: r.ID, At: time.Unix(0, r.At).UTC(), User: r.User, Role: r.Role, From: r.From,
			Action: r.Action, Job: r.Job,
			Owner: r.Owner, Subject: r.Subject, Text: r.Text})
	}
	return list, err
}

// done are the verbs as history says them.
var done = map[string]string{"cancel": "cancelled", "hold": "held", "release": "released", "requeue": "requeued",
	"suspend": "suspended", "resume": "resumed"}

// doneBy says what was done to a job, and by whom.
func doneBy(verb, by string) string {
	if by == "" {
		return done[verb]
	}
	return fmt.Sprintf("%s by %s", done[verb], by)
}

// oldestAudit is the time before which the audit trail is forgotten.
func (m *Machine) oldestAudit() int64 {
	if m.opt.AuditKeep <= 0 {
		return 0
	}
	return int64(m.renewed.Add(-m.opt.AuditKeep))
}
