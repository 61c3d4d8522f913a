//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/internal/token"
)

const (
	codeFor    = 2 * time.Minute
	sessionFor = 12 * time.Hour
	// mostSessions bounds what callers can make the server remember.
	mostSessions = 10_000
	sessionsEach = 100 // of one user
)

// session is a browser that was let in. Sessions are kept in memory: after a restart of the daemon every browser
// has to sign in again.
type session struct {
	who     *Caller
	csrf    string
	expires time.Time
}

// sessions holds the browsers that are signed in, and the codes that let one in once. Both are kept by hash.
type sessions struct {
	mu    sync.Mutex
	codes map[string]*session
	in    map[string]*session
}

// put stores a session under a new secret, until a time.
func (s *sessions) put(to *map[string]*session, se *session, now time.Time) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *to == nil {
		*to = map[string]*session{}
	}
	for k, old := range *to {
		if !old.expires.After(now) {
			delete(*to, k)
		}
	}
	own := 0
	for _, other := range *to {
		if other.who.User.Name == se.who.User.Name {
			own++
		}
	}
	if own >= sessionsEach {
		return "", fmt.Errorf("%s has %d open sessions or links, the most for one user; they end by themselves (links after %v), or with muster logout", se.who.User.Name, own, codeFor)
	}
	if len(*to) >= mostSessions {
		return "", errors.New("too many open sessions; try again later")
	}
	key := token.Secret()
	(*to)[token.Hash(key)] = se
	return key, nil
}

// take returns the session under a secret; nil: there is none.
func (s *sessions) take(from *map[string]*session, key string, now time.Time, once bool) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := token.Hash(key)
	se := (*from)[h]
	if se == nil || !se.expires.After(now) {
		return nil
	}
	if once {
		delete(*from, h)
	}
	return se
}

// end removes the sessions that were opened with a token, or a single session.
func (s *sessions) end(which func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []map[string]*session{s.codes, s.in} {
		for k, se := range m {
			if which(se) {
				delete(m, k)
			}
		}
	}
}

func (s *Server) bySession(value string) (*Caller, error) {
	se := s.sessions.take(&s.sessions.in, value, s.m.Now(), false)
	if se == nil {
		return nil, nil // as if there were no cookie: the page explains how to sign in
	}
	who := *se.who
	who.session = se
	return &who, nil
}

// login accepts a code, and signs in the browser that sent it.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	now := s.m.Now()
	se := s.sessions.take(&s.sessions.codes, r.URL.Query().Get("code"), now, true)
	if se == nil {
		refuse(w, http.StatusForbidden,
			"the link was used before, or is older than two minutes: muster dashboard makes another")
		return
	}
	in := &session{who: se.who, csrf: token.Secret(), expires: now.Add(sessionFor)}
	key, err := s.sessions.put(&s.sessions.in, in, now)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: key, Path: "/", Expires: in.expires, HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	// The page continues by itself: a redirect would count as coming from the site of the link, and the cookie
	// would not be sent along.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w,
		"<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url=/\"><title>Muster</title><a href=\"/\">Muster</a>\n")
}

// identityRoutes registers the routes for signing in and out.
func (s *Server) identityRoutes(a huma.API) {
	s.handle("GET /login", s.login)
	huma.Register(a, huma.Operation{OperationID: "dashboard", Method: http.MethodPost, Path: "/v1/dashboard",
		Summary: "A link that lets one browser in, once"}, s.dashboard)
	huma.Register(a, huma.Operation{OperationID: "logout", Method: http.MethodPost, Path: "/v1/logout",
		Summary: "End the browser's session"},
		func(ctx context.Context, _ *none) (*none, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			s.sessions.end(func(se *session) bool { return se == who.session })
			return &none{}, nil
		})
}

type linkOutput struct {
	Body struct {
		URL  string `json:"url" doc:"To be opened in a browser on that machine within two minutes"`
		Path string `json:"path" doc:"The same without the server's address"`
	}
}

func (s *Server) dashboard(ctx context.Context, _ *none) (*linkOutput, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	url := s.url.Load()
	if url == nil {
		return nil, huma.Error409Conflict("the daemon listens on no TCP address (--listen none): there is no dashboard")
	}
	now := s.m.Now()
	code, err := s.sessions.put(&s.sessions.codes, &session{who: who, expires: now.Add(codeFor)}, now)
	if err != nil {
		return nil, huma.Error503ServiceUnavailable(err.Error())
	}
	out := &linkOutput{}
	out.Body.Path = "/login?code=" + code
	out.Body.URL = *url + out.Body.Path
	return out, nil
}
