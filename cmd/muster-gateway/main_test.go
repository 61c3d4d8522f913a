package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/internal/shared"
)

// TestMain lets the test binary be the program, or one that a benchmark runs beside it.
func TestMain(m *testing.M) {
	switch name := os.Getenv("MUSTER_GATEWAY_TEST"); name {
	case "":
	case "gateway":
		main()
	default:
		runHelper(name)
	}
	os.Exit(m.Run())
}

// program is a gateway that runs.
type program struct {
	*exec.Cmd
	url string
	log shared.Text
	end chan error
}

var servingAt = regexp.MustCompile(`msg=serving address=(\S+)`)

// start starts a gateway and waits until it serves, or has ended.
func start(t testing.TB, args ...string) *program {
	t.Helper()
	p := launch(t, args...)
	p.awaitServing(t)
	return p
}

// launch starts a gateway, no more.
func launch(t testing.TB, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], append([]string{"--listen", "127.0.0.1:0"}, args...)...),
		end: make(chan error, 1)}
	p.Env = append(os.Environ(), "MUSTER_GATEWAY_TEST=gateway")
	p.Stderr = &p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.end <- p.Wait() }()
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

func (p *program) awaitServing(t testing.TB) {
	t.Helper()
	until(t, "it serves", func() bool { return servingAt.MatchString(p.log.String()) || p.ended() })
	if m := servingAt.FindStringSubmatch(p.log.String()); m != nil {
		p.url = "http://" + m[1]
	}
}

func (p *program) ended() bool {
	select {
	case err := <-p.end:
		p.end <- err
		return true
	default:
		return false
	}
}

// stop sends a signal and returns the error with which the program ends.
func (p *program) stop(t *testing.T, s syscall.Signal) error {
	t.Helper()
	_ = p.Process.Signal(s)
	select {
	case err := <-p.end:
		p.end <- err
		return err
	case <-time.After(time.Minute):
		t.Fatalf("it goes on:\n%s", p.log.String())
		return nil
	}
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// routes writes the configuration as the daemon does.
func routes(t testing.TB, dir string, c any) {
	t.Helper()
	data, ok := c.(string)
	if !ok {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		data = string(text)
	}
	path := filepath.Join(dir, gateway.RoutesFile)
	if err := os.WriteFile(path+".new", []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func service(url string) *gateway.Config {
	return &gateway.Config{Services: []gateway.Service{{Name: "app", Path: "app",
		Replicas: []gateway.Replica{{ID: "1", URL: url}}}}}
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// daemon is a client of the socket.
func daemon(dir string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, gateway.CountsSocket))
		}}}
}

func echo(t *testing.T) *httptest.Server {
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, err := time.ParseDuration(r.URL.Query().Get("sleep")); err == nil {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "echo of ", r.URL.Path)
	}))
	t.Cleanup(b.Close)
	return b
}

// TestFollows: what the file says is served at most 100 ms later; a wrong file is logged, and changes nothing.
func TestFollows(t *testing.T) {
	dir, b := t.TempDir(), echo(t)
	p := start(t, "--dir", dir)
	if status, text := get(t, http.DefaultClient, p.url+"/v2/health/ready"); status != 503 {
		t.Errorf("without a configuration: %d %s", status, text)
	}
	routes(t, dir, service(b.URL))
	written := time.Now()
	until(t, "the service is served", func() bool {
		status, text := get(t, http.DefaultClient, p.url+"/app/x")
		return status == 200 && text == "echo of /x"
	})
	if took := time.Since(written); took > 5*time.Second { // a busy machine is slow
		t.Errorf("it took %v to take over a file", took)
	}
	for wrong, says := range map[string]string{"{": "unexpected EOF", `{"services":[],"colour":1}`: "unknown field",
		`{"services":[{"name":"app","replicas":[{"id":"1","url":"ftp://x"}]}]}`: "is not an address"} {
		routes(t, dir, wrong)
		until(t, "the mistake is logged: "+says, func() bool { return strings.Contains(p.log.String(), says) })
	}
	if err := os.Remove(filepath.Join(dir, gateway.RoutesFile)); err != nil {
		t.Fatal(err)
	}
	until(t, "it is logged that the file is gone",
		func() bool { return strings.Contains(p.log.String(), "no such file") })
	if status, text := get(t, http.DefaultClient, p.url+"/app/x"); status != 200 {
		t.Errorf("the former configuration does not stay: %d %s", status, text)
	}
	routes(t, dir, &gateway.Config{})
	until(t, "the service is gone", func() bool {
		status, _ := get(t, http.DefaultClient, p.url+"/app/x")
		return status == 404
	})
}

// TestSocket: counts for the daemon, on a socket of this user only. One that is left is replaced, one that answers is
// an error.
func TestSocket(t *testing.T) {
	dir, b := t.TempDir(), echo(t)
	routes(t, dir, service(b.URL))
	p := start(t, "--dir", dir, "--metrics", "127.0.0.1:0")
	for range 3 {
		get(t, http.DefaultClient, p.url+"/app/x")
	}
	info, err := os.Stat(filepath.Join(dir, gateway.CountsSocket))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	report := func() (r gateway.Report) {
		_, text := get(t, daemon(dir), "http://gateway/counts")
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return r
	}
	first := report()
	if s := first.Services[0]; s.Name != "app" || s.Answered != 3 || s.Latency.Total() != 3 || len(s.Each) != 1 ||
		s.Each[0].Answered != 3 {
		t.Errorf("%+v", s)
	}
	at := regexp.MustCompile(`msg=metrics address=(\S+)`).FindStringSubmatch(p.log.String())
	for url, c := range map[string]*http.Client{"http://gateway": daemon(dir), "http://" + at[1]: http.DefaultClient} {
		if _, text := get(t, c, url+"/metrics"); !strings.Contains(text,
			`muster_gateway_requests_total{code="200",service="app"} 3`) {
			t.Errorf("%s: %s", url, text)
		}
	}
	second := start(t, "--dir", dir)
	if !second.ended() || !strings.Contains(second.log.String(), "another gateway runs") {
		t.Errorf("a second one runs: %s", second.log.String())
	}
	_ = p.stop(t, syscall.SIGKILL)
	start(t, "--dir", dir)
	if again := report(); again.Began <= first.Began || again.Services[0].Answered != 0 {
		t.Errorf("%+v after %+v", again, first)
	}
}

// TestSignalledEarly: signals count from before anyone can connect: a hangup as soon as there is the daemon's socket,
// as a log rotation may send one, does not end a gateway.
func TestSignalledEarly(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, "--dir", dir)
	for {
		if _, err := os.Stat(filepath.Join(dir, gateway.CountsSocket)); err == nil || p.ended() {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.awaitServing(t)
	if err := p.stop(t, syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, p.log.String())
	}
}

// TestTimerSlack: all threads have it, those of Go's runtime too.
func TestTimerSlack(t *testing.T) {
	p := start(t, "--dir", t.TempDir())
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, x := range threads {
		text, err := os.ReadFile("/proc/" + x.Name() + "/timerslack_ns")
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // it has ended
		case errors.Is(err, os.ErrPermission):
			t.Skip("only root may read it of another process")
		}
		if got := strings.TrimSpace(string(text)); err != nil || got != fmt.Sprint(timerSlack.Nanoseconds()) {
			t.Errorf("thread %s: %s ns, %v", x.Name(), got, err)
		}
	}
	if err := p.stop(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// TestWakes: the daemon hears of a request that waits for a first replica at once, once for each.
func TestWakes(t *testing.T) {
	dir, b := t.TempDir(), echo(t)
	cold := &gateway.Config{Services: []gateway.Service{{Name: "app", Path: "app", ColdMS: 60_000}}}
	routes(t, dir, cold)
	p := start(t, "--dir", dir)
	poll := func(wake string) (took time.Duration, waiting int) {
		began := time.Now()
		_, text := get(t, daemon(dir), "http://gateway/counts?wake="+wake)
		var r gateway.Report
		if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Services) != 1 {
			t.Fatalf("%s: %v", text, err)
		}
		return time.Since(began), r.Services[0].Waiting
	}
	if took, _ := poll("2s"); took < 1900*time.Millisecond {
		t.Errorf("woken by nothing after %v", took)
	}
	answered := make(chan int)
	go func() {
		time.Sleep(200 * time.Millisecond)
		status, _ := get(t, http.DefaultClient, p.url+"/app/x")
		answered <- status
	}()
	if took, waiting := poll("20s"); took > 10*time.Second || waiting != 1 {
		t.Errorf("woken after %v, %d waiting", took, waiting)
	}
	if took, waiting := poll("2s"); took < 1900*time.Millisecond || waiting != 1 {
		t.Errorf("woken again after %v, %d waiting", took, waiting)
	}
	routes(t, dir, service(b.URL))
	if status := <-answered; status != 200 {
		t.Errorf("%d after a cold start", status)
	}
	if status, _ := get(t, daemon(dir), "http://gateway/counts?wake=never"); status != 400 {
		t.Errorf("%d", status)
	}
}

// TestShutdown: what has been accepted is answered, nothing new is accepted, and the socket is free for a successor;
// but not for longer than --grace.
func TestShutdown(t *testing.T) {
	dir, b := t.TempDir(), echo(t)
	routes(t, dir, service(b.URL))
	p := start(t, "--dir", dir)
	answered := make(chan int, 1)
	slow := func(sleep string) {
		go func() {
			status, _ := get(t, http.DefaultClient, p.url+"/app/x?sleep="+sleep)
			answered <- status
		}()
		until(t, "the request is with the replica", func() bool {
			_, text := get(t, daemon(dir), "http://gateway/counts")
			return strings.Contains(text, `"busy":1,`)
		})
	}
	slow("1500ms")
	_ = p.Process.Signal(syscall.SIGTERM)
	until(t, "it does not accept", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	next := start(t, "--dir", dir)
	if err := p.stop(t, 0); err != nil {
		t.Errorf("%v\n%s", err, p.log.String())
	}
	if status := <-answered; status != 200 {
		t.Errorf("%d at the end", status)
	}
	_ = next.stop(t, syscall.SIGTERM)
	p = start(t, "--dir", dir, "--grace", "200ms")
	slow("30s")
	began := time.Now()
	if err := p.stop(t, syscall.SIGTERM); err != nil || time.Since(began) > 15*time.Second {
		t.Errorf("%v after %v\n%s", err, time.Since(began), p.log.String())
	}
	if status := <-answered; status != 0 || !strings.Contains(p.log.String(), "within --grace") {
		t.Errorf("%d\n%s", status, p.log.String())
	}
}

// TestAccessLog: a line of JSON for each request; SIGHUP opens a new file after the former was renamed.
func TestAccessLog(t *testing.T) {
	dir, b := t.TempDir(), echo(t)
	c := service(b.URL)
	c.Keys = []gateway.Key{{Name: "ann", Hash: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}}
	routes(t, dir, c)
	file := filepath.Join(dir, "access.log")
	p := start(t, "--dir", dir, "--access-log", file)
	req, _ := http.NewRequest(http.MethodGet, p.url+"/app/x?sleep=20ms", nil)
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	get(t, http.DefaultClient, p.url+"/app/x")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	_ = p.Process.Signal(syscall.SIGHUP)
	until(t, "a new file", func() bool { _, err := os.Stat(file); return err == nil })
	get(t, http.DefaultClient, p.url+"/v2/elsewhere")
	if err := p.stop(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	first, err := os.ReadFile(file + ".1")
	second, err2 := os.ReadFile(file)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	var lines []map[string]any
	for line := range bytes.Lines(append(first, second...)) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, m)
	}
	if len(lines) != 3 || bytes.Count(first, []byte("\n")) != 2 {
		t.Fatalf("%s\n%s", first, second)
	}
	l := lines[0]
	if l["service"] != "app" || l["replica"] != "1" || l["status"] != 200.0 || l["key"] != "ann" ||
		l["ms"].(float64) < 20 || l["ms"].(float64) > 2000 || lines[1]["status"] != 401.0 ||
		lines[2]["status"] != 404.0 {
		t.Errorf("%s%s", first, second)
	}
	if _, err := time.Parse(time.RFC3339Nano, l["time"].(string)); err != nil {
		t.Error(err)
	}
}

// TestProtocols: HTTP/1.1 and HTTP/2, each without TLS and with it.
func TestProtocols(t *testing.T) {
	dir, b := t.TempDir(), echo(t)
	routes(t, dir, service(b.URL))
	authority := httptest.NewTLSServer(nil) // for its certificate, which is for 127.0.0.1
	defer authority.Close()
	pair := authority.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	check := func(url string) {
		for _, version := range []int{1, 2} {
			var protocols http.Protocols
			protocols.SetHTTP1(version == 1)
			protocols.SetHTTP2(version == 2)
			protocols.SetUnencryptedHTTP2(version == 2)
			c := &http.Client{Transport: &http.Transport{Protocols: &protocols,
				TLSClientConfig: &tls.Config{RootCAs: roots}}}
			resp, err := c.Get(url + "/app/x")
			if err != nil {
				t.Errorf("%s HTTP/%d: %v", url, version, err)
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.ProtoMajor != version || string(text) != "echo of /x" {
				t.Errorf("%s HTTP/%d: HTTP/%d %s", url, version, resp.ProtoMajor, text)
			}
			c.CloseIdleConnections()
		}
	}
	p := start(t, "--dir", dir)
	check(p.url)
	_ = p.stop(t, syscall.SIGTERM)
	p = start(t, "--dir", dir, "--tls-cert", cert, "--tls-key", key)
	check("https" + strings.TrimPrefix(p.url, "http"))
	if status, _ := get(t, http.DefaultClient, p.url+"/app/x"); status == 200 {
		t.Error("plain HTTP is answered beside TLS")
	}
}

// TestUsage: what the caller does wrong is said in a line, and what cannot be done as well.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{}, 2, "--dir is needed"},
		{[]string{"--dri", dir}, 2, "unknown flag"},
		{[]string{"--dir", dir, "--tls-cert", "x"}, 2, "belong together"},
		{[]string{"--dir", dir, "--max-connections", "0"}, 2, "1 or more"},
		{[]string{"--dir", filepath.Join(dir, "none")}, 1, "no such file"},
		{[]string{"--dir", dir, "--listen", taken.Addr().String()}, 1, "address already in use"},
		{[]string{"--dir", dir, "--listen", "127.0.0.1:0", "--metrics", taken.Addr().String()}, 1, "--metrics"},
		{[]string{"--dir", dir, "--listen", "127.0.0.1:0", "--tls-cert", "x", "--tls-key", "y"}, 1, "--tls-cert"},
		{[]string{"--dir", dir, "--access-log", filepath.Join(dir, "none", "x")}, 1, "--access-log"},
		{[]string{"--version"}, 0, "0.1.0"},
	} {
		var out bytes.Buffer
		if code := run(c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v: %d %s, want %d %s", c.args, code, out.String(), c.code, c.says)
		}
	}
}

// TestConnections: beyond --max-connections, a connection waits until another ends.
func TestConnections(t *testing.T) {
	dir, b := t.TempDir(), echo(t)
	routes(t, dir, service(b.URL))
	p := start(t, "--dir", dir, "--max-connections", "2")
	var idle []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	// they are accepted before any that comes later
	hurried := &http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	if status, text := get(t, hurried, p.url+"/app/x"); status != 0 {
		t.Errorf("a third connection: %d %s", status, text)
	}
	_ = idle[0].Close()
	until(t, "there is room again", func() bool {
		status, _ := get(t, http.DefaultClient, p.url+"/app/x")
		return status == 200
	})
}
