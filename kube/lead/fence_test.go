package lead

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// manual is a clock that a test sets.
type manual struct{ at atomic.Int64 }

func (m *manual) now() time.Duration { return time.Duration(m.at.Load()) }

func fenceAt(at time.Duration) (*Fence, *manual) {
	m := &manual{}
	m.at.Store(int64(at))
	return &Fence{clock: m.now}, m
}

// server answers every request, and says which timeout it was asked to keep.
func server(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

func ask(ctx context.Context, t *testing.T, f *Fence, method, url string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: f.Wrap(http.DefaultTransport)}).Do(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// What only reads always passes; what writes passes while the lease is held, and not a moment after a pause that was
// longer.
func TestFence(t *testing.T) {
	var asked atomic.Pointer[string]
	s := server(t, func(_ http.ResponseWriter, r *http.Request) {
		q := r.URL.Query().Get("timeout")
		asked.Store(&q)
	})
	f, clock := fenceAt(100 * time.Second)
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	refused := func(when string) {
		t.Helper()
		for _, m := range writes {
			if err := ask(t.Context(), t, f, m, s.URL+"/api/v1/namespaces/a/pods/b"); !errors.Is(err, ErrNotHeld) {
				t.Errorf("%s %s: %v", m, when, err)
			}
		}
		for _, path := range []string{"/apis/authentication.k8s.io/v1/tokenreviews",
			"/apis/authorization.k8s.io/v1/subjectaccessreviews"} {
			if err := ask(t.Context(), t, f, http.MethodPost, s.URL+path); err != nil {
				t.Errorf("a review %s: %v", when, err)
			}
		}
		if err := ask(t.Context(), t, f, http.MethodGet, s.URL+"/api/v1/pods?watch=1"); err != nil {
			t.Errorf("GET %s: %v", when, err)
		}
	}
	refused("before the lease is won")
	f.hold(105 * time.Second)
	for _, m := range writes {
		if err := ask(t.Context(), t, f, m, s.URL+"/api/v1/namespaces/a/pods/b?dryRun=All"); err != nil {
			t.Errorf("%s while the lease is held: %v", m, err)
		}
		if got := *asked.Load(); got != "5s" {
			t.Errorf("%s: the API server is given %q to answer, not what is left of the lease", m, got)
		}
	}
	clock.at.Store(int64(105 * time.Second))
	refused("when the lease ends")
	f.hold(110 * time.Second)
	f.reset()
	refused("before it is won again")
}

// A write that was begun is answered before drain returns, though its caller has given up; none begins after it.
func TestDrain(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	s := server(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-answer
	})
	f, _ := fenceAt(time.Second)
	f.hold(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	outcome := make(chan error, 1)
	go func() { outcome <- ask(ctx, t, f, http.MethodPost, s.URL) }()
	<-arrived
	cancel()
	drained := make(chan struct{})
	go func() {
		f.drain()
		close(drained)
	}()
	for f.Check() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := ask(t.Context(), t, f, http.MethodPost, s.URL); !errors.Is(err, ErrNotHeld) {
		t.Errorf("a write after the end: %v", err)
	}
	select {
	case <-drained:
		t.Error("the end did not wait for a write that had begun")
	default:
	}
	close(answer)
	<-drained
	if err := <-outcome; err != nil {
		t.Errorf("a write that had begun: %v", err)
	}
}

// A write that is not answered ends with the lease.
func TestUnanswered(t *testing.T) {
	s := server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f, _ := fenceAt(time.Second)
	f.hold(time.Second + 100*time.Millisecond)
	if err := ask(t.Context(), t, f, http.MethodPost, s.URL); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	f.drain()
}

// The clock goes on while the process is stopped.
func TestClock(t *testing.T) {
	before := bootTime()
	// A shell stops this process for a moment, because a process that is stopped cannot wake itself.
	pid := syscall.Getpid()
	c := exec.Command("sh", "-c",
		strings.NewReplacer("PID", strconv.Itoa(pid)).Replace("kill -STOP PID; sleep 0.3; kill -CONT PID"))
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if took := bootTime() - before; took < 300*time.Millisecond {
		t.Errorf("%s passed while the process was stopped for 300ms", took)
	}
}
