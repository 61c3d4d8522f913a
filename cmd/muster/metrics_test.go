//go:build linux

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A scraper on this machine finds what happens in Prometheus's format.
func TestMetrics(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "4xH100-80GB")
	// A job that is told when it will start, and starts, is scored.
	d.must("submit", "--gpus", "4", "--time", "1h", "--", "sleep", "3600")
	d.must("submit", "--gpus", "1", "--", "true")
	d.expected("2")
	d.must("cancel", "1")
	d.must("wait", "2")
	d.must("submit", "--gpus", "2", "--time", "1h", "--", "sleep", "1000")
	d.must("submit", "--gpus", "4", "--", "true")
	d.untilSays("running", "queue")
	d.must("run", "--gpus", "4", "--tier", "critical", "--", "true")
	d.untilSays("running", "queue")
	d.want(d.must("nodes"), "2 GPUs free, 0.8 usable by the tasks submitted last")
	text := d.metrics()
	d.want(text, `muster_jobs{state="running"} 1`, `muster_jobs{state="pending"} 1`,
		`muster_gpus{state="allocated"} 2`, `muster_gpus{state="free"} 2`,
		// of five tasks one asks for one GPU and one for two; the others for four
		"muster_free_gpus 2", "muster_usable_gpus 0.8",
		"muster_gpu_allocated_ratio 0.5", `muster_queue_jobs{queue="default",state="pending"} 1`,
		`muster_queue_limit_gpus{queue="default"} +Inf`,
		"muster_submissions_total 5", `muster_preemptions_total{reason="tier"} 1`,
		`muster_jobs_ended_total{state="completed"} 2`,
		"muster_step_duration_seconds_count ", "muster_store_write_duration_seconds_bucket",
		`muster_prediction_error_seconds_count{direction="early"} 1`,
		`muster_http_requests_total{code="201",route="POST /v1/jobs"} 5`, "muster_ready 1", `simulated="true"`)
	if strings.Contains(text, "muster_step_duration_seconds_count 0\n") {
		t.Error("no step was counted")
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/jobs": 401} {
		resp, err := http.Get(d.base() + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("%s: %d, %v", path, resp.StatusCode, err)
		}
	}
}

// base is the address of a daemon's dashboard.
func (d *daemon) base() string {
	d.t.Helper()
	base, _, _ := strings.Cut(d.must("dashboard", "--no-open"), "/login")
	return base
}

// metrics is what a daemon tells Prometheus.
func (d *daemon) metrics() string {
	d.t.Helper()
	resp, err := http.Get(d.base() + "/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		d.t.Fatalf("%d %s %v", resp.StatusCode, text, err)
	}
	return string(text)
}
