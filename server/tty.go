//go:build linux

package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/internal/frames"
)

// ttyProtocol is the protocol to which a connection to a terminal is upgraded.
const ttyProtocol = "muster-tty"

// tty connects the caller to the terminal of a job's first task, or, with
// input=true, to its standard input: the connection is upgraded and carries
// frames both ways (internal/frames).
func (s *Server) tty(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		refuse(w, http.StatusNotFound, fmt.Sprintf("%q is not the number of a job", r.PathValue("id")))
		return
	}
	if err := s.mayType(r.Context(), id); err != nil {
		refuseFor(w, err)
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), ttyProtocol) {
		w.Header().Set("Upgrade", ttyProtocol)
		refuse(w, http.StatusUpgradeRequired, "ask for the upgrade to "+ttyProtocol+", as muster attach does")
		return
	}
	input := r.URL.Query().Get("input") == "true"
	task, err := s.m.Terminal(r.Context(), id, input)
	if err != nil {
		refuseFor(w, problem(err))
		return
	}
	defer task.Close()
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+ttyProtocol+"\r\n\r\n"); err != nil {
		return
	}
	if gone := join(r.Context(), c, buffered, task); !gone || !input {
		return
	}
	// The feeder of the input has gone, perhaps in the middle of a frame: the input ends here.
	if task, err := s.m.Terminal(r.Context(), id, true); err == nil {
		_ = frames.Write(task, frames.End, nil)
		_ = task.Close()
	}
}

// join copies in both directions until one side or the daemon is gone, and reports whether it was the caller.
func join(ctx context.Context, c net.Conn, from io.Reader, task net.Conn) bool {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = c.Close(); _ = task.Close() })
	go func() {
		defer close(over)
		_, _ = io.Copy(c, task) // an error means that one side is gone, which needs no report
		_ = c.Close()
	}()
	to := &taker{w: task}
	_, err := io.Copy(to, from)
	if to.refused { // the task is over: what it said last is still to be passed on
		<-over
	}
	gone := err == nil && stop()
	_ = task.Close()
	<-over
	return gone
}

// taker remembers that its writer took no more.
type taker struct {
	w       io.Writer
	refused bool
}

func (t *taker) Write(b []byte) (int, error) {
	n, err := t.w.Write(b)
	t.refused = err != nil
	return n, err
}

// mayType says why the caller may not use a job's terminal, if so. Typing acts as the job's owner, so an
// operator's role is not enough.
func (s *Server) mayType(ctx context.Context, id int) error {
	itself := func(who *Caller, owner string) bool { return who.Admin || who.User.Name == owner }
	return s.mayUse(ctx, id, itself, ": only they and admins may type into it")
}
