package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// short are limits that a test can wait for.
var short = Limits{Header: 300 * time.Millisecond, Body: 300 * time.Millisecond, BodyRate: 8 << 20,
	WriteStall: 700 * time.Millisecond, Idle: 300 * time.Millisecond}

func one(url string) *Config {
	return &Config{Services: []Service{{Name: "app", Path: "app",
		Replicas: []Replica{{ID: "1", URL: url, AtOnce: 1}}}}}
}

// dial sends text on a connection of its own.
func dial(t *testing.T, url, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// rest is what still comes on a connection until it is closed, and how long that takes.
func rest(t *testing.T, c net.Conn) (string, time.Duration) {
	t.Helper()
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(time.Minute))
	text, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
	return string(text), time.Since(began)
}

// noGoroutineLeft checks that a test leaves no goroutine behind.
func noGoroutineLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		deadline := time.Now().Add(time.Minute)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before,
					buf[:runtime.Stack(buf, true)])
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// TestSlowClients: a client that sends its head or its body too slowly, or nothing any more, is cut off; meanwhile it
// holds no replica.
func TestSlowClients(t *testing.T) {
	noGoroutineLeft(t)
	b, _ := plain(t, "ok", 0)
	s, url := serveReal(t, one(b.URL), short)
	for _, c := range []struct{ name, text, answer string }{
		{"head", "GET /app/x HTTP/1.1\r\nHost: x\r\nX-A", ""},
		{"idle", "GET /app/x HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"},
		{"body", "POST /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc", "408 Request Timeout"},
		{"chunks", "POST /app/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
			"408 Request Timeout"},
		{"body of a model", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
			"408 Request Timeout"},
		{"body for nothing", "POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", "404 Not Found"},
	} {
		conn := dial(t, url, c.text)
		if got := status(t, url+"/app/x"); got != 200 {
			t.Errorf("%s: %d for another client meanwhile", c.name, got)
		}
		text, took := rest(t, conn)
		if !strings.Contains(text, c.answer) || took > 10*time.Second {
			t.Errorf("%s: %q after %v, want %s", c.name, text, took, c.answer)
		}
	}
	if c := served(s, "app"); c.Each[0].Busy != 0 || c.Each[0].Failed != 0 || c.Failed != 0 {
		t.Errorf("%+v", c)
	}
}

// TestDrips: a byte now and then is no progress, neither of a body that is kept nor of one that is passed on.
func TestDrips(t *testing.T) {
	noGoroutineLeft(t)
	b, _ := plain(t, "ok", 0)
	s, url := serveReal(t, one(b.URL), short)
	for name, sent := range map[string]int{"kept": 0, "passed on": 2 * replayedBody} {
		c := dial(t, url, "POST /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n"+strings.Repeat("x", sent))
		began := time.Now()
		for {
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			line, err := bufio.NewReader(c).ReadString('\n')
			if strings.Contains(line, " 408 ") || err == io.EOF {
				break
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Fatalf("%s: still open after %v", name, took)
			}
			if _, err := io.WriteString(c, "x"); err != nil {
				break
			}
		}
	}
	until(t, "the replica is free", func() bool { return served(s, "app").Each[0].Busy == 0 })
	if c := served(s, "app"); c.Each[0].Failed != 0 {
		t.Errorf("the replica is blamed: %+v", c)
	}
}

// TestLargeBodies: what has to be understood has a limit, what is passed on has none, and all that is kept has one.
func TestLargeBodies(t *testing.T) {
	noGoroutineLeft(t)
	var n int64
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) { n, _ = io.Copy(io.Discard, r.Body) })
	limits := Limits{Buffered: 96 << 20, Body: time.Hour}
	s, url := serveReal(t, one(b.URL), limits)
	zeros := func(n int64) io.Reader { return io.LimitReader(zero{}, n) }
	send := func(path string, n int64) int {
		resp, err := http.Post(url+path, "application/json", zeros(n))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := send("/app/x", largestBody+5); got != 200 || n != largestBody+5 {
		t.Errorf("passed on: %d, %d bytes", got, n)
	}
	if got := send("/v1/completions", largestBody+1); got != http.StatusRequestEntityTooLarge {
		t.Errorf("%d for what has to be understood", got)
	}
	others := limits.Buffered - replayedBody
	s.kept.Add(others)
	if got := send("/v1/completions", replayedBody); got != http.StatusBadRequest {
		t.Errorf("%d where memory is just enough", got)
	}
	if got := send("/v1/completions", replayedBody+1); got != http.StatusServiceUnavailable {
		t.Errorf("%d where memory is short", got)
	}
	s.kept.Add(-others)
	until(t, "all is given back", func() bool { return s.kept.Load() == 0 })
}

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestClientsThatDoNotRead hold a replica only until a write has stalled, with HTTP/1.1 and HTTP/2; those that leave
// free it at once.
func TestClientsThatDoNotRead(t *testing.T) {
	noGoroutineLeft(t)
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.CopyN(w, zero{}, 1<<20); err != nil {
				return
			}
		}
	})
	stalls, leaves := short, short
	stalls.WriteStall, leaves.WriteStall = 2*time.Second, time.Hour
	s, url := serveReal(t, one(b.URL), stalls)
	other, away := serveReal(t, one(b.URL), leaves)
	for version := 1; version <= 2; version++ {
		var p http.Protocols
		p.SetHTTP1(version == 1)
		p.SetUnencryptedHTTP2(version == 2)
		c := &http.Client{Transport: &http.Transport{Protocols: &p}}
		resp, err := c.Get(url + "/app/x")
		if err != nil || resp.ProtoMajor != version {
			t.Fatal(resp, err)
		}
		if served(s, "app").Each[0].Busy != 1 {
			t.Error("the replica is not busy")
		}
		until(t, fmt.Sprintf("HTTP/%d: the replica is free", version),
			func() bool { return served(s, "app").Each[0].Busy == 0 })
		resp.Body.Close()
		resp, err = c.Get(away + "/app/x")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		until(t, fmt.Sprintf("HTTP/%d: the client has left", version),
			func() bool { return served(other, "app").Each[0].Busy == 0 })
		c.CloseIdleConnections()
	}
	for _, s := range []*Server{s, other} {
		if c := served(s, "app"); c.Left != 2 || c.Failed != 0 || c.Each[0].Failed != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// TestWaitersLeave: requests whose clients leave while they wait do not stay in the queue.
func TestWaitersLeave(t *testing.T) {
	noGoroutineLeft(t)
	b := newRaw(t, hangs)
	s, url := serveReal(t, one(b.url), Limits{})
	head := "GET /app/x HTTP/1.1\r\nHost: x\r\n\r\n"
	first := dial(t, url, head)
	until(t, "the replica is busy", func() bool { return served(s, "app").Each[0].Busy == 1 })
	var conns []net.Conn
	for range 300 {
		conns = append(conns, dial(t, url, head))
	}
	until(t, "all wait", func() bool { return served(s, "app").Waiting == 300 })
	for _, c := range conns[1:] {
		_ = c.Close()
	}
	until(t, "one waits", func() bool { return served(s, "app").Waiting == 1 })
	p := s.state.Load().pools["app"]
	p.mu.Lock()
	if len(p.calls) > 130 || p.waiting.Len() != len(p.calls) {
		t.Errorf("%d of 1 are in the queue", len(p.calls))
	}
	p.mu.Unlock()
	_ = first.Close()
	until(t, "the last has its turn", func() bool { return b.seen.Load() == 2 && served(s, "app").Waiting == 0 })
	_ = conns[0].Close()
	until(t, "all have left", func() bool { return served(s, "app").Left == 301 })
}

// TestBadReplicas: what a replica does wrong is an error for its client, at once unless the replica is silent, and
// counts against the replica.
func TestBadReplicas(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	infer := func(url string) (int, string) { return post(t, url+"/v2/models/app/infer", sample(1)) }
	path := func(url string) (int, string) { return post(t, url+"/app/x", "x") }
	huge := func(c net.Conn) {
		_, _ = io.WriteString(c, head+"\r\n")
		_, _ = io.Copy(c, io.LimitReader(zero{}, largestAnswer+100))
	}
	for _, c := range []struct {
		name   string
		does   func(net.Conn)
		ask    func(string) (int, string)
		status int // 0: the connection breaks
		says   string
	}{
		{"hangs", hangs, path, 504, "does not answer in time"},
		{"hangs in a batch", hangs, infer, 504, "does not answer in time"},
		{"closes", says(""), path, 502, "the replica failed"},
		{"closes in a batch", says(""), infer, 502, "it died"},
		{"closes in the head", says("HTTP/1.1 200 OK\r\nConte"), path, 502, "the replica failed"},
		{"closes early", says(head + "Content-Length: 100\r\n\r\nabc"), path, 0, ""},
		{"closes early in a batch", says(head + "Content-Length: 100\r\n\r\nabc"), infer, 502, "it died"},
		{"stalls", func(c net.Conn) { says(head + "Content-Length: 100\r\n\r\nabc")(c); hangs(c) }, path, 0, ""},
		{"stalls in a batch", func(c net.Conn) { says(head + "Content-Length: 100\r\n\r\nabc")(c); hangs(c) }, infer,
			504, "does not answer in time"},
		{"garbage", says("\x00\x01\x02 garbage\r\n\r\n"), path, 502, "malformed"},
		{"garbage in a batch", says(head + "Content-Length: 3\r\n\r\nabc"), infer, 502, "none of the protocol"},
		{"another shape", says(head + "Content-Length: 58\r\n\r\n" +
			`{"outputs":[{"name":"y","shape":[2],"data":[1,2]}]}       `), infer, 502, "for 1 samples"},
		{"a huge head", says("HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 400<<10) + "\r\n\r\n"), path, 502,
			"exceeded"},
		{"a huge answer to a batch", huge, infer, 502, "more than 64 MiB"},
		{"a huge answer", huge, path, 200, ""},
		{"a status that is none", says("HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n"), path, 502, "status"},
		{"informational heads without end", func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
			}
		}, path, 502, "exceeded"},
		{"another protocol", says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), path,
			502, "switch protocol"},
		{"overloaded", says("HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno"), path, 503, "no"},
		{"a wrong batch", says("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno"), infer, 502,
			"500 Internal Server Error: no"},
		{"another model", says("HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno"), infer, 502, "404 Not Found: no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			noGoroutineLeft(t)
			b := newRaw(t, c.does)
			config := one(b.url)
			x := &config.Services[0]
			const hour = 3_600_000 // milliseconds: a fault that is found only after its time is not found here
			x.Batch, x.TakesMS, x.LatencyMS, x.TimeoutMS, x.StallMS = 2, takes(2, 1), hour, hour, hour
			switch {
			case strings.HasPrefix(c.name, "hangs"), c.name == "stalls in a batch":
				x.TimeoutMS = 50
			case c.name == "stalls":
				x.StallMS = 50
			}
			s, url := serveReal(t, config, Limits{})
			var got int
			var text string
			if c.status != 0 {
				got, text = c.ask(url)
			} else if resp, err := http.Post(url+"/app/x", "text/plain", strings.NewReader("x")); err == nil {
				if _, err = io.ReadAll(resp.Body); err == nil {
					t.Error("the answer seems whole")
				}
				resp.Body.Close()
			}
			if got != c.status || !strings.Contains(text, c.says) {
				t.Errorf("%d %.300q, want %d %s", got, text, c.status, c.says)
			}
			until(t, "the replica is free", func() bool { return served(s, "app").Each[0].Busy == 0 })
			u := served(s, "app")
			if bad := c.status != 200; bad != (u.Each[0].Failed == 1) || bad != (u.Failed == 1) || u.Arrived != 1 {
				t.Errorf("%+v", u)
			}
		})
	}
}

// TestUpgrades: a connection that is no HTTP any more is passed on as well, however quiet it is.
func TestUpgrades(t *testing.T) {
	noGoroutineLeft(t)
	b := newRaw(t, func(c net.Conn) {
		says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")(c)
		_, _ = io.Copy(c, c)
	})
	config := one(b.url)
	config.Services[0].TimeoutMS, config.Services[0].StallMS = 100, 100
	s, url := serveReal(t, config, short)
	c := dial(t, url, "GET /app/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	time.Sleep(500 * time.Millisecond)
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q %v", line, err)
	}
	_ = c.Close()
	until(t, "the replica is free", func() bool { return served(s, "app").Each[0].Busy == 0 })
}

// TestBreaker: a replica that failed several times is left alone, then tried with one request.
func TestBreaker(t *testing.T) {
	noGoroutineLeft(t)
	b := newRaw(t, func(net.Conn) {})
	config := one(b.url)
	config.Services[0].Replicas[0].AtOnce = 64
	config.Services[0].LatencyMS = 300
	s, url := serveReal(t, config, Limits{})
	for range failuresToShut {
		if got, _ := post(t, url+"/app/x", "x"); got != 502 {
			t.Errorf("%d", got)
		}
	}
	if got, _ := post(t, url+"/app/x", "x"); got != 429 || b.seen.Load() != failuresToShut {
		t.Errorf("%d, %d requests to a replica that is shut", got, b.seen.Load())
	}
	p := s.state.Load().pools["app"]
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.replicas[0]
	after := r.shut.Add(time.Millisecond)
	if !p.open(r, after) {
		t.Error("it is not tried again")
	}
	if r.busy++; p.open(r, after) {
		t.Error("it is given more than one request")
	}
	r.busy--
}

// TestCallersFault: what a caller does wrong is said to it as that, and no replica is blamed and left alone for it.
func TestCallersFault(t *testing.T) {
	refuses := func(status int) string {
		return newRaw(t, func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 %d No\r\nContent-Length: 6\r\n\r\nreason", status)
		}).url
	}
	for status, want := range map[int]int{400: 400, 413: 413, 415: 415, 422: 422, 429: 429, 503: 503, 401: 502,
		404: 502, 500: 502} {
		config := one(refuses(status))
		config.Services[0].Batch, config.Services[0].TakesMS = 2, takes(2, 1)
		s, url := serveReal(t, config, Limits{})
		got, text := post(t, url+"/v2/models/app/infer", sample(1))
		if got != want || !strings.Contains(text, "reason") {
			t.Errorf("%d of a replica: %d %s, want %d", status, got, text, want)
		}
		u, well := served(s, "app"), want < 429
		if (u.Answered == 1) != well || (u.Failed == 1) == well {
			t.Errorf("%d: %+v", status, u)
		}
		if _, err := http.Get(url + "/app/x"); err != nil {
			t.Error(err)
		}
	}
	b, _ := plain(t, "ok", 0)
	s, url := serveReal(t, one(b.URL), Limits{})
	for range failuresToShut {
		c := dial(t, url, "GET /app/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: \xff\r\n\r\n")
		if text, _ := rest(t, c); !strings.Contains(text, "400 Bad Request") {
			t.Error(text)
		}
	}
	if got := status(t, url+"/app/x"); got != 200 || served(s, "app").Each[0].Failed != 0 {
		t.Errorf("%d, %+v", got, served(s, "app"))
	}
	for path, want := range map[string]int{"/v1/models/app": 200, "/v1/models/none": 404, "/v1/models/": 200} {
		if got := status(t, url+path); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
	got, text := post(t, url+"/v1/completions", `{"prompt":"x"}`)
	if got != 400 || !strings.Contains(text, "names none") {
		t.Error(got, text)
	}
}
