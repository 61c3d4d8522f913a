package lead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// ErrNotHeld is returned for a write while the lease is not surely held: another scheduler may lead.
var ErrNotHeld = errors.New("the lease is not surely held, so nothing is written: another scheduler may lead")

// leastLeft is how much of the lease has to be left for a write to begin.
const leastLeft = 50 * time.Millisecond

// Fence stands before every write of a scheduler. It opens with a renewal of the lease and closes by itself when the
// lease may have run out, however long the process was paused meanwhile.
type Fence struct {
	clock func() time.Duration // counts while the process is paused

	mu       sync.Mutex
	until    time.Duration // before this time of the clock no other can hold the lease
	draining bool
	flying   int           // writes that have not been answered
	landed   chan struct{} // closed when none is left; nil: none waits for that
}

// NewFence returns a fence that is closed until a Lease opens it.
func NewFence() *Fence { return &Fence{clock: bootTime} }

// Check reports whether the lease is surely held now.
func (f *Fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.left()
	return err
}

// left is how long the lease is still surely held; f.mu is held.
func (f *Fence) left() (time.Duration, error) {
	left := f.until - f.clock()
	if f.draining || left < leastLeft {
		return 0, ErrNotHeld
	}
	return left, nil
}

// hold lets writes pass until a time of the clock.
func (f *Fence) hold(until time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = until
}

// reset makes the fence ready for another term; it stays closed until the lease is won.
func (f *Fence) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until, f.draining = 0, false
}

// enter begins a write, which has to end within left.
func (f *Fence) enter() (left time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if left, err = f.left(); err == nil {
		f.flying++
	}
	return left, err
}

func (f *Fence) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flying--
	if f.flying == 0 && f.landed != nil {
		close(f.landed)
		f.landed = nil
	}
}

// drain refuses further writes and returns when those that have begun are answered. That takes no longer than the
// lease lasts, because none may take longer.
func (f *Fence) drain() {
	f.mu.Lock()
	f.draining = true
	var landed chan struct{}
	if f.flying > 0 {
		landed = make(chan struct{})
		f.landed = landed
	}
	f.mu.Unlock()
	if landed != nil {
		<-landed
	}
}

// Wrap puts the fence before a client (rest.Config.Wrap): requests that change something are refused with ErrNotHeld
// unless the lease is surely held. Those that pass are to be answered while it is held, by the API server's own count
// too, and are not cancelled half way: a write whose outcome is not known would be worse than one that takes a moment.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return &gate{f, next} }

type gate struct {
	fence *Fence
	next  http.RoundTripper
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if !changes(r) {
		return g.next.RoundTrip(r)
	}
	left, err := g.fence.enter()
	if err == nil && r.Context().Err() != nil {
		g.fence.leave()
		err = context.Cause(r.Context())
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the caller of a RoundTripper expects that in any case
		}
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), left)
	done := sync.OnceFunc(func() {
		cancel()
		g.fence.leave()
	})
	r = r.Clone(ctx)
	q := r.URL.Query()
	q.Set("timeout", left.Round(time.Millisecond).String())
	r.URL.RawQuery = q.Encode()
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &answer{resp.Body, done}
	return resp, nil
}

// answer tells when the answer to a write has been read.
type answer struct {
	io.ReadCloser
	done func()
}

// Close ends the write.
func (a *answer) Close() error {
	defer a.done()
	return a.ReadCloser.Close()
}

// changes reports whether a request changes something. A review is a question, though it is posted.
func changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/") &&
		!strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/")
}
