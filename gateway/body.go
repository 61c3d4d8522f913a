package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	largestBody  = 64 << 20 // most bytes of a body that the gateway has to parse
	replayedBody = 1 << 20  // most bytes of a body that is kept while it is passed on
)

// Errors of bodies.
var (
	errBodyLarge  = fmt.Errorf("the request has more than %d MiB", largestBody>>20)
	errBodyMemory = errors.New("too many large requests at once")
)

// pacedBody is a request's body that must keep coming: a client that sends it a byte at a time is cut off.
type pacedBody struct {
	io.ReadCloser
	answer   *answer
	began    time.Time
	received int64
	due      time.Time
	progress func() // called after each read; may be nil
}

func (b *pacedBody) setDeadline(due time.Time) {
	b.due = due
	_ = b.answer.control.SetReadDeadline(due) // fails only in tests without a connection
}

func (b *pacedBody) Read(p []byte) (int, error) {
	s := b.answer.server
	coming := time.Duration(float64(b.received) / float64(s.limits.BodyRate) * float64(time.Second))
	due := b.began.Add(s.limits.Body + coming)
	if due.Sub(b.due) > s.limits.Body/8 {
		b.setDeadline(due)
	}
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	if b.progress != nil {
		b.progress()
	}
	if err == io.EOF {
		_ = b.answer.control.SetReadDeadline(time.Time{}) // the server reads on, to notice that the client leaves
	}
	return n, err
}

// keep reads up to a number of bytes of a body, and reports whether that is all of it. The bytes count as memory in use
// until the caller calls release with their number.
func (s *Server) keep(r *http.Request, most int64) (body []byte, whole bool, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true, nil
	}
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(int(min(r.ContentLength+bytes.MinRead, most, replayedBody)))
	}
	for {
		n, err := io.CopyN(&b, r.Body, min(replayedBody, most-int64(b.Len())))
		if s.kept.Add(n) > s.limits.Buffered {
			s.release(b.Len())
			return nil, false, errBodyMemory
		}
		switch {
		case errors.Is(err, io.EOF):
			return b.Bytes(), true, nil
		case err != nil:
			s.release(b.Len())
			return nil, false, err
		case int64(b.Len()) == most:
			return b.Bytes(), false, nil
		}
	}
}

func (s *Server) release(n int) { s.kept.Add(-int64(n)) }

// readBody reads the whole body of a request that the gateway has to understand; false: the answer has been given.
func (s *Server) readBody(a *answer, r *http.Request) ([]byte, bool) {
	body, whole, err := s.keep(r, largestBody+1)
	if err == nil && !whole {
		s.release(len(body))
		err = errBodyLarge
	}
	if err != nil {
		a.refuseBody(err)
		return nil, false
	}
	return body, true
}

// modelOf is the model that a body names: JSON, or a form, such as audio to transcribe comes in.
func modelOf(contentType string, body []byte) (string, error) {
	kind, params, _ := mime.ParseMediaType(contentType)                     // what is not known is JSON
	switch object := bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")); { // curl -d says form of all that it sends
	case kind == "multipart/form-data":
		parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if errors.Is(err, io.EOF) {
				return "", nil
			}
			if err != nil {
				return "", fmt.Errorf("the body is no form: %w", err)
			}
			if part.FormName() == "model" {
				const longest = 256 // of a name
				name, err := io.ReadAll(io.LimitReader(part, longest))
				return string(name), err
			}
		}
	case kind == "application/x-www-form-urlencoded" && !object:
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return "", fmt.Errorf("the body is no form: %w", err)
		}
		return form.Get("model"), nil
	}
	var named struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(body, &named); err != nil {
		return "", fmt.Errorf("the body is no JSON object: %w", err)
	}
	return named.Model, nil
}

// refuseBody answers a request whose body did not come as it should.
func (a *answer) refuseBody(err error) {
	switch {
	case errors.Is(err, errBodyLarge):
		a.fail(http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, errBodyMemory):
		a.Header().Set("Retry-After", "1")
		a.fail(http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		a.fail(http.StatusRequestTimeout, "the request comes too slowly")
	default:
		a.fail(http.StatusBadRequest, "the request cannot be read: "+err.Error())
	}
}
