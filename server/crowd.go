//go:build linux

package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Limits bound what one user can hold open; 0: no bound.
type Limits struct {
	Connections int // per user at the Unix socket, or per address over TCP
	Streams     int // requests that stay open: events, waits, followed logs, terminals
}

// keptBack is how many file descriptors connections leave to the daemon for starting jobs.
const keptBack = 512

// crowd counts open connections and streams, so that no user can exhaust what others need.
type crowd struct {
	limits  atomic.Pointer[Limits]
	mu      sync.Mutex
	most    int // bound on all connections together
	all     int
	conns   map[string]int
	streams map[string]int
}

func newCrowd() *crowd {
	c := &crowd{conns: map[string]int{}, streams: map[string]int{}, most: keptBack}
	c.limits.Store(&Limits{})
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		most := int(min(files.Cur, 1<<20))
		c.most = max(most-keptBack, most/2)
	}
	return c
}

// SetLimits sets what one user can hold open, from now on.
func (s *Server) SetLimits(l Limits) { s.crowd.limits.Store(&l) }

// from returns the key by which a connection is counted, and how many such there may be; 0: any number.
func (c *crowd) from(conn net.Conn) (key string, most int) {
	most = c.limits.Load().Connections
	if uid, _, err := peer(conn); err == nil {
		if uid == 0 || uid == os.Getuid() {
			return "daemon", 0
		}
		return fmt.Sprintf("uid %d", uid), most
	}
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String(), most
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() && most > 0 { // all users of this machine
		most = max(most, c.most/2)
	}
	return host, most
}

// enter counts a connection; false: there are too many.
func (c *crowd) enter(key string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most > 0 && (c.conns[key] >= most || c.all >= c.most) {
		return false
	}
	c.conns[key]++
	c.all++
	return true
}

func (c *crowd) leave(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.conns[key]--; c.conns[key] == 0 {
		delete(c.conns, key)
	}
}

// countedListener accepts as many connections as there may be.
type countedListener struct {
	net.Listener
	crowd *crowd
	plain bool // without TLS: the answer can be read
}

// Accept returns the next connection that is within the limits.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		key, most := l.crowd.from(conn)
		if l.crowd.enter(key, most) {
			return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { l.crowd.leave(key) })}, nil
		}
		if l.plain {
			tooMany(conn, most)
		}
		_ = conn.Close()
	}
}

// tooMany answers a caller with too many connections, without waiting for a request.
func tooMany(conn net.Conn, most int) {
	body := fmt.Sprintf(`{"title":"Too Many Requests","status":429,"detail":"there are too many open connections of yours (at most %d), or of all users; `+
		`close some, or the operator of this machine raises limits.connections in the daemon's configuration"}`, most)
	_, _ = fmt.Fprintf(conn,
		"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// countedConn is a connection that counts until it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

var errTooMany = errors.New("too many streams")

// staysOpen reports whether a request may stay open for as long as its caller likes.
func staysOpen(pattern string, r *http.Request) bool {
	switch pattern {
	case "GET /v1/events", "GET /v1/jobs/{id}/wait", "GET /v1/jobs/{id}/tty":
		return true
	case "GET /v1/jobs/{id}/log":
		return r.URL.Query().Get("follow") == "true"
	}
	return false
}

// stream counts a request that stays open.
func (c *crowd) stream(user string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := c.limits.Load().Streams; most > 0 && c.streams[user] >= most {
		return nil, fmt.Errorf("%w: %s has %d requests open that stay open (events, waits, followed logs, terminals), the most allowed; "+
			"close some, or the operator of this machine raises limits.streams in the daemon's configuration",
			errTooMany, user, most)
	}
	c.streams[user]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.streams[user]--; c.streams[user] == 0 {
			delete(c.streams, user)
		}
	}, nil
}
