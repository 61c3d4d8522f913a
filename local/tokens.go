//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/store"
)

// AddToken stores a token and returns its number.
func (m *Machine) AddToken(ctx context.Context, k store.Token) (id int64, err error) {
	err = m.store.Write(ctx, func(t *store.Tx) error {
		if id, err = t.PutToken(&k); err != nil {
			return err
		}
		return t.PutAudit(audited(ctx, m.opt.Now(), "create-token", fmt.Sprintf("token %d", id),
			fmt.Sprintf("%q for %s as %s", k.Name, k.User, k.Role)))
	})
	return id, err
}

// RemoveToken removes a token: from now on it lets nobody in.
func (m *Machine) RemoveToken(ctx context.Context, id int64) error {
	return m.store.Write(ctx, func(t *store.Tx) error {
		return errors.Join(t.DeleteToken(id),
			t.PutAudit(audited(ctx, m.opt.Now(), "revoke-token", fmt.Sprintf("token %d", id), "")))
	})
}

// Tokens lists the tokens.
func (m *Machine) Tokens(ctx context.Context) ([]store.Token, error) { return m.store.Tokens(ctx) }

// Token returns the token with a hash; store.ErrNotFound: there is none.
func (m *Machine) Token(ctx context.Context, hash string) (*store.Token, error) {
	return m.store.Token(ctx, hash)
}

// Now is the wall clock's time.
func (m *Machine) Now() time.Time { return m.opt.Now() }
