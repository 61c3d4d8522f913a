//go:build linux

// Package server is the HTTP interface of muster serve: HTTP and JSON with an OpenAPI 3.1 document made from the
// code. Callers at the Unix socket are identified by the kernel's peer credentials.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/server/view"
	"github.com/muster-gpu/muster/serving/control"
	"github.com/muster-gpu/muster/web"
)

// Server serves a machine.
type Server struct {
	m        *local.Machine
	mux      *http.ServeMux
	api      huma.API
	plain    []string // routes that are not in the interface's document
	opt      Options
	roles    atomic.Pointer[Roles]
	hosts    atomic.Pointer[[]string]
	url      atomic.Pointer[string] // of the TCP listener
	cookie   string
	sessions sessions
	crowd    *crowd
	wrong    wrongTokens
}

// Options configure a server.
type Options struct {
	Info    Info
	Metrics *Metrics     // nil: its own, which nothing feeds
	Log     *slog.Logger // nil: nothing is logged
	// Services runs services; nil: there are none.
	Services *control.Controller
	Hosts    []string // names, besides addresses, by which the server may be called over TCP
	// Reload reads the configuration again on behalf of by. nil: it cannot.
	Reload func(ctx context.Context, by string) (api.Reloaded, error)
}

// Info is the server's description of itself.
type Info = view.Info

// New makes a server.
func New(m *local.Machine, opt Options) *Server {
	s := &Server{m: m, mux: http.NewServeMux(), opt: opt, cookie: "muster_session", crowd: newCrowd()}
	if s.opt.Metrics == nil {
		s.opt.Metrics = NewMetrics()
	}
	if s.opt.Log == nil {
		s.opt.Log = slog.New(slog.DiscardHandler)
	}
	s.SetRoles(Roles{})
	s.SetHosts(opt.Hosts)
	cfg := huma.DefaultConfig("Muster", opt.Info.Version)
	cfg.DocsPath = "" // the page of the library loads scripts from elsewhere
	cfg.CreateHooks = nil
	s.api = humago.New(s.mux, cfg)
	a := s.api
	s.look(a)
	s.jobs(a)
	s.jobsAtOnce(a)
	s.identityRoutes(a)
	s.tokens(a)
	s.changes(a)
	s.rules(a)
	s.audit(a)
	s.joining(a)
	s.services(a)
	s.metrics()
	s.handle("GET /v1/jobs/{id}/log", s.log)
	s.handle("GET /v1/jobs/{id}/tty", s.tty)
	s.handle("GET /v1/journal", s.journal)
	for pattern, page := range web.Pages() {
		s.handle(pattern, page)
	}
	return s
}

// handle registers a route that is not in the interface's document.
func (s *Server) handle(pattern string, h http.HandlerFunc) {
	s.plain = append(s.plain, pattern)
	s.mux.HandleFunc(pattern, h)
}

// SetRoles sets who has which role at the Unix socket, from now on.
func (s *Server) SetRoles(r Roles) { s.roles.Store(&r) }

// SetHosts sets the names, besides addresses, by which the server may be called over TCP.
func (s *Server) SetHosts(names []string) { s.hosts.Store(&names) }

// ServeUnix serves the socket until the context ends. Every user of this machine may connect; the kernel
// identifies the caller.
func (s *Server) ServeUnix(ctx context.Context, path string) error {
	l, err := listen(ctx, path)
	if err != nil {
		return err
	}
	l = &countedListener{l, s.crowd, true}
	return s.serve(ctx, l,
		&http.Server{Handler: s.counted(s.guard(false)),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				uid, pid, err := peer(c)
				if err != nil {
					return ctx
				}
				return context.WithValue(ctx, uidKey{}, credential{uid, pid})
			}})
}

// ServeTCP serves an address until the context ends. A caller is identified by a token, or is a browser that was
// let in. cfg is nil without TLS.
func (s *Server) ServeTCP(ctx context.Context, l net.Listener, cfg *tls.Config) error {
	scheme := "http"
	l = &countedListener{l, s.crowd, cfg == nil}
	if cfg != nil {
		scheme, l = "https", tls.NewListener(l, cfg)
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // the link is opened on this machine
	}
	url := scheme + "://" + net.JoinHostPort(host, port)
	s.url.Store(&url)
	s.cookie += "_" + port // browsers send a host's cookies to all its ports
	return s.serve(ctx, l,
		&http.Server{Handler: s.counted(s.guard(true)), IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10})
}

func (s *Server) serve(ctx context.Context, l net.Listener, srv *http.Server) error {
	srv.ReadHeaderTimeout = 10 * time.Second
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen takes over the socket of a daemon that is gone, not of one that answers.
func listen(ctx context.Context, path string) (net.Listener, error) {
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("%s: a daemon answers there already", path), c.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o666)
}

// problem translates an error of the machine.
func problem(err error) error {
	var field *api.FieldError
	var limit *rules.LimitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &field):
		return huma.Error422UnprocessableEntity(field.Error(),
			&huma.ErrorDetail{Message: field.Text, Location: "body." + field.Field})
	case errors.As(err, &limit):
		return huma.Error429TooManyRequests(limit.Error())
	case errors.Is(err, local.ErrNoJob), errors.Is(err, local.ErrNoNode):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, local.ErrStuck):
		return huma.Error503ServiceUnavailable(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return huma.Error503ServiceUnavailable("the state cannot be written at the moment; try again")
	}
	return huma.Error409Conflict(err.Error())
}

// mayTouch says why the caller may not change a job, if so.
func (s *Server) mayTouch(ctx context.Context, id int) error {
	return s.mayUse(ctx, id, (*Caller).Owns, "")
}

// mayUse says why the caller may not use a job, if its owner is none for whom they may; note is added then.
func (s *Server) mayUse(ctx context.Context, id int, may func(who *Caller, owner string) bool, note string) error {
	who, err := caller(ctx)
	if err != nil {
		return err
	}
	j, err := s.m.Job(ctx, id)
	if err != nil {
		return problem(err)
	}
	if !may(who, j.User) {
		return huma.Error403Forbidden(fmt.Sprintf("job %d is %s's%s", id, j.User, note))
	}
	return nil
}
