//go:build linux

// Package audit keeps who did what: the trail of what was done, and the tokens with which programs do it.
package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// actor is who makes a request; if the context does not say, it is the daemon itself, or who is named.
func actor(ctx context.Context, otherwise string) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	if otherwise == "" {
		otherwise = "muster"
	}
	return Actor{User: otherwise, From: "the daemon"}
}

// Named is a context whose actor is who is named, unless it has one.
func Named(ctx context.Context, by string) context.Context { return WithActor(ctx, actor(ctx, by)) }

// Entry is an entry of the trail that belongs to no job.
func Entry(ctx context.Context, now time.Time, action, subject, text string) *store.Audit {
	a := actor(ctx, "")
	return &store.Audit{At: now.UnixNano(), User: a.User, Role: a.Role, From: a.From, Action: action, Subject: subject,
		Text: text}
}

// OfJob is an entry of the trail for what was done to a job.
func OfJob(ctx context.Context, now time.Time, action string, job int, owner, text string) *store.Audit {
	e := Entry(ctx, now, action, "", text)
	e.Job, e.Owner = job, owner
	return e
}

// Book is the trail and the tokens in the store.
type Book struct {
	Store *store.Store
	Now   func() time.Time
}

// Add adds to the trail what is not a change of the state itself.
func (b *Book) Add(ctx context.Context, action, subject, text string) error {
	return b.Store.Write(ctx, func(t *store.Tx) error {
		return t.PutAudit(Entry(ctx, b.Now(), action, subject, text))
	})
}

// Trail returns what was done, the latest first.
func (b *Book) Trail(ctx context.Context, f store.AuditFilter) ([]show.Audit, error) {
	rows, err := b.Store.AuditTrail(ctx, f)
	list := []show.Audit{}
	for i := range rows {
		r := &rows[i]
		list = append(list, show.Audit{ID: r.ID, At: time.Unix(0, r.At).UTC(), User: r.User, Role: r.Role, From: r.From,
			Action: r.Action, Job: r.Job, Owner: r.Owner, Subject: r.Subject, Text: r.Text})
	}
	return list, err
}

// AddToken stores a token and returns its number.
func (b *Book) AddToken(ctx context.Context, k store.Token) (id int64, err error) {
	err = b.Store.Write(ctx, func(t *store.Tx) error {
		if id, err = t.PutToken(&k); err != nil {
			return err
		}
		return t.PutAudit(Entry(ctx, b.Now(), "create-token", fmt.Sprintf("token %d", id),
			fmt.Sprintf("%q for %s as %s", k.Name, k.User, k.Role)))
	})
	return id, err
}

// RemoveToken removes a token: from now on it gives no access.
func (b *Book) RemoveToken(ctx context.Context, id int64) error {
	return b.Store.Write(ctx, func(t *store.Tx) error {
		return errors.Join(t.DeleteToken(id),
			t.PutAudit(Entry(ctx, b.Now(), "revoke-token", fmt.Sprintf("token %d", id), "")))
	})
}

// PutService stores a service; text says what is done to it.
func (b *Book) PutService(ctx context.Context, name string, data []byte, action, text string) error {
	return b.Store.Write(ctx, func(t *store.Tx) error {
		return errors.Join(t.PutService(name, data), t.PutAudit(Entry(ctx, b.Now(), action, "service "+name, text)))
	})
}

// DeleteService removes a service.
func (b *Book) DeleteService(ctx context.Context, name string) error {
	return b.Store.Write(ctx, func(t *store.Tx) error {
		return errors.Join(t.DeleteService(name),
			t.PutAudit(Entry(ctx, b.Now(), "delete-service", "service "+name, "")))
	})
}

// PutServiceKnown stores what was measured of a service. The trail does not have it: it is no deed of a person.
func (b *Book) PutServiceKnown(ctx context.Context, name string, data []byte) error {
	return b.Store.Write(ctx, func(t *store.Tx) error { return t.PutServiceKnown(name, data) })
}

// ServiceKnown is what was measured of a service; nil: nothing yet.
func (b *Book) ServiceKnown(ctx context.Context, name string) ([]byte, error) {
	return b.Store.ServiceKnown(ctx, name)
}

// Services lists the services' data by name.
func (b *Book) Services(ctx context.Context) ([][]byte, error) { return b.Store.Services(ctx) }

// Tokens lists the tokens.
func (b *Book) Tokens(ctx context.Context) ([]store.Token, error) { return b.Store.Tokens(ctx) }

// Token returns the token with a hash; store.ErrNotFound: there is none.
func (b *Book) Token(ctx context.Context, hash string) (*store.Token, error) {
	return b.Store.Token(ctx, hash)
}
