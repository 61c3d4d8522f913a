package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// replica is what a test wants of the other side of each connection.
type replica struct {
	url         string
	connections atomic.Int64
}

// serve answers connections by a script, which gets each with its number, from 1 on; it is closed when the script ends.
func serve(t testing.TB, script func(n int64, c net.Conn, in *bufio.Reader)) *replica {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{url: "http://" + l.Addr().String() + "/"}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := r.connections.Add(1)
			wg.Go(func() {
				defer c.Close()
				script(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return r
}

// next reads a request with its body; nil: there is none.
func next(in *bufio.Reader) (*http.Request, []byte) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil
	}
	return r, body
}

// each answers each request with the same.
func each(answer string) func(int64, net.Conn, *bufio.Reader) {
	return func(_ int64, c net.Conn, in *bufio.Reader) {
		for r, _ := next(in); r != nil; r, _ = next(in) {
			_, _ = io.WriteString(c, answer)
		}
	}
}

func client(t testing.TB) *Client {
	c := New(time.Now)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func request(t testing.TB, method, url, body string) *http.Request {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a request and reads the whole answer.
func ask(c http.RoundTripper, r *http.Request) (resp *http.Response, text string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	if resp, err = c.RoundTrip(r.WithContext(ctx)); err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp, string(all), err
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestKept: a connection is used again after an answer that is over for certain, and closed after any other.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		name, method, answer, text string
		status                     int
		again                      bool
	}{
		{"length", "GET", ok, "ok", 200, true},
		{"nothing", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 200, true},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "", 200, true},
		{"HEAD, chunked", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "", 200, true},
		{"204", "GET", "HTTP/1.1 204 No\r\n\r\n", "", 204, true},
		{"304", "GET", "HTTP/1.1 304 No\r\nContent-Length: 10\r\n\r\n", "", 304, true},
		{"chunks", "POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", "ok",
			200, true},
		{"trailers", "POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n" +
			"2\r\nok\r\n0\r\nX-T: 1\r\n\r\n", "ok", 200, true},
		{"100 first", "POST", "HTTP/1.1 100 Continue\r\n\r\n" + ok, "ok", 200, true},
		{"close", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", "ok", 200, false},
		{"1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 200, false},
		{"1.0, kept", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", "ok", 200, true},
		{"more than its length", "GET", ok + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", "ok", 200, false},
		{"more than its chunks", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + ok,
			"ok", 200, false},
		{"length and chunks", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"2\r\nok\r\n0\r\n\r\n", "ok", 200, true},
		{"204 with a body", "GET", "HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nok", "", 204, false},
		{"HEAD with a body", "HEAD", ok, "", 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, to := serve(t, each(c.answer)), client(t)
			for range 3 {
				resp, text, err := ask(to, request(t, c.method, s.url, ""))
				if err != nil || resp.StatusCode != c.status || text != c.text {
					t.Fatal(resp, text, err)
				}
				if c.name == "trailers" && resp.Trailer.Get("X-T") != "1" {
					t.Error(resp.Trailer)
				}
			}
			if want := map[bool]int64{true: 1, false: 3}[c.again]; s.connections.Load() != want {
				t.Errorf("%d connections, want %d", s.connections.Load(), want)
			}
		})
	}
}

// TestUntilClosed: an answer without a length ends with its connection.
func TestUntilClosed(t *testing.T) {
	s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		next(in)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nok")
	})
	if _, text, err := ask(client(t), request(t, "GET", s.url, "")); text != "ok" || err != nil {
		t.Error(text, err)
	}
}

// TestIdle: what comes on an idle connection, or that it is closed, costs no request, whatever its method.
func TestIdle(t *testing.T) {
	forged := "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
	for name, then := range map[string]string{"closed": "", "more": forged} {
		did := make(chan struct{})
		s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
			next(in)
			_, _ = io.WriteString(c, ok)
			if then == "" {
				_ = c.Close()
			} else {
				time.Sleep(10 * time.Millisecond)
				_, _ = io.WriteString(c, then)
			}
			did <- struct{}{}
			next(in)
		})
		to := client(t)
		for range 3 {
			if _, text, err := ask(to, request(t, "POST", s.url, "x")); text != "ok" || err != nil {
				t.Error(name, text, err)
			}
			<-did
		}
		if s.connections.Load() != 3 {
			t.Errorf("%s: %d connections", name, s.connections.Load())
		}
	}
}

// TestTidy: idle connections that are old, or that the other side has closed, do not stay.
func TestTidy(t *testing.T) {
	s := serve(t, func(n int64, c net.Conn, in *bufio.Reader) {
		next(in)
		_, _ = io.WriteString(c, ok)
		if n > 1 {
			next(in)
		}
	})
	to := client(t)
	idle := func() int {
		to.mu.Lock()
		defer to.mu.Unlock()
		return len(to.idle[strings.Trim(s.url, "htp:/")])
	}
	for range 2 {
		_, _, _ = ask(to, request(t, "GET", s.url, ""))
		for deadline := time.Now().Add(10 * time.Second); s.connections.Load() == 1 && idle() > 0; {
			to.tidy()
			if time.Now().After(deadline) {
				t.Fatal("a closed connection stays")
			}
		}
	}
	if to.tidy(); idle() != 1 {
		t.Errorf("%d", idle())
	}
	to.mu.Lock()
	for _, list := range to.idle {
		list[0].since = time.Now().Add(-idleFor - time.Second)
	}
	to.mu.Unlock()
	if to.tidy(); idle() != 0 || to.check != nil {
		t.Errorf("%d", idle())
	}
}

// TestAgain: a request on a connection that breaks without an answer is sent again only where that is safe.
func TestAgain(t *testing.T) {
	large := strings.Repeat("x", 4*smallBody)
	for _, c := range []struct {
		name, method, body, key, last string
		again                         bool
	}{
		{"GET", "GET", "", "", "", true},
		{"PUT", "PUT", "text", "", "", true},
		{"large PUT", "PUT", large, "", "", true},
		{"POST", "POST", "text", "", "", false},
		{"large POST", "POST", large, "", "", false},
		{"POST with a key", "POST", "text", "Idempotency-Key", "", true},
		{"half an answer", "GET", "", "", "HTTP/1.1 2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, func(n int64, conn net.Conn, in *bufio.Reader) {
				for i := 0; ; i++ {
					r, body := next(in)
					switch {
					case r == nil:
						return
					case i > 0 && n == 1:
						_, _ = io.WriteString(conn, c.last)
						return
					case i > 0 || n > 1:
						fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					default:
						_, _ = io.WriteString(conn, ok)
					}
				}
			})
			to := client(t)
			_, _, _ = ask(to, request(t, "GET", s.url, ""))
			r := request(t, c.method, s.url, c.body)
			if c.key != "" {
				r.Header.Set(c.key, "1")
			}
			if _, text, err := ask(to, r); (err == nil) != c.again || err == nil && text != c.body {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
	// Never on a connection that is new, and never with a body that cannot be read again.
	s := serve(t, func(_ int64, _ net.Conn, in *bufio.Reader) { next(in) })
	if _, _, err := ask(client(t), request(t, "GET", s.url, "")); err == nil || s.connections.Load() != 1 {
		t.Error(err, s.connections.Load())
	}
}

// TestEarly: an answer counts that comes before the body has been sent, whether the replica takes the body or not.
func TestEarly(t *testing.T) {
	for _, closes := range []bool{true, false} {
		release := make(chan struct{})
		s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
			_, _ = http.ReadRequest(in)
			_, _ = io.WriteString(c, "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
			if closes {
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, in)
			} else {
				<-release
			}
		})
		to := client(t)
		r := request(t, "POST", s.url, "")
		r.Body, r.GetBody, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 64<<20)), nil, 64<<20
		if resp, text, err := ask(to, r); err != nil || resp.StatusCode != 413 || text != "no" {
			t.Error(closes, resp, text, err)
		}
		if len(to.idle) != 0 {
			t.Error("the connection is kept, with half a request")
		}
		close(release)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestBodies: each form of a request's body comes as it was sent, and a connection is used again after it.
func TestBodies(t *testing.T) {
	s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		for {
			r, body := next(in)
			if r == nil {
				return
			}
			text := fmt.Sprintf("%d %v %s", len(body), r.TransferEncoding, r.Trailer.Get("X-T"))
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
	})
	to := client(t)
	for _, n := range []int{0, 1, smallBody, smallBody + 1, 3 << 20} {
		r := request(t, "POST", s.url, strings.Repeat("x", n))
		if _, text, err := ask(to, r); text != fmt.Sprintf("%d [] ", n) {
			t.Error(n, text, err)
		}
		r = request(t, "POST", s.url, "")
		r.Body, r.GetBody, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, int64(n))), nil, -1
		r.Trailer = http.Header{"X-T": {"end"}}
		if _, text, err := ask(to, r); text != fmt.Sprintf("%d [chunked] end", n) {
			t.Error(n, text, err)
		}
	}
}

// TestWrongBody: a body that breaks, or that has not its length, is the error that is returned, though the replica
// waits for the rest.
func TestWrongBody(t *testing.T) {
	s := serve(t, func(_ int64, _ net.Conn, in *bufio.Reader) { next(in) })
	breaks := errors.New("the client has left")
	for says, body := range map[string]io.Reader{"left": io.MultiReader(strings.NewReader("abc"), failing{breaks}),
		"with Body length 3": strings.NewReader("abc")} {
		r := request(t, "POST", s.url, "")
		r.Body, r.GetBody, r.ContentLength = io.NopCloser(body), nil, 100
		if _, _, err := ask(client(t), r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// TestInformational: heads before the answer are told, and as many as there may be have an end.
func TestInformational(t *testing.T) {
	hints := "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
	s := serve(t, each(hints+hints+ok))
	got := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if got++; code != 103 || h.Get("Link") != "</x>" {
			t.Error(code, h)
		}
		return nil
	}}
	r := request(t, "GET", s.url, "")
	if _, text, err := ask(client(t), r.WithContext(httptrace.WithClientTrace(r.Context(), trace))); text != "ok" ||
		got != 2 || err != nil {
		t.Error(text, got, err)
	}
	s = serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		next(in)
		for {
			if _, err := io.WriteString(c, hints); err != nil {
				return
			}
		}
	})
	if _, _, err := ask(client(t), request(t, "GET", s.url, "")); !errors.Is(err, errTop) {
		t.Error(err)
	}
}

// TestMalformed: what is no answer is an error, and its connection is closed.
func TestMalformed(t *testing.T) {
	for name, c := range map[string]struct{ answer, says string }{
		"nothing":      {"", "EOF"},
		"garbage":      {"\x16\x03\x01\x00\r\n\r\n", "malformed"},
		"status":       {"HTTP/1.1 2000 OK\r\n\r\n", "malformed"},
		"small status": {"HTTP/1.1 012 OK\r\n\r\n", "malformed"},
		"huge":         {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*largestTop) + "\r\n\r\n", "exceeded"},
		"many":         {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", largestTop) + "\r\n", "exceeded"},
		"two lengths":  {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk", "Content-Length"},
		"length":       {"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", "Content-Length"},
		"coding":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "transfer encoding"},
		"short":        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "unexpected EOF"},
		"chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n", "chunk"},
		"huge chunk":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nok", "chunk"},
		"long chunks": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("1;"+strings.Repeat("x", 1000)+"\r\no\r\n", 100), "chunk"},
		"end of chunks": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", "unexpected EOF"},
		"long trailer": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " +
			strings.Repeat("x", 64<<10) + "\r\n\r\n", "trailer"},
	} {
		s := serve(t, func(_ int64, conn net.Conn, in *bufio.Reader) {
			next(in)
			_, _ = io.WriteString(conn, c.answer)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, in)
		})
		to := client(t)
		if _, text, err := ask(to, request(t, "GET", s.url, "")); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q %v, want %s", name, text, err, c.says)
		}
		if len(to.idle) != 0 {
			t.Errorf("%s: the connection is kept", name)
		}
	}
}

// TestLeaves: the end of the context ends a request wherever it is, with the cause.
func TestLeaves(t *testing.T) {
	cause := errors.New("the client has left")
	s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err == nil && r.URL.Path == "/body" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
		}
		if err != nil || r.URL.Path != "/sending" {
			_, _ = io.Copy(io.Discard, in)
		} else {
			_, _ = c.Read(nil)
			time.Sleep(50 * time.Millisecond)
		}
	})
	for _, path := range []string{"before", "head", "body", "sending"} {
		ctx, cancel := context.WithCancelCause(context.Background())
		r := request(t, "POST", s.url+path, "").WithContext(ctx)
		if path == "sending" {
			r.Body, r.GetBody, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 64<<20)), nil, 64<<20
		}
		if path == "before" {
			cancel(cause)
		} else {
			time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
		}
		to := client(t)
		if _, _, err := ask(to, r); !errors.Is(err, cause) {
			t.Errorf("%s: %v", path, err)
		}
		if len(to.idle) != 0 {
			t.Errorf("%s: the connection is kept", path)
		}
		cancel(nil)
	}
}

// TestStreams: parts of an answer are there as they come, and one that is not read to its end is not kept.
func TestStreams(t *testing.T) {
	parts := make(chan string)
	s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		next(in)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for p := range parts {
			fmt.Fprintf(c, "%x\r\n%s\r\n", len(p), p)
		}
	})
	to := client(t)
	resp, err := to.RoundTrip(request(t, "GET", s.url, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"one", "another"} {
		parts <- p
		buf := make([]byte, 100)
		if n, err := resp.Body.Read(buf); string(buf[:n]) != p {
			t.Error(string(buf[:n]), err)
		}
	}
	_ = resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || len(to.idle) != 0 {
		t.Error(err, to.idle)
	}
	close(parts)
}

// TestUpgrade: after 101 the body is the connection, with what has come already, and each side ends alone.
func TestUpgrade(t *testing.T) {
	s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		next(in)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello ")
		_, _ = io.Copy(c, in)
	})
	r := request(t, "GET", s.url, "")
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	to := client(t)
	resp, err := to.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	both := resp.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	_, _ = io.WriteString(both, "world")
	_ = both.CloseWrite()
	if text, err := io.ReadAll(both); string(text) != "hello world" {
		t.Error(string(text), err)
	}
	if _ = both.Close(); len(to.idle) != 0 {
		t.Error("the connection is kept")
	}
}

// TestMany: however replicas and clients behave, a request gets its own answer or an error.
func TestMany(t *testing.T) {
	s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
		for {
			r, _ := next(in)
			if r == nil {
				return
			}
			id := r.URL.Path
			head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(id))
			switch rand.IntN(20) {
			case 0:
				return
			case 1:
				_, _ = io.WriteString(c, head+id[:1])
				return
			case 2:
				_, _ = io.WriteString(c, head+id+head+id)
			case 3:
				_, _ = io.WriteString(c, head+id)
				return
			case 4:
				time.Sleep(time.Millisecond)
				_, _ = io.WriteString(c, head+id)
			case 5:
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(id), id)
			default:
				_, _ = io.WriteString(c, head+id)
			}
		}
	})
	to := client(t)
	var wg sync.WaitGroup
	var answered atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			for i := range 200 {
				id := fmt.Sprintf("%d-%d", w, i)
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(10) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, cancel)
				}
				r := request(t, "POST", s.url+id, strings.Repeat("x", rand.IntN(3)*smallBody))
				_, text, err := ask(to, r.WithContext(ctx))
				if err == nil && text != "/"+id {
					t.Errorf("%s got the answer of %s", id, text)
				}
				if err == nil {
					answered.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if answered.Load() < 2000 {
		t.Errorf("only %d are answered", answered.Load())
	}
}

// FuzzAnswer: whatever a replica writes, this client makes of it what net/http's does.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{ok, "", "HTTP/1.1 204 No\r\n\r\nx", "HTTP/1.1 103 E\r\n\r\n" + ok, ok + ok,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nuntil the end", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, answer []byte, head bool) {
		if bytes.Contains(answer, []byte(" 1")) {
			return // net/http limits the number of informational answers
		}
		s := serve(t, func(_ int64, c net.Conn, in *bufio.Reader) {
			next(in)
			_, _ = c.Write(answer)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, in)
		})
		method := map[bool]string{true: "HEAD", false: "POST"}[head]
		reference := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: largestTop}
		defer reference.CloseIdleConnections()
		a, textA, errA := ask(client(t), request(t, method, s.url, "x"))
		b, textB, errB := ask(reference, request(t, method, s.url, "x"))
		if b != nil && b.StatusCode < 100 && errA != nil {
			return // which net/http lets pass
		}
		if (errA == nil) != (errB == nil) || textA != textB || a != nil && b != nil && (a.StatusCode != b.StatusCode ||
			fmt.Sprint(a.Header, a.Trailer, a.ContentLength) != fmt.Sprint(b.Header, b.Trailer, b.ContentLength)) {
			t.Errorf("%v %q %v\nnet/http: %v %q %v", a, textA, errA, b, textB, errB)
		}
	})
}
