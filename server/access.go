//go:build linux

package server

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local/audit"
)

// What a route requires of its caller, besides the three roles. Operations on jobs check themselves whether the
// job is the caller's.
const (
	anybody = "anybody" // no name needed
	nearby  = "nearby"  // no name needed on this machine
)

// access is the role that each route requires. A route that is not listed is refused to everybody; a test tries
// every route in every role.
var access = map[string]string{
	"GET /healthz":                   anybody,
	"GET /metrics":                   nearby,
	"GET /readyz":                    anybody,
	"GET /login":                     anybody,
	"GET /{$}":                       anybody, // pages contain no data; what they show they request
	"GET /jobs":                      anybody,
	"GET /jobs/{id}":                 anybody,
	"GET /submit":                    anybody,
	"GET /services":                  anybody,
	"GET /usage":                     anybody,
	"GET /history":                   anybody,
	"GET /assets/{name}":             anybody,
	"GET /favicon.ico":               anybody,
	"GET /openapi.json":              anybody,
	"GET /openapi.yaml":              anybody,
	"GET /openapi-3.0.json":          anybody,
	"GET /openapi-3.0.yaml":          anybody,
	"GET /schemas/{schema}":          anybody,
	"GET /v1/me":                     api.RoleUser,
	"POST /v1/logout":                api.RoleUser,
	"POST /v1/dashboard":             api.RoleUser,
	"GET /v1/tokens":                 api.RoleUser, // their own
	"POST /v1/tokens":                api.RoleUser, // for themselves
	"DELETE /v1/tokens/{id}":         api.RoleUser, // their own
	"GET /v1/info":                   api.RoleUser,
	"GET /v1/nodes":                  api.RoleUser,
	"GET /v1/partitions":             api.RoleUser,
	"GET /v1/queues":                 api.RoleUser,
	"GET /v1/fair":                   api.RoleUser,
	"GET /v1/services":               api.RoleUser,
	"POST /v1/services":              api.RoleUser, // their own, like what follows
	"GET /v1/services/{name}":        api.RoleUser, // what other users run is masked
	"POST /v1/services/{name}/scale": api.RoleUser,
	"DELETE /v1/services/{name}":     api.RoleUser,
	"GET /v1/usage":                  api.RoleUser,
	"GET /v1/jobs/{id}/samples":      api.RoleUser,
	"GET /v1/events":                 api.RoleUser,
	"GET /v1/overview":               api.RoleUser,
	"POST /v1/jobs":                  api.RoleUser,
	"GET /v1/jobs":                   api.RoleUser,
	"GET /v1/jobs/{id}":              api.RoleUser, // what other users run is masked
	"GET /v1/jobs/{id}/why":          api.RoleUser,
	"GET /v1/jobs/{id}/wait":         api.RoleUser,
	"GET /v1/jobs/{id}/log":          api.RoleUser, // the caller's own, like everything below
	"POST /v1/jobs/{id}/join":        api.RoleUser,
	"GET /v1/jobs/{id}/tty":          api.RoleUser, // ... except that a role does not allow typing into it
	"PATCH /v1/jobs/{id}":            api.RoleUser,
	"GET /v1/jobs/{id}/history":      api.RoleUser,
	"POST /v1/nodes/{name}/drain":    api.RoleOperator,
	"POST /v1/nodes/{name}/resume":   api.RoleOperator,
	"GET /v1/audit":                  api.RoleUser, // what was done to their jobs, and by them; admins: everything
	"GET /v1/journal":                api.RoleAdmin,
	"GET /v1/policy":                 api.RoleUser,
	"GET /v1/speeds":                 api.RoleUser,
	"POST /v1/policy":                api.RoleOperator,
	"POST /v1/config/reload":         api.RoleAdmin,
	"GET /v1/moves":                  api.RoleUser,
	"POST /v1/moves":                 api.RoleOperator,
	"POST /v1/jobs/{id}/signal":      api.RoleUser,
	"POST /v1/jobs/{id}/cancel":      api.RoleUser,
	"POST /v1/jobs/cancel":           api.RoleUser, // their own, as below
	"POST /v1/jobs/hold":             api.RoleUser,
	"POST /v1/jobs/release":          api.RoleUser,
	"POST /v1/jobs/{id}/hold":        api.RoleUser,
	"POST /v1/jobs/{id}/release":     api.RoleUser,
	"POST /v1/jobs/{id}/requeue":     api.RoleUser,
	"POST /v1/jobs/{id}/suspend":     api.RoleUser,
	"POST /v1/jobs/{id}/resume":      api.RoleUser,
}

// pageRules is the content security policy of the pages: load what comes from this server, and nothing else.
const pageRules = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// alwaysAnswered are the routes that answer while the state cannot be written.
var alwaysAnswered = map[string]bool{"GET /healthz": true, "GET /readyz": true, "GET /metrics": true}

// guard lets authorised callers through to the routes. Over TCP a caller is identified by a token or a session,
// at the socket by the kernel.
func (s *Server) guard(tcp bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pageRules)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer") // a link that contains a login code must not be passed on
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		_, pattern := s.mux.Handler(r)
		who, err := s.who(r, tcp)
		switch {
		case tcp && !s.hostKnown(r.Host):
			refuse(w, http.StatusMisdirectedRequest, hostText(r.Host))
		case pattern == "":
			s.noRoute(w, r)
		case errors.Is(err, errTooOften):
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusTooManyRequests, err.Error())
		case err != nil:
			unknownCaller(w, err.Error())
		default:
			if code, text := allowed(access[pattern], who, r, tcp); code == http.StatusUnauthorized {
				unknownCaller(w, text)
				return
			} else if code != 0 {
				refuse(w, code, text)
				return
			}
			if who != nil {
				ctx := context.WithValue(r.Context(), callerKey{}, who)
				r = r.WithContext(audit.WithActor(ctx,
					audit.Actor{User: who.User.Name, Role: who.Role, From: origin(r, who)}))
			}
			if s.m.Stuck() && !alwaysAnswered[pattern] {
				w.Header().Set("Retry-After", "5")
				refuse(w, http.StatusServiceUnavailable,
					"the state cannot be written at the moment (is its disk full?); running jobs continue; try again")
				return
			}
			if who != nil && staysOpen(pattern, r) {
				leave, err := s.crowd.stream(who.User.Name)
				if err != nil {
					refuse(w, http.StatusTooManyRequests, err.Error())
					return
				}
				defer leave()
			}
			s.mux.ServeHTTP(w, r)
		}
	})
}

func (s *Server) who(r *http.Request, tcp bool) (*Caller, error) {
	if tcp {
		return s.identify(r)
	}
	if c, ok := r.Context().Value(uidKey{}).(credential); ok {
		return s.atSocket(c.uid), nil
	}
	return nil, nil
}

// uidKey is the context key under which a connection keeps the identity of its peer.
type uidKey struct{}

type credential struct{ uid, pid int }

// allowed says why a caller may not use a route that requires something; 0: it may.
func allowed(need string, who *Caller, r *http.Request, tcp bool) (int, string) {
	switch {
	case need == "":
		return http.StatusForbidden, "no role may use this route"
	case need == anybody, need == nearby && (!tcp || isLoopback(r.RemoteAddr)):
		return 0, ""
	case who == nil:
		return http.StatusUnauthorized, nobody
	case need != nearby && !who.may(need):
		return http.StatusForbidden,
			"only " + need + "s may do that; you are " + who.User.Name + ", with the role " + who.Role
	case who.session != nil && r.Method != http.MethodGet && r.Method != http.MethodHead &&
		subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Muster-CSRF")), []byte(who.session.csrf)) != 1:
		return http.StatusForbidden, "the header X-Muster-CSRF does not hold what GET /v1/me says"
	}
	return 0, ""
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

func unknownCaller(w http.ResponseWriter, text string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
	refuse(w, http.StatusUnauthorized, text)
}

// refuse answers with a problem (RFC 9457), as every error of the interface.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	// An error here means that the caller has gone.
	_ = json.NewEncoder(w).Encode(&huma.ErrorModel{Status: code, Title: http.StatusText(code), Detail: text})
}

// noRoute answers that there is no such path, or that it takes another method.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	seen := &statusOnly{header: http.Header{}}
	s.mux.ServeHTTP(seen, r)
	if seen.code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", seen.header.Get("Allow"))
		refuse(w, seen.code, r.URL.Path+" takes "+seen.header.Get("Allow")+", not "+r.Method)
		return
	}
	refuse(w, http.StatusNotFound, "there is no "+r.URL.Path+" here; /openapi.json lists what there is")
}

// statusOnly keeps the status and the headers of an answer, and drops its body.
type statusOnly struct {
	header http.Header
	code   int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(code int)        { s.code = code }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
