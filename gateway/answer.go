package gateway

import (
	"net/http"
	"time"
)

// answer is the response to a request. It keeps what the access log and the metrics say of it, and gives up on a client
// that does not read: each write has a deadline.
type answer struct {
	http.ResponseWriter
	server  *Server
	control *http.ResponseController
	http2   bool
	openAI  bool      // errors are in the form of OpenAI's interface
	due     time.Time // the deadline of writes that is set, with HTTP/1
	status  int       // 0: nothing has been written

	pool    *pool  // nil: the request names no service
	replica string // ID of the last replica that had the request
	batch   int    // samples of its batch
	key     string // name of the caller's key
	need    need   // of a bulk request
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader notes the status, unless it is an informational one.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.setDeadline()
	n, err := a.ResponseWriter.Write(p)
	a.clearDeadline()
	return n, err
}

// FlushError sends what has been written.
func (a *answer) FlushError() error {
	a.setDeadline()
	err := a.control.Flush()
	a.clearDeadline()
	return err
}

// setDeadline limits how long the next write may take. With HTTP/1 the deadline belongs to the connection and matters
// only while a write is blocked, so it is moved only now and then; with HTTP/2 it resets the stream when it passes,
// even if nothing is being written, so it is cleared after each write.
func (a *answer) setDeadline() {
	now := a.server.clock()
	stall := a.server.limits.WriteStall
	if a.http2 || a.due.Sub(now) < stall/2 {
		a.due = now.Add(stall)
		_ = a.control.SetWriteDeadline(a.due) // fails only in tests without a connection
	}
}

func (a *answer) clearDeadline() {
	if a.http2 {
		_ = a.control.SetWriteDeadline(time.Time{})
	}
}
