package client

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Transport carries requests to a server.
type Transport interface {
	// Exchange sends a request and returns the answer, whose body the caller closes. If the server cannot be
	// reached it returns a DialError.
	Exchange(ctx context.Context, r *Request) (*Response, error)
}

// Request is a request.
type Request struct {
	Method, Path string
	Header       []string // alternating names and values
	Body         []byte
}

// Response is the answer to a request.
type Response struct {
	Status int
	Reason string // the status in words
	// Body of an answer that switches to another protocol (101) is an io.ReadWriteCloser.
	Body io.ReadCloser
}

const get, post = "GET", "POST"

// The statuses that have a meaning to a client.
const (
	switchingProtocols = 101
	noContent          = 204
	badRequest         = 400
	unauthorized       = 401
	notFound           = 404
	conflict           = 409
	unavailable        = 503
)

// Gone reports whether the requested object does not exist.
func (e *Error) Gone() bool { return e.Status == notFound }

// Unavailable reports whether the server cannot answer at the moment.
func (e *Error) Unavailable() bool { return e.Status == unavailable }

// DialError says why the server could not be reached.
type DialError struct{ Err error }

func (e *DialError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// BrokenError says that a request was sent, or could not be, and no answer came back.
type BrokenError struct {
	Method, Path string
	Err          error
}

func (e *BrokenError) Error() string { return fmt.Sprintf("%s %s: %v", e.Method, e.Path, e.Err) }

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// query appends parameters to a path, in the order of their names.
func query(q map[string][]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(q)) {
		for _, v := range q[name] {
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(Escape(name) + "=" + Escape(v))
		}
	}
	return b.String()
}

// Escape escapes a text for a path, or for a parameter.
func Escape(s string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			out = append(out, c)
		default:
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}
