package gateway

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// raw is a backend below HTTP: it reads a request, and then does what a test wants with the connection.
type raw struct {
	url  string
	seen atomic.Int64 // requests
}

func newRaw(t *testing.T, does func(c net.Conn)) *raw {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &raw{url: "http://" + l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				b.seen.Add(1)
				does(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return b
}

func says(text string) func(net.Conn) { return func(c net.Conn) { _, _ = io.WriteString(c, text) } }

// hangs keeps the connection until the other side closes it.
func hangs(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }

// nowhere is an address at which nothing answers. A socket that does not listen holds it until the test ends, or
// another process could be given the port.
func nowhere(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// plain is a backend that answers with a text, and counts.
func plain(t *testing.T, text string, takes time.Duration) (*httptest.Server, *atomic.Int64) {
	n := &atomic.Int64{}
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		n.Add(1)
		time.Sleep(takes)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(b.Close)
	return b, n
}

// serveReal serves with the limits of the program.
func serveReal(t *testing.T, c *Config, l Limits) (*Server, string) {
	t.Helper()
	return serveAt(t, c, Options{Clock: time.Now, Limits: l})
}

func serveAt(t *testing.T, c *Config, o Options) (*Server, string) {
	t.Helper()
	s := New(o)
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := s.HTTP()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Serve(at)
	}()
	t.Cleanup(func() {
		_ = h.Close()
		<-ended
		s.Close()
	})
	return s, "http://" + at.Addr().String()
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func newHandler(t *testing.T, h http.HandlerFunc) *httptest.Server {
	b := httptest.NewServer(h)
	t.Cleanup(b.Close)
	return b
}

// status is that of a GET; 0: the connection broke.
func status(t *testing.T, url string) int {
	resp, err := http.DefaultClient.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// TestPassesOn: what HTTP has beside a head and a body comes through: informational answers, trailers, HEAD, a body
// that is announced with Expect, and an answer before it.
func TestPassesOn(t *testing.T) {
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		n, err := io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-After")
		_, _ = fmt.Fprintf(w, "%s %d %v %s", r.Method, n, err, r.Header.Get("Expect"))
		w.Header().Set("X-After", "end")
	})
	_, url := serveReal(t, one(b.URL), Limits{})
	for _, size := range []int64{10, 2 * replayedBody} {
		hints := 0
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if code == http.StatusEarlyHints && h.Get("Link") == "</x>" {
					hints++
				}
				return nil
			}}), http.MethodPost, url+"/app/x", io.LimitReader(zero{}, size))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := fmt.Sprintf("POST %d <nil> ", size)
		if string(text) != want || err != nil || hints != 1 || resp.Trailer.Get("X-After") != "end" {
			t.Errorf("%q %v, want %q; %d hints, trailers %v", text, err, want, hints, resp.Trailer)
		}
		r, _ = http.NewRequest(http.MethodPost, url+"/app/refused", io.LimitReader(zero{}, size))
		if resp, err = http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Error(resp, err)
		}
		resp.Body.Close()
	}
	resp, err := http.Head(url + "/app/x")
	if err != nil || resp.StatusCode != 200 || resp.Trailer != nil {
		t.Error(resp, err)
	}
}

// TestSecureReplica: a replica may have TLS, and then speak HTTP/2.
func TestSecureReplica(t *testing.T) {
	b := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	b.EnableHTTP2 = true
	b.StartTLS()
	t.Cleanup(b.Close)
	s, url := serveReal(t, one(b.URL), Limits{})
	s.transport.secure.TLSClientConfig = b.Client().Transport.(*http.Transport).TLSClientConfig
	if status, text := post(t, url+"/app/x", "x"); status != 200 || text != "HTTP/2.0" {
		t.Error(status, text)
	}
}
