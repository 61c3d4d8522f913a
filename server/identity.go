//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/token"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/rules"
)

// Caller is the user or browser that makes a request.
type Caller struct {
	User    account.User
	Role    string
	Admin   bool
	token   int64    // number of the token that was used; 0: none
	session *session // of a browser
}

// may reports whether the caller has a role, or a higher one.
func (c *Caller) may(role string) bool {
	return slices.Index(api.Roles, c.Role) >= slices.Index(api.Roles, role)
}

// Owns reports whether a user's jobs are the caller's to change, and to see in full.
func (c *Caller) Owns(user string) bool { return c.may(api.RoleOperator) || c.User.Name == user }

// Me describes the caller to itself.
func (c *Caller) Me() api.Me {
	me := api.Me{User: c.User.Name, Role: c.Role, Admin: c.Admin}
	if c.session != nil {
		me.CSRF = c.session.csrf
	}
	return me
}

type callerKey struct{}

// caller is the caller of the request.
func caller(ctx context.Context) (*Caller, error) {
	who, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return nil, huma.Error401Unauthorized(nobody)
	}
	return who, nil
}

const nobody = "unknown caller: give a token (muster login, MUSTER_TOKEN), or open the dashboard with muster dashboard"

// Roles lists the users who have a role without a token, at the Unix socket.
type Roles struct{ Operators, Admins rules.Members }

// roleOf is the role of a user of this machine. Root, and the user who runs the daemon, are admins: they could
// change everything anyway.
func (r *Roles) roleOf(u *account.User) string {
	switch {
	case u.UID == 0 || u.UID == os.Getuid() || r.Admins.Has(u):
		return api.RoleAdmin
	case r.Operators.Has(u):
		return api.RoleOperator
	}
	return api.RoleUser
}

func newCaller(u account.User, role string) *Caller {
	who := &Caller{User: u, Role: role, Admin: role == api.RoleAdmin}
	who.User.Trusted = who.may(api.RoleOperator)
	return who
}

// peer is the user at the other end of a Unix socket, by number, and the process that opened it.
func peer(c net.Conn) (uid, pid int, err error) {
	if counted, ok := c.(*countedConn); ok {
		c = counted.Conn
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return 0, 0, errors.New("not a Unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, 0, err
	}
	if credErr != nil {
		return 0, 0, credErr
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// atSocket is the caller at the socket, as the kernel identifies it.
func (s *Server) atSocket(uid int) *Caller {
	u, err := account.UserOf(uid)
	var unknown user.UnknownUserIdError
	if errors.As(err, &unknown) { // a user without a name
		u, err = account.User{Name: strconv.Itoa(uid), UID: uid, GID: uid, Home: "/"}, nil
	}
	if err != nil {
		return nil
	}
	return newCaller(u, s.roles.Load().roleOf(&u))
}

// identify is the caller of a request over TCP; nil without an error: the request does not say.
func (s *Server) identify(r *http.Request) (*Caller, error) {
	if text := r.Header.Get("Authorization"); text != "" {
		kind, key, ok := strings.Cut(text, " ")
		if !ok || !strings.EqualFold(kind, "Bearer") {
			return nil, errors.New("the header Authorization must be: Bearer, a space, a token")
		}
		who, err := s.byToken(r.Context(), strings.TrimSpace(key))
		if err != nil {
			err = s.wrongToken(r, err)
		}
		return who, err
	}
	if c, err := r.Cookie(s.cookie); err == nil {
		return s.bySession(c.Value)
	}
	return nil, nil
}

func (s *Server) byToken(ctx context.Context, text string) (*Caller, error) {
	k, err := s.m.Audit().Token(ctx, token.Hash(text))
	if err != nil || k.Expires > 0 && k.Expires <= s.m.Now().UnixNano() {
		return nil, errors.New(
			"the token is not known here, was revoked or has expired: muster token create makes another")
	}
	who := newCaller(account.UserNamed(k.User), k.Role)
	who.token = k.ID
	return who, nil
}

// hostKnown reports whether a request is meant for this server: a page of another site whose host name was made
// to point here (DNS rebinding) sends that name.
func (s *Server) hostKnown(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host == "localhost" || net.ParseIP(host) != nil || slices.Contains(*s.hosts.Load(), host)
}

func hostText(host string) string {
	return fmt.Sprintf("this server does not answer to the name %q; add it to hosts in the configuration, or use the address", host)
}
