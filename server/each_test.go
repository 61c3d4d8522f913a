//go:build linux

package server

import (
	"context"
	"net/http"
	"testing"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/audit"
)

// One user can neither take all links to the dashboard nor fill the store with tokens.
func TestEach(t *testing.T) {
	w := newWorld(t)
	var s sessions
	now := w.s.m.Now()
	of := func(name string) *session {
		return &session{who: newCaller(account.User{Name: name}, api.RoleUser), expires: now.Add(codeFor)}
	}
	for i := range sessionsEach + 50 {
		if _, err := s.put(&s.codes, of("mallory"), now); (err == nil) != (i < sessionsEach) {
			t.Fatalf("link %d: %v", i+1, err)
		}
	}
	if _, err := s.put(&s.codes, of("ann"), now); err != nil {
		t.Errorf("another user's link: %v", err)
	}
	if _, err := s.put(&s.codes, of("mallory"), now.Add(codeFor)); err != nil {
		t.Errorf("when the others have ended: %v", err)
	}
	h := func(name string) int {
		who := newCaller(account.User{Name: name}, api.RoleUser)
		_, err := w.s.createToken(audit.WithActor(withCaller(t.Context(), who), audit.Actor{User: name}), &tokenInput{})
		var st interface{ GetStatus() int }
		if err == nil {
			return http.StatusCreated
		}
		st, _ = err.(interface{ GetStatus() int })
		return st.GetStatus()
	}
	for i := range tokensEach + 2 {
		if code := h("mallory"); (code == http.StatusCreated) != (i < tokensEach) || i >= tokensEach &&
			code != http.StatusTooManyRequests {
			t.Fatalf("token %d: %d", i+1, code)
		}
	}
	if code := h("ann"); code != http.StatusCreated {
		t.Errorf("another user's token: %d", code)
	}
}

func withCaller(ctx context.Context, who *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}
