package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve answers at a socket with a handler of net/http.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return path
}

// say answers every connection at a socket with the same bytes, and closes it.
func say(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.WriteString(c, text)
			}
			c.Close()
		}
	}()
	return path
}

// TestUnixExchange: requests arrive unchanged, whatever the form of the answer.
func TestUnixExchange(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			body, _ := io.ReadAll(r.Body)
			json.NewEncoder(w).Encode(
				[]string{r.Method, r.URL.RawQuery, r.Header.Get("X-A"), r.Header.Get("Content-Type"), string(body)})
		case "/large":
			io.WriteString(w, large)
		case "/pieces":
			for i := range 3 {
				fmt.Fprintf(w, "piece %d\n", i)
				w.(http.Flusher).Flush()
			}
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, `"late"`)
		case "/broken":
			io.WriteString(w, large[:70_000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, `{"status":418,"detail":"no coffee"}`)
		}
	})
	c, ctx := Unix(path), t.Context()
	var echo []string
	q := query(map[string][]string{"b": {"x y&z", "ü"}, "a": {"1"}})
	if err := c.do(ctx, "POST", "/echo?"+q, "body", &echo, "X-A", "v w"); err != nil ||
		strings.Join(echo, "|") != `POST|a=1&b=x%20y%26z&b=%C3%BC|v w|application/json|"body"` {
		t.Errorf("%v %q", err, echo)
	}
	for p, want := range map[string]string{"/large": large, "/pieces": "piece 0\npiece 1\npiece 2\n", "/none": ""} {
		resp, err := c.open(ctx, "GET", p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != want {
			t.Errorf("%s: %v, %d bytes", p, err, len(text))
		}
		resp.Body.Close()
	}
	var text string
	if err := c.do(ctx, "GET", "/early", nil, &text); err != nil || text != "late" {
		t.Errorf("%v %q", err, text)
	}
	var no *Error
	if err := c.do(ctx, "GET", "/tea", nil, nil); !errors.As(err, &no) || no.Status != 418 ||
		err.Error() != "no coffee" {
		t.Errorf("%v", err)
	}
	resp, err := c.open(ctx, "GET", "/broken", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || n != 70_000 {
		t.Errorf("an answer that breaks off: %d bytes, %v", n, err)
	}
	resp.Body.Close()
}

// TestUnixSwitch: after a switch of protocols both sides write, and bytes that came with the header are not
// lost.
func TestUnixSwitch(t *testing.T) {
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
			r.Header.Get("Upgrade")+"\r\n\r\nhello\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		io.WriteString(c, "you said "+line)
	})
	conn, err := Unix(path).terminal(t.Context(), 1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "moin\n")
	if text, err := io.ReadAll(conn); err != nil || string(text) != "hello\nyou said moin\n" {
		t.Errorf("%v %q", err, text)
	}
}

// TestUnixEnds: a cancelled request returns, also during its answer, and a body that is being read can be
// closed.
func TestUnixEnds(t *testing.T) {
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	for _, p := range []string{"/silent", "/begun"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		resp, err := Unix(path).open(ctx, "GET", p, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", p, err)
		}
		cancel()
	}
	resp, err := Unix(path).open(t.Context(), "GET", "/begun", nil)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { io.Copy(io.Discard, resp.Body); close(read) }()
	resp.Body.Close()
	<-read
}

// TestUnixWithoutServer: a missing server is reported with what to do; a daemon that ends in between is a broken
// request.
func TestUnixWithoutServer(t *testing.T) {
	_, err := Unix(filepath.Join(t.TempDir(), "none")).Nodes(t.Context())
	if !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), "connect: no such file or directory") {
		t.Errorf("%v", err)
	}
	var broken *BrokenError
	if _, err = Unix(say(t, "")).Nodes(t.Context()); !errors.As(err, &broken) || !errors.Is(err, io.ErrUnexpectedEOF) ||
		!away(t.Context(), err) {
		t.Errorf("%v", err)
	}
}

// TestUnixLargeRefused: an answer that comes before all of a large request is read counts.
func TestUnixLargeRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 31\r\n\r\n"+`{"status":413,"detail":"large"}`)
		c.(*net.UnixConn).CloseWrite()
		io.CopyN(io.Discard, c, 1000)
		time.Sleep(20 * time.Millisecond)
		c.(*net.UnixConn).CloseRead() // the writer gets an error
	}()
	var no *Error
	if err := Unix(path).do(t.Context(), "POST", "/v1/jobs", strings.Repeat("x", 4<<20), nil); !errors.As(err, &no) ||
		no.Status != 413 {
		t.Errorf("%v", err)
	}
}

// TestUnixStrange: an invalid answer is refused, and no text can inject anything into a request.
func TestUnixStrange(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for text, want := range map[string]string{
		"SSH-2.0-OpenSSH\r\n\r\n":                                        "does not speak HTTP/1.1",
		"HTTP/1.1 20 OK\r\n\r\n":                                         "does not speak HTTP/1.1",
		"HTTP/1.1 -20 OK\r\n\r\n":                                        "does not speak HTTP/1.1",
		"HTTP/1.1 200 OK":                                                "unexpected EOF",
		ok + "Content-Length: 5\r\n\r\n[]":                               "unexpected EOF",
		ok + "Content-Length: -5\r\n\r\n[]":                              "Content-Length",
		ok + "Content-Length: 2\r\nContent-Length: 3\r\n":                "Content-Length",
		ok + "Transfer-Encoding: gzip, chunked\r\n\r\n":                  "Transfer-Encoding",
		ok + "no colon\r\n\r\n":                                          "header line 1",
		ok + "A: " + strings.Repeat("x", 5000) + "\r\n":                  "longer than 4096 bytes",
		ok + strings.Repeat("A: b\r\n", 200) + "\r\n":                    "header line 101",
		ok + "Transfer-Encoding: chunked\r\n\r\n1\r\n[":                  "EOF",
		ok + "Transfer-Encoding: chunked\r\n\r\n1\r\n[]\r\n":             "longer than it says",
		ok + "Transfer-Encoding: chunked\r\n\r\n-1\r\n[]":                "length of a piece",
		ok + "Transfer-Encoding: chunked\r\n\r\n\r\n[]":                  "length of a piece",
		ok + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n[]": "length of a piece",
	} {
		resp, err := Unix(say(t, text)).open(t.Context(), "GET", "/", nil)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, not %q", text, err, want)
		}
	}
	var list []int // no length: to the end
	if err := Unix(say(t, ok+"\r\n[1,2]")).do(t.Context(), "GET", "/", nil, &list); err != nil || len(list) != 2 {
		t.Errorf("%v %v", err, list)
	}
	for _, r := range []Request{{Method: "GET", Path: "/a b"}, {Method: "GET", Path: "/a\r\nX: y"},
		{Method: "GET", Path: "a"}, {Method: "GET", Path: "/ü"},
		{Method: "GET", Path: "/", Header: []string{"A", "b\r\nC: d"}}} {
		if text, err := r.encode(); err == nil {
			t.Errorf("%q", text)
		}
	}
}
