package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func scrape(s *Server) string {
	w := httptest.NewRecorder()
	s.Daemon().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// TestMetrics: each thing that can happen to a request is counted, under configured names only.
func TestMetrics(t *testing.T) {
	good := newAdder(t, 0)
	odd := newRaw(t, says("HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n"))
	config := &Config{Services: []Service{
		{Name: "add", LatencyMS: 2000, Batch: 4, TakesMS: takes(4, 1), Replicas: []Replica{{ID: "1", URL: good.URL}}},
		{Name: "none"},
		{Name: "odd", Path: "odd", Replicas: []Replica{{ID: "1", URL: odd.url}}},
		{Name: "dead", Path: "dead", LatencyMS: 500, Replicas: []Replica{{ID: "1", URL: nowhere(t)},
			{ID: "2", URL: nowhere(t), Draining: true}, {ID: "3", URL: nowhere(t)}}}}}
	s, url := serveReal(t, config, Limits{})
	for i := range 3 {
		post(t, url+"/v2/models/add/infer", sample(i))
	}
	post(t, url+"/v2/models/add/infer", "{")
	post(t, url+"/v2/models/none/infer", "{}")
	status(t, url+"/odd/")
	status(t, url+"/dead/")
	for _, path := range []string{"/v2/models/x1/infer", "/v2/models/add/versions/x2", "/x3",
		"/v2/models/x4%22%0A/ready"} {
		post(t, url+path, "{}", "X-Muster-Service", "x5")
	}
	post(t, url+"/v1/completions", `{"model":"x6"}`)
	text := scrape(s)
	for _, want := range []string{
		`muster_gateway_requests_total{code="200",service="add"} 3`,
		`muster_gateway_requests_total{code="400",service="add"} 2`,
		`muster_gateway_requests_total{code="503",service="none"} 1`,
		`muster_gateway_requests_total{code="other",service="odd"} 1`,
		`muster_gateway_requests_total{code="502",service="dead"} 1`,
		`muster_gateway_requests_total{code="404",service=""} 4`,
		`muster_gateway_drops_total{reason="no_replica",service="none"} 1`,
		`muster_gateway_retries_total{service="dead"} 1`,
		`muster_gateway_request_duration_seconds_count{service="add"} 5`,
		`muster_gateway_queue_duration_seconds_count{service="add"} 3`,
		`muster_gateway_batch_size_sum{service="add"} 3`,
		`muster_gateway_queue_length{service="add"} 0`,
		`muster_gateway_replicas_open{service="dead"} 2`,
		`muster_gateway_in_flight{service="add"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is not there", want)
		}
	}
	for _, bad := range []string{"x1", "x2", "x3", "x4", "x5", "x6", `"799"`} {
		if strings.Contains(text, bad) {
			t.Errorf("%s is in the metrics", bad)
		}
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	config.Services = config.Services[:1]
	if err := s.Update(config); err != nil {
		t.Fatal(err)
	}
	if text = scrape(s); strings.Contains(text, "dead") || !strings.Contains(text, `service="add"`) {
		t.Errorf("a service that is gone:\n%s", text)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestAccessLogFull: where the disk is full, lines are lost; once there is room, they are written again.
func TestAccessLogFull(t *testing.T) {
	l, err := OpenAccessLog("/dev/full")
	if err != nil {
		t.Skip(err)
	}
	line := func() { l.write(&answer{}, "app", 200, time.Now(), time.Now()) }
	line()
	if l.Flush() == nil {
		t.Error("it could be written")
	}
	if err := l.Flush(); err != nil {
		t.Errorf("the error stays: %v", err)
	}
	line()
	l.path = filepath.Join(t.TempDir(), "log")
	if l.Reopen() == nil {
		t.Error("a line is lost without an error")
	}
	line()
	if err := l.Flush(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(l.path); err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%s %v", text, err)
	}
}

// TestDropReasons: a queue that is full, and a request that waited too long.
func TestDropReasons(t *testing.T) {
	b := newHandler(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	config := one(b.URL)
	config.Services[0].Waiting, config.Services[0].LatencyMS = 1, 300
	s, url := serveReal(t, config, Limits{})
	first := dial(t, url, "GET /app/x HTTP/1.1\r\nHost: x\r\n\r\n")
	until(t, "the replica is busy", func() bool { return served(s, "app").Each[0].Busy == 1 })
	late := make(chan int)
	go func() { late <- status(t, url+"/app/x") }()
	until(t, "one waits", func() bool { return served(s, "app").Waiting == 1 })
	resp, err := http.Get(url + "/app/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if got := <-late; got != 429 {
		t.Errorf("%d", got)
	}
	_ = first.Close()
	until(t, "the client has left", func() bool {
		return strings.Contains(scrape(s), `muster_gateway_requests_total{code="499",service="app"} 1`)
	})
	for _, want := range []string{`drops_total{reason="queue_full",service="app"} 1`,
		`drops_total{reason="late",service="app"} 1`, `requests_total{code="429",service="app"} 2`} {
		if text := scrape(s); !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
}
