package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-gpu/muster/gateway/http1"
	"github.com/muster-gpu/muster/serving/tally"
)

// helpers are programs that benchmarks run beside the gateway, each in a process of its own.
var helpers = map[string]func(l net.Listener, backend string) error{
	"backend": func(l net.Listener, _ string) error { return http.Serve(l, http.HandlerFunc(answer)) },
	"bare": func(l net.Listener, backend string) error { // net/http's reverse proxy, with as many connections
		to, err := url.Parse(backend)
		if err != nil {
			return err
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.DisableCompression = 0, 1024, true
		return http.Serve(l, &httputil.ReverseProxy{Transport: t, Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.SetXForwarded()
		}})
	},
	"server": func(l net.Listener, backend string) error { // net/http's server, the gateway's client
		to, err := url.Parse(backend)
		if err != nil {
			return err
		}
		c := http1.New(time.Now)
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := r.Clone(r.Context())
			out.URL.Scheme, out.URL.Host = to.Scheme, to.Host
			resp, err := c.RoundTrip(out)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			maps.Copy(w.Header(), resp.Header)
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
		}))
	},
	"bytes": func(l net.Listener, backend string) error { // what Go's sockets take alone: nobody looks at what passes
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			go passBytes(c, strings.TrimPrefix(backend, "http://"))
		}
	},
}

// passBytes passes on requests and answers that come in one piece each.
func passBytes(c net.Conn, backend string) {
	defer c.Close()
	to, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer to.Close()
	buf := make([]byte, 8<<10)
	for from, other := c, to; ; from, other = other, from {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := other.Write(buf[:n]); err != nil {
			return
		}
	}
}

// answer gives a hundred bytes, or an event each second below /stream.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/stream" {
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 10))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for tick := time.NewTicker(time.Second); ; {
		if _, err := io.WriteString(w, "data: token\n\n"); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// beside is a program that runs beside the benchmark.
type beside struct {
	url string
	pid int
}

func helper(b *testing.B, name, backend string) beside {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		b.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "MUSTER_GATEWAY_TEST="+name, "MUSTER_GATEWAY_BACKEND="+backend)
	c.ExtraFiles = []*os.File{f}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	_ = l.Close()
	_ = f.Close()
	return beside{"http://" + l.Addr().String(), c.Process.Pid}
}

func runHelper(name string) {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err == nil {
		err = helpers[name](l, os.Getenv("MUSTER_GATEWAY_BACKEND"))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// nginx starts nginx before a backend; false: it is not installed.
func nginx(b *testing.B, backend string) (beside, bool) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		return beside{}, false
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	at, dir := l.Addr().String(), b.TempDir()
	_ = l.Close()
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; worker_processes auto; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c;
uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e; keepalive_requests 1000000000;
upstream backend { server %[2]s; keepalive 512; keepalive_requests 1000000000; }
server { listen %[3]s; location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";
proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header Host $host; } } }`, dir,
		strings.TrimPrefix(backend, "http://"), at)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	c := exec.Command(path, "-c", config, "-p", dir)
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	return beside{"http://" + at, c.Process.Pid}, true
}

var wrkRate = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)

const wrkSeconds = 3

// wrk is the requests per second that are answered through a proxy.
func wrk(b *testing.B, connections int, url string) float64 {
	c := exec.Command("wrk", "-t1", fmt.Sprint("-c", connections), fmt.Sprintf("-d%ds", wrkSeconds), url)
	out, err := c.CombinedOutput()
	m := wrkRate.FindSubmatch(out)
	if err != nil || m == nil || bytes.Contains(out, []byte("Non-2xx")) {
		b.Fatalf("%v: %s", err, out)
	}
	rate, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return rate
}

func gatewayBeside(b *testing.B, backend string, args ...string) *program {
	dir := b.TempDir()
	c := service(backend)
	c.Services[0].Replicas[0].AtOnce = 20_000
	routes(b, dir, c)
	return start(b, append([]string{"--dir", dir, "--max-connections", "20000"}, args...)...)
}

// BenchmarkBeside compares the requests per second of the gateway, of net/http's bare reverse proxy and of nginx, in
// turn on the same machine, with 64 connections of wrk. The figures are medians of the rounds, and of their ratios.
func BenchmarkBeside(b *testing.B) {
	if _, err := exec.LookPath("wrk"); err != nil {
		b.Skip("wrk is not installed")
	}
	backend := helper(b, "backend", "").url
	p := gatewayBeside(b, backend)
	at := map[string]beside{"bare": helper(b, "bare", backend), "gateway": {p.url + "/app", p.Process.Pid}}
	if n, ok := nginx(b, backend); ok {
		at["nginx"] = n
	}
	rates, ratios, times := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for range 1 + b.N {
		round := map[string]float64{}
		for name, x := range at {
			before := cpuTime(b, x.pid)
			round[name] = wrk(b, 64, x.url+"/x")
			rates[name] = append(rates[name], round[name])
			took := cpuTime(b, x.pid) - before
			times[name] = append(times[name], float64(took.Microseconds())/round[name]/wrkSeconds)
		}
		for name, rate := range round {
			ratios[name] = append(ratios[name], round["gateway"]/rate)
		}
	}
	for name := range at {
		b.ReportMetric(median(rates[name]), name+"-req/s")
		b.ReportMetric(median(times[name]), name+"-cpu-µs/req")
		if name != "gateway" {
			b.ReportMetric(median(ratios[name]), "of-"+name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// cpuTime is how long a process and its children have computed.
func cpuTime(b *testing.B, pid int) (total time.Duration) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		f := strings.Fields(rest) // from the third field of proc(5) on
		if f[1] == strconv.Itoa(pid) || strings.HasPrefix(string(data), strconv.Itoa(pid)+" ") {
			for _, ticks := range f[11:13] {
				n, err := strconv.ParseInt(ticks, 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				total += time.Duration(n) * 10 * time.Millisecond
			}
		}
	}
	return total
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkAdded measures what the gateway, the bare proxy, parts of a proxy and nginx add to the latency of a backend,
// at half of the rate that the gateway can do: requests are sent at instants that are fixed before. They are measured
// in turn, in short rounds; each figure is the first quartile of its rounds, so that other work of the machine counts
// less.
func BenchmarkAdded(b *testing.B) {
	if _, err := exec.LookPath("wrk"); err != nil {
		b.Skip("wrk is not installed")
	}
	backend := helper(b, "backend", "").url
	at := map[string]string{"direct": backend + "/x", "gateway": gatewayBeside(b, backend).url + "/app/x"}
	for _, name := range []string{"bare", "server", "bytes"} {
		at[name] = helper(b, name, backend).url + "/x"
	}
	if n, ok := nginx(b, backend); ok {
		at["nginx"] = n.url + "/x"
	}
	var rates []float64
	for range 5 {
		rates = append(rates, wrk(b, 64, at["gateway"]))
	}
	rate := median(rates) / 2
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	for range 4 * (1 + b.N) {
		for name, url := range at {
			h := timed(b, url, rate, time.Second)
			p50[name] = append(p50[name], float64(h.Quantile(0.5).Microseconds()))
			p99[name] = append(p99[name], float64(h.Quantile(0.99).Microseconds()))
		}
	}
	b.ReportMetric(rate, "req/s")
	for name := range at {
		if name == "direct" {
			continue
		}
		b.ReportMetric(quartile(p50[name])-quartile(p50["direct"]), name+"-added-p50-µs")
		b.ReportMetric(quartile(p99[name])-quartile(p99["direct"]), name+"-added-p99-µs")
	}
	b.ReportMetric(quartile(p50["direct"]), "direct-p50-µs")
	b.ReportMetric(quartile(p99["direct"]), "direct-p99-µs")
	b.ReportMetric(0, "ns/op")
}

func quartile(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/4]
}

// timed sends requests at a rate over 32 connections, and returns how long their answers took.
func timed(b *testing.B, url string, rate float64, whole time.Duration) *tally.Histogram {
	const workers = 32
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer c.CloseIdleConnections()
	var all tally.Histogram
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	each := time.Duration(float64(workers) / rate * float64(time.Second))
	for w := range workers {
		wg.Go(func() {
			var h tally.Histogram
			for next := began.Add(each * time.Duration(w) / workers); next.Sub(began) < whole; next = next.Add(each) {
				time.Sleep(time.Until(next))
				sent := time.Now()
				resp, err := c.Get(url)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if sent.Sub(began) > whole/3 { // the connections are there
					h.Add(time.Since(sent), 1)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.Merge(&h)
		})
	}
	wg.Wait()
	return &all
}

// BenchmarkStreams opens ten thousand streams, half of them with HTTP/2, each of which gets an event every second, and
// reports the memory of the gateway's process.
func BenchmarkStreams(b *testing.B) {
	const streams = 10_000
	p := gatewayBeside(b, helper(b, "backend", "").url)
	var open, events atomic.Int64
	var wg sync.WaitGroup
	var clients []*http.Client
	stop := make(chan struct{})
	for version := 1; version <= 2; version++ {
		var protocols http.Protocols
		protocols.SetHTTP1(version == 1)
		protocols.SetUnencryptedHTTP2(version == 2)
		clients = append(clients, &http.Client{Transport: &http.Transport{Protocols: &protocols}})
	}
	opening := make(chan struct{}, 64)
	for i := range streams {
		opening <- struct{}{}
		wg.Go(func() {
			resp, err := clients[i%2].Get(p.url + "/app/stream")
			<-opening
			if err != nil || resp.StatusCode != http.StatusOK {
				b.Error(resp, err)
				return
			}
			defer resp.Body.Close()
			open.Add(1)
			for buf := make([]byte, 64); ; {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := resp.Body.Read(buf); err != nil {
					b.Error(err)
					return
				}
				events.Add(1)
			}
		})
	}
	for open.Load() < streams && !b.Failed() {
		time.Sleep(10 * time.Millisecond)
	}
	before := events.Load()
	time.Sleep(10 * time.Second)
	b.ReportMetric(float64(events.Load()-before)/10, "events/s")
	b.ReportMetric(float64(open.Load()), "streams")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" || f[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			b.ReportMetric(kib/1024, strings.TrimSuffix(f[0], ":")+"-MiB")
		}
	}
	b.ReportMetric(0, "ns/op")
	close(stop)
	wg.Wait()
}
