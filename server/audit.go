//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local/audit"
	"github.com/muster-gpu/muster/store"
)

// origin says where a request comes from.
func origin(r *http.Request, who *Caller) string {
	if c, ok := r.Context().Value(uidKey{}).(credential); ok {
		return fmt.Sprintf("socket, uid %d, pid %d", c.uid, c.pid)
	}
	switch {
	case who != nil && who.session != nil && who.token != 0:
		return fmt.Sprintf("%s, browser, token %d", address(r), who.token)
	case who != nil && who.session != nil:
		return address(r) + ", browser"
	case who != nil && who.token != 0:
		return fmt.Sprintf("%s, token %d", address(r), who.token)
	}
	return address(r)
}

// address is the caller's address over TCP, without its port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

type auditInput struct {
	User   string    `query:"user" doc:"Who did it"`
	Job    int       `query:"job" minimum:"0" doc:"To which job"`
	Action string    `query:"action" doc:"What: cancel, update, drain, policy, ..."`
	Since  time.Time `query:"since" doc:"Since when"`
	Limit  int       `query:"limit" minimum:"1" maximum:"100000" default:"1000" doc:"How many at most; the latest"`
}

// audit registers the audit trail.
func (s *Server) audit(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "audit", Method: http.MethodGet, Path: "/v1/audit",
		Summary: "Who did what, from where: for admins everything, for others what was done to their jobs and by them; the latest first"},
		func(ctx context.Context, in *auditInput) (*struct{ Body []api.Audit }, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			f := store.AuditFilter{User: in.User, Job: in.Job, Action: in.Action, Limit: in.Limit}
			if !in.Since.IsZero() {
				f.Since = in.Since.UnixNano()
			}
			if !who.Admin {
				f.Concerning = who.User.Name
			}
			list, err := s.m.Audit().Trail(ctx, f)
			return &struct{ Body []api.Audit }{list}, problem(err)
		})
}

// Wrong tokens are answered normally up to a number per address and minute; beyond it they are refused without
// being checked, and logged and recorded once a minute. A right token is always accepted: tokens cannot be
// guessed, and an address may be shared.
const (
	wrongPerMinute = 10
	notedPerMinute = 60 // over all addresses, so that wrong tokens do not fill the trail
	mostAddresses  = 10_000
)

var errTooOften = errors.New("too many wrong tokens came from this address; try again in a minute")

// wrongTokens counts wrong tokens by address.
type wrongTokens struct {
	mu     sync.Mutex
	minute time.Time
	by     map[string]int
	noted  int // addresses that were recorded within the minute
}

// count counts one more, and returns how many there were within the minute, and whether to record that.
func (w *wrongTokens) count(addr string, now time.Time) (n int, note bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil || now.Sub(w.minute).Abs() >= time.Minute || len(w.by) >= mostAddresses {
		if w.by == nil || now.Sub(w.minute).Abs() >= time.Minute {
			w.minute, w.noted = now, 0
		}
		w.by = map[string]int{}
	}
	w.by[addr]++
	n = w.by[addr]
	if note = (n == 1 || n == wrongPerMinute) && w.noted < notedPerMinute; note {
		w.noted++
	}
	return n, note
}

// wrongToken records a wrong token, never the token itself, and returns the answer.
func (s *Server) wrongToken(r *http.Request, err error) error {
	addr := address(r)
	n, note := s.wrong.count(addr, s.m.Now())
	if note {
		s.opt.Log.Warn("a wrong token", "address", addr, "path", r.URL.Path, "within_a_minute", n)
		ctx, cancel := context.WithTimeout(audit.WithActor(r.Context(), audit.Actor{From: addr}), time.Second)
		defer cancel()
		if err := s.m.Audit().Add(ctx, "wrong-token", r.URL.Path, fmt.Sprintf("%d within a minute", n)); err != nil {
			s.opt.Log.Warn("a wrong token cannot be noted", "error", err)
		}
	}
	if n > wrongPerMinute {
		return errTooOften
	}
	return err
}
