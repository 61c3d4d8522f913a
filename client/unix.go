package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// unixSocket speaks HTTP/1.1 with a daemon behind a Unix socket, with a connection for each request. It does
// without net/http because it is in programs that are started by the thousand: initialising net/http and TLS
// takes longer than a request.
type unixSocket string

// Exchange sends a request and returns the answer.
func (path unixSocket) Exchange(ctx context.Context, r *Request) (*Response, error) {
	text, err := r.encode()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, &BrokenError{Method: r.Method, Path: r.Path, Err: err}
	}
	c, err := dial(string(path))
	if err != nil {
		return nil, &DialError{Err: err}
	}
	unwatch := context.AfterFunc(ctx, func() { _ = c.SetDeadline(longAgo) }) // unblocks reads and writes
	_, sent := c.Write(text)
	in := bufio.NewReader(c)
	resp, body, err := readResponse(in) // a daemon that refuses a request may not have read all of it
	if err != nil {
		unwatch()
		_ = c.Close()
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case sent != nil:
			err = sent
		}
		return nil, &BrokenError{Method: r.Method, Path: r.Path, Err: err}
	}
	a := &answer{ctx: ctx, conn: c, body: body, unwatch: unwatch}
	if resp.Body = a; resp.Status == switchingProtocols {
		resp.Body = &switched{a}
	}
	return resp, nil
}

var longAgo = time.Unix(1, 0)

// encode is the request as it is sent.
func (r *Request) encode() ([]byte, error) {
	if i := strings.IndexFunc(r.Path, func(c rune) bool { return c <= ' ' || c >= 0x7f }); i >= 0 ||
		!strings.HasPrefix(r.Path, "/") {
		return nil, errors.New("a request's path must begin with a slash and have printable ASCII only: " +
			strconv.Quote(r.Path))
	}
	out := make([]byte, 0, 256+len(r.Path)+len(r.Body))
	out = append(out, r.Method+" "+r.Path+" HTTP/1.1\r\nHost: muster\r\n"...)
	keeps := true
	for i := 0; i+1 < len(r.Header); i += 2 {
		name, value := r.Header[i], r.Header[i+1]
		if strings.ContainsAny(name+value, "\r\n\x00") {
			return nil, errors.New("a request's header must not have line breaks: " + strconv.Quote(name+": "+value))
		}
		keeps = keeps && name != "Connection"
		out = append(out, name+": "+value+"\r\n"...)
	}
	if keeps {
		out = append(out, "Connection: close\r\n"...)
	}
	if r.Body != nil {
		out = append(out, "Content-Length: "+strconv.Itoa(len(r.Body))+"\r\n"...)
	}
	out = append(out, "\r\n"...)
	return append(out, r.Body...), nil
}

// answer is the body of an answer, with its connection.
type answer struct {
	ctx     context.Context
	conn    *os.File
	body    io.Reader
	unwatch func() bool
}

// Read reads the body.
func (a *answer) Read(b []byte) (int, error) {
	n, err := a.body.Read(b)
	if err != nil && a.ctx.Err() != nil {
		err = a.ctx.Err() // the cause of the closed connection
	}
	return n, err
}

// Close ends the connection.
func (a *answer) Close() error {
	a.unwatch()
	return a.conn.Close()
}

// switched is a connection after a switch to another protocol.
type switched struct{ *answer }

// Write writes to the connection.
func (s *switched) Write(b []byte) (int, error) { return s.conn.Write(b) }

// dial connects to a Unix socket. Connecting blocks while many others connect; after that the descriptor does
// not block, so that a read that waits for an answer can be cancelled.
func dial(path string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	for {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		if err != syscall.EINTR {
			break
		}
	}
	if err = os.NewSyscallError("connect", err); err == nil {
		err = os.NewSyscallError("fcntl", syscall.SetNonblock(fd, true))
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}
