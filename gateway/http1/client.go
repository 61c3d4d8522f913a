// Package http1 is a client of HTTP/1.1 that works in its caller's goroutine. net/http's Transport has two goroutines
// for each connection, so a request and its answer are handed over four times, and each time may wait for a core.
// Requests are still written and answers read by net/http. fasthttp's client works in its caller's goroutine, too, but
// has types of its own for requests and headers: each would have to be converted, and its parser to be trusted as well.
package http1

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	mostIdle   = 1024             // connections to an address that are kept
	idleFor    = 90 * time.Second // after which one is closed
	checkEvery = 5 * time.Second  // when those are closed that the other side has closed
	dialFor    = 30 * time.Second
	keepAlive  = 30 * time.Second
	largestTop = 256 << 10 // bytes of the head of an answer, with all informational ones before it
	smallBody  = 16 << 10  // bytes of a body that the buffers of a connection hold, so that writing it does not block
)

var (
	errTop    = fmt.Errorf("the head of the answer exceeded %d bytes", largestTop)
	errClosed = errors.New("the body has been closed")
)

// Client is an http.RoundTripper for plain HTTP/1.1. The body of an answer must not be closed while it is read.
type Client struct {
	clock func() time.Time

	mu    sync.Mutex
	idle  map[string][]*conn // by host; the one that was used last is last
	check *time.Timer        // nil: there is no idle connection
}

// New makes a client without connections.
func New(clock func() time.Time) *Client { return &Client{clock: clock, idle: map[string][]*conn{}} }

// conn is a connection. One exchange has it, or the client while it is idle.
type conn struct {
	net.Conn
	host  string
	raw   syscall.RawConn
	in    *bufio.Reader // reads from this conn
	since time.Time     // it is idle

	inTop   bool // the head of an answer is being read
	top     int  // bytes of the head that may still come
	wrote   bool // a byte of the request
	refused bool // a write has failed
}

// Read limits the size of heads.
func (k *conn) Read(p []byte) (int, error) {
	if !k.inTop {
		return k.Conn.Read(p)
	}
	if k.top <= 0 {
		return 0, errTop
	}
	n, err := k.Conn.Read(p[:min(len(p), k.top)])
	k.top -= n
	return n, err
}

// Write notes whether the request has begun to be written, and whether it could be.
func (k *conn) Write(p []byte) (int, error) {
	n, err := k.Conn.Write(p)
	k.wrote = k.wrote || n > 0
	k.refused = k.refused || err != nil
	return n, err
}

// interrupt ends what is being read and written.
func (k *conn) interrupt() { _ = k.SetDeadline(time.Unix(1, 0)) } // fails only if it is closed

// exchange is a request on a connection, and its answer.
type exchange struct {
	*conn
	client  *Client
	request *http.Request
	release func() bool // of the request's context; false: it has ended, and interrupted the connection
	sent    chan error  // receives once, when the request has been written; nil: that was before the answer was read
	got     bool        // a byte of the answer
}

// RoundTrip sends a request and reads the head of its answer. If a connection that was idle breaks before a byte of the
// answer has come, the request is sent once more, if nothing of it had been written or it may be answered twice.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	if k := c.take(r.URL.Host); k != nil {
		x := &exchange{conn: k, client: c, request: r}
		resp, err := x.roundTrip()
		if err == nil || !x.again() {
			return resp, err
		}
		if r.Body != nil && r.Body != http.NoBody {
			own := *r
			r = &own
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
	k, err := dial(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // nothing has been read of it
		}
		return nil, err
	}
	return (&exchange{conn: k, client: c, request: r}).roundTrip()
}

func dial(r *http.Request) (*conn, error) {
	d := net.Dialer{Timeout: dialFor, KeepAlive: keepAlive}
	to, err := d.DialContext(r.Context(), "tcp", net.JoinHostPort(r.URL.Hostname(), cmp.Or(r.URL.Port(), "80")))
	if err != nil {
		return nil, cmp.Or(context.Cause(r.Context()), err)
	}
	k := &conn{Conn: to, host: r.URL.Host}
	k.in = bufio.NewReader(k)
	k.raw, err = to.(*net.TCPConn).SyscallConn()
	return k, err
}

// again reports whether a request that failed on a connection that was idle may be sent on another.
func (x *exchange) again() bool {
	r := x.request
	whole := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	return whole && !x.got && r.Context().Err() == nil && (!x.wrote || idempotent(r))
}

// idempotent reports whether a request may be answered twice (RFC 9110, section 9.2.2). As for net/http's Transport, a
// key without values says so and is not sent.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, has := r.Header["Idempotency-Key"]
	return has
}

// roundTrip reads the answer once the request has been written, or while a large one is: it may be answered before.
func (x *exchange) roundTrip() (resp *http.Response, err error) {
	r := x.request
	x.inTop, x.top, x.wrote, x.refused = true, largestTop, false, false
	x.release = context.AfterFunc(r.Context(), x.interrupt)
	defer func() {
		if err != nil {
			err = x.end(false, err)
		}
	}()
	if r.Body == nil || r.Body == http.NoBody || r.GetBody != nil && uint64(r.ContentLength) <= smallBody {
		if err := x.send(r); err != nil && !x.refused { // if it was refused, there may be an answer that says why
			return nil, err
		}
	} else {
		x.sent = make(chan error, 1)
		go func() {
			err := x.send(r)
			wrong := err != nil && !x.refused // with the body: there will be no answer
			x.sent <- err
			if wrong {
				x.interrupt()
			}
		}()
	}
	if resp, err = x.receive(); err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if !x.release() {
			return nil, r.Context().Err()
		}
		resp.Body = upgraded{x.conn}
	case resp.Body == http.NoBody:
		_ = x.end(!resp.Close, nil)
	default:
		resp.Body = &body{Reader: resp.Body, exchange: x, keep: !resp.Close}
	}
	return resp, nil
}

var writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}

func (x *exchange) send(r *http.Request) error {
	w := writers.Get().(*bufio.Writer)
	w.Reset(x.conn)
	err := r.Write(w)
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	return err
}

// receive reads the head of the answer, after informational ones.
func (x *exchange) receive() (*http.Response, error) {
	trace := httptrace.ContextClientTrace(x.request.Context())
	if _, err := x.in.Peek(1); err != nil {
		return nil, err
	}
	x.got = true
	if trace != nil && trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	for {
		resp, err := http.ReadResponse(x.in, x.request)
		switch {
		case err != nil && x.top <= 0: // what is wrong with it is that it was cut off
			return nil, errTop
		case err != nil:
			return nil, err
		case resp.StatusCode < 100:
			return nil, fmt.Errorf("malformed HTTP status code %q", resp.Status)
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			x.inTop = false
			return resp, nil
		}
		if trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// end keeps the connection or closes it, and says why the exchange failed, if it did. A connection is not kept if the
// answer came before the request had been sent, or if more came than the answer.
func (x *exchange) end(keep bool, err error) error {
	keep = x.release() && keep && x.in.Buffered() == 0
	sent, wrong := true, error(nil)
	switch {
	case x.sent == nil:
	case keep || x.request.GetBody == nil:
		select {
		case wrong = <-x.sent:
		default:
			sent = false // the body is still being read, or is not taken
		}
	default: // a body in memory: writing it fails at once
		_ = x.Close()
		wrong = <-x.sent
	}
	if keep && sent && !x.refused && wrong == nil {
		x.client.put(x.conn)
		return err
	}
	_ = x.Close()
	switch {
	case err == nil || err == io.EOF:
		return err
	case x.request.Context().Err() != nil:
		return context.Cause(x.request.Context())
	case sent && wrong != nil && !x.refused:
		return wrong
	}
	return err
}

// body is that of an answer. At its end, the connection is free for another request.
type body struct {
	io.Reader
	exchange *exchange
	keep     bool
	err      error // after which there is nothing to read
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.Reader.Read(p)
	if err != nil {
		b.err = b.exchange.end(b.keep && err == io.EOF, err)
	}
	return n, b.err
}

// Close does not read what is left: it closes the connection instead.
func (b *body) Close() error {
	if b.err == nil {
		b.err = b.exchange.end(false, errClosed)
	}
	return nil
}

// upgraded is a connection that speaks another protocol from now on.
type upgraded struct{ *conn }

func (u upgraded) Read(p []byte) (int, error) { return u.in.Read(p) }

func (u upgraded) CloseWrite() error { return u.Conn.(*net.TCPConn).CloseWrite() }

// take returns an idle connection that is still open; nil: there is none.
func (c *Client) take(host string) *conn {
	for {
		c.mu.Lock()
		list := c.idle[host]
		if len(list) == 0 {
			c.mu.Unlock()
			return nil
		}
		k := list[len(list)-1]
		list[len(list)-1] = nil
		c.idle[host] = list[:len(list)-1]
		c.mu.Unlock()
		if k.quiet() {
			return k
		}
		_ = k.Close()
	}
}

// quiet reports whether a connection is open and nothing has come on it, which no request has asked for.
func (k *conn) quiet() (quiet bool) {
	var one [1]byte
	err := k.raw.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), one[:])
		quiet = err == syscall.EAGAIN
		return true
	})
	return err == nil && quiet
}

func (c *Client) put(k *conn) {
	k.since = c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle[k.host]) >= mostIdle {
		_ = k.Close()
		return
	}
	c.idle[k.host] = append(c.idle[k.host], k)
	if c.check == nil {
		c.check = time.AfterFunc(checkEvery, c.tidy)
	}
}

// tidy closes idle connections that have not been used for long, or that the other side has closed.
func (c *Client) tidy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	for host, list := range c.idle {
		list = slices.DeleteFunc(list, func(k *conn) bool {
			gone := now.Sub(k.since) > idleFor || !k.quiet()
			if gone {
				_ = k.Close()
			}
			return gone
		})
		if c.idle[host] = list; len(list) == 0 {
			delete(c.idle, host)
		}
	}
	if c.check = nil; len(c.idle) > 0 {
		c.check = time.AfterFunc(checkEvery, c.tidy)
	}
}

// CloseIdleConnections closes the connections that no request has.
func (c *Client) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range c.idle {
		for _, k := range list {
			_ = k.Close()
		}
	}
	clear(c.idle)
	if c.check != nil {
		c.check.Stop()
		c.check = nil
	}
}
