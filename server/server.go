//go:build linux

// Package server is the HTTP interface of muster serve: HTTP and JSON with an
// OpenAPI 3.1 document made from the code. Who calls over the Unix socket is
// known by the kernel's peer credentials.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local"
)

// Server serves a machine.
type Server struct {
	m    *local.Machine
	mux  *http.ServeMux
	info Info
}

// Info is what the server says of itself.
type Info struct {
	Version   string `json:"version"`
	Policy    string `json:"policy"`
	Placer    string `json:"placer"`
	Simulated bool   `json:"simulated,omitempty" doc:"The GPUs are only played"`
}

// Caller is who makes a request.
type Caller struct {
	User  local.User
	Admin bool
}

type callerKey struct{}

// New makes a server.
func New(m *local.Machine, info Info) *Server {
	s := &Server{m: m, mux: http.NewServeMux(), info: info}
	cfg := huma.DefaultConfig("Muster", info.Version)
	cfg.DocsPath = "" // its page loads scripts from elsewhere
	cfg.CreateHooks = nil
	a := humago.New(s.mux, cfg)
	s.jobs(a)
	s.machine(a)
	s.mux.HandleFunc("GET /v1/jobs/{id}/log", s.log)
	s.mux.HandleFunc("GET /v1/events", s.events)
	return s
}

// ServeUnix serves the socket until the context ends. Everybody on this machine
// may connect; the kernel says who it is.
func (s *Server) ServeUnix(ctx context.Context, path string) error {
	l, err := listen(ctx, path)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: s.mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			who, err := peer(c)
			if err != nil {
				return ctx
			}
			return context.WithValue(ctx, callerKey{}, who)
		}}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen takes the socket over from a daemon that is gone, not from one that
// answers.
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

// peer is the user at the other end of a Unix socket.
func peer(c net.Conn) (*Caller, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a Unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	if credErr != nil {
		return nil, credErr
	}
	u, err := local.UserOf(int(cred.Uid))
	if err != nil {
		return nil, err
	}
	return &Caller{User: u, Admin: cred.Uid == 0 || int(cred.Uid) == os.Getuid()}, nil
}

// caller is who makes the request.
func caller(ctx context.Context) (*Caller, error) {
	who, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return nil, huma.Error401Unauthorized("nobody knows who you are")
	}
	return who, nil
}

// problem translates an error of the machine.
func problem(err error) error {
	var field *api.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &field):
		return huma.Error422UnprocessableEntity(field.Error(), &huma.ErrorDetail{Message: field.Text, Location: "body." + field.Field})
	case errors.Is(err, local.ErrNoJob):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return huma.Error503ServiceUnavailable("the state cannot be written at the moment; try again")
	}
	return huma.Error409Conflict(err.Error())
}

// mayTouch says why the caller may not touch a job, if so.
func (s *Server) mayTouch(ctx context.Context, id int) error {
	who, err := caller(ctx)
	if err != nil {
		return err
	}
	j, err := s.m.Job(ctx, id)
	if err != nil {
		return problem(err)
	}
	if !who.Admin && j.User != who.User.Name {
		return huma.Error403Forbidden(fmt.Sprintf("job %d is %s's", id, j.User))
	}
	return nil
}

// shown is a job as the caller may see it: what others run is their own.
func shown(who *Caller, j api.Job) api.Job {
	if !who.Admin && j.User != who.User.Name {
		j.Submission.Env, j.Submission.Script, j.Submission.Command, j.Submission.Args = nil, "", nil, nil
	}
	return j
}
