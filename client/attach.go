package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/frames"
)

// How long a client waits for a daemon that is gone, possibly to be restarted.
const (
	patience   = time.Minute
	retryEvery = 200 * time.Millisecond
)

// away reports whether an error means that the daemon is gone, not that it refused.
func away(ctx context.Context, err error) bool {
	var no *Error
	switch {
	case err == nil || ctx.Err() != nil || errors.As(err, new(*sinkError)):
		return false
	case errors.As(err, &no):
		return no.Unavailable() || strings.Contains(no.Detail, "daemon is ending")
	}
	return true
}

// sink marks errors of the writer, which say nothing about the daemon.
type sink struct{ w io.Writer }

type sinkError struct{ error }

func (e *sinkError) Unwrap() error { return e.error }

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err != nil {
		err = &sinkError{err}
	}
	return n, err
}

// patiently retries while the daemon is away.
func patiently(ctx context.Context, ask func() error) error {
	for waited := time.Duration(0); ; waited += retryEvery {
		err := ask()
		if !away(ctx, err) || waited >= patience {
			return err
		}
		if !errors.Is(err, ErrNoServer) {
			waited = 0 // it answered, and went away just now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// WaitOn is Wait that survives a restart of the daemon.
func (c *Client) WaitOn(ctx context.Context, id int) (j api.Job, err error) {
	return j, patiently(ctx, func() (err error) {
		j, err = c.Wait(ctx, id)
		return err
	})
}

// FollowLog copies a task's output to w until the job is over, across restarts of the daemon.
func (c *Client) FollowLog(ctx context.Context, id, task int, stream string, w io.Writer) error {
	at := int64(0)
	out := &sink{w: w}
	return patiently(ctx, func() error {
		for {
			q := map[string][]string{"task": {strconv.Itoa(task)}, "stream": {stream}, "follow": {"true"},
				"from": {strconv.FormatInt(at, 10)}}
			resp, err := c.open(ctx, get, "/v1/jobs/"+strconv.Itoa(id)+"/log?"+query(q), nil)
			if err != nil {
				return err
			}
			n, err := io.Copy(out, resp.Body)
			at += n
			if err = errors.Join(err, resp.Body.Close()); err != nil {
				return err
			}
			if j, err := c.Job(ctx, id); err != nil || j.Ended != nil {
				return err
			}
		}
	})
}

// terminal connects to a job's terminal, or its standard input.
func (c *Client) terminal(ctx context.Context, id int, input bool) (io.ReadWriteCloser, error) {
	resp, err := c.open(ctx, get, fmt.Sprintf("/v1/jobs/%d/tty?input=%t", id, input), nil, "Connection", "Upgrade",
		"Upgrade", "muster-tty")
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.Status != switchingProtocols || !ok {
		return nil, errors.Join(fmt.Errorf("the server answers %s where it should switch to the terminal", resp.Reason),
			resp.Body.Close())
	}
	return conn, nil
}

// Window is the size of a terminal.
type Window struct{ Rows, Columns int }

// Screen connects a job's terminal with the caller's: typed goes to the job, its output to out, until the job is
// over or the context ends. It survives a restart of the daemon; no output is shown twice.
func (c *Client) Screen(ctx context.Context, id int, typed <-chan []byte, size <-chan Window, out io.Writer) error {
	s := &screen{typed: typed, size: size, out: out}
	return patiently(ctx, func() error {
		for {
			conn, err := c.terminal(ctx, id, false)
			if err == nil {
				err = s.tie(ctx, conn)
			}
			if ctx.Err() != nil || away(ctx, err) {
				return err
			}
			if j, gone := c.Job(ctx, id); gone != nil || j.Ended != nil {
				return gone
			}
			if err != nil {
				return err
			}
		}
	})
}

type screen struct {
	typed  <-chan []byte
	size   <-chan Window
	last   Window
	out    io.Writer
	run    uint64
	seen   uint64 // bytes of its output
	failed error  // of out
}

// tie serves one connection until it breaks; after nil, the state of the job decides what to do.
func (s *screen) tie(ctx context.Context, conn io.ReadWriteCloser) error {
	defer conn.Close()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.show(conn)
	}()
	var err error
	if s.last.Rows > 0 {
		err = frames.WriteSize(conn, s.last.Rows, s.last.Columns)
	}
	for err == nil {
		select {
		case <-over:
			return s.failed
		case <-ctx.Done():
			err = ctx.Err()
			_ = conn.Close()
		case s.last = <-s.size:
			err = frames.WriteSize(conn, s.last.Rows, s.last.Columns)
		case b := <-s.typed:
			for ; len(b) > 0 && err == nil; b = b[min(len(b), frames.Most):] {
				err = frames.Write(conn, frames.Data, b[:min(len(b), frames.Most)])
			}
		}
	}
	<-over // what the task said last may still be on its way after it takes no more input
	return s.failed
}

// show copies the terminal's output, except what was shown already.
func (s *screen) show(conn io.Reader) {
	buf := make([]byte, frames.Most)
	at := uint64(0)
	for {
		k, b, err := frames.Read(conn, buf)
		if err != nil {
			return
		}
		switch k {
		case frames.Screen:
			run, from, ok := frames.ReadScreen(b)
			if !ok {
				return
			}
			if at = from; run != s.run { // a new run starts its output from the beginning
				s.run, s.seen = run, 0
			}
		case frames.Data:
			end := at + uint64(len(b))
			if fresh := min(uint64(len(b)), end-min(end, s.seen)); fresh > 0 {
				if _, s.failed = s.out.Write(b[uint64(len(b))-fresh:]); s.failed != nil {
					return
				}
			}
			at, s.seen = end, max(s.seen, end)
		}
	}
}

// mostKept is how much of the input is kept in case the job, or the daemon, needs it again.
const mostKept = 1 << 20

// ErrInputLost is returned when a job was started again after it had read more input than is kept.
var ErrInputLost = errors.New("the job was started again, and the input that it had read is gone")

// Feed passes in on to a job's standard input until the job is over. A restart of the daemon loses none of it.
func (c *Client) Feed(ctx context.Context, id int, in io.Reader) error {
	f := &feeder{more: make(chan []byte)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.read(ctx, in)
	return patiently(ctx, func() error {
		for {
			conn, err := c.terminal(ctx, id, true)
			if err != nil {
				var no *Error
				if errors.As(err, &no) && no.Status == conflict && !away(ctx, err) {
					return nil // the job is over
				}
				return err
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			err = f.feed(conn)
			stop()
			if err = errors.Join(err, conn.Close()); errors.Is(err, ErrInputLost) || ctx.Err() != nil {
				return err
			}
		}
	})
}

type feeder struct {
	more chan []byte
	kept bytes.Buffer
	base uint64 // of kept in the whole input
	end  bool
}

// read reads the input in pieces.
func (f *feeder) read(ctx context.Context, in io.Reader) {
	defer close(f.more)
	for {
		b := make([]byte, 32<<10)
		n, err := in.Read(b)
		if n > 0 {
			select {
			case f.more <- b[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// feed serves one connection until it breaks: one piece at a time, the next when the task has taken it.
func (f *feeder) feed(conn io.ReadWriter) error {
	buf := make([]byte, frames.Most)
	said := false
	for {
		k, b, err := frames.Read(conn, buf)
		if err != nil {
			return nil
		}
		taken, ok := frames.ReadCount(b)
		if k != frames.Taken || !ok {
			return errors.New("the task's side speaks another protocol: it may be of another version")
		}
		if taken < f.base {
			return ErrInputLost
		}
		if said {
			continue // nothing more to send: wait for the end
		}
		rest := f.kept.Bytes()[min(taken-f.base, uint64(f.kept.Len())):]
		if len(rest) == 0 && !f.end {
			if f.kept.Len() > mostKept {
				f.base += uint64(f.kept.Len())
				f.kept.Reset()
			}
			if rest, ok = <-f.more; !ok {
				f.end = true
			}
			f.kept.Write(rest)
		}
		if len(rest) == 0 {
			said, err = true, frames.Write(conn, frames.End, nil)
		} else {
			err = frames.Write(conn, frames.Data, rest[:min(len(rest), frames.Most)])
		}
		if err != nil {
			return nil
		}
	}
}

// Changes calls tell whenever something changed, and once at the beginning, until the context ends; it survives
// a restart of the daemon.
func (c *Client) Changes(ctx context.Context, tell func()) error {
	return patiently(ctx, func() error {
		for {
			resp, err := c.open(ctx, get, "/v1/events", nil)
			if err != nil {
				return err
			}
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "data:") {
					tell()
				}
			}
			if err := errors.Join(lines.Err(), resp.Body.Close(), ctx.Err()); err != nil {
				return err
			}
		}
	})
}
