package load

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-gpu/muster/service"
)

// published are the metrics of model servers after n requests of which a tenth took long; each has a prompt of 100 and
// an answer of 20 tokens. Two requests wait and three run.
var published = map[string]func(n int) string{
	"vllm": func(n int) string {
		return gauge("vllm:num_requests_waiting", 2) + gauge("vllm:num_requests_running", 3) +
			gauge("vllm:kv_cache_usage_perc", 0.5) +
			"# TYPE vllm:request_success_total counter\n" +
			fmt.Sprintf("vllm:request_success_total{finished_reason=\"stop\",model_name=\"m\"} %d\n", n-n/10) +
			fmt.Sprintf("vllm:request_success_total{finished_reason=\"length\",model_name=\"m\"} %d\n", n/10) +
			histogramText("vllm:e2e_request_latency_seconds", n, "0.3", "0.5", "1.0") +
			histogramText("vllm:time_to_first_token_seconds", n, "0.05", "0.1", "0.25") +
			histogramText("vllm:inter_token_latency_seconds", 19*n, "0.01", "0.025", "0.05") +
			histogramText("vllm:request_prompt_tokens", n, "50", "100", "200") +
			counter("vllm:prompt_tokens_total", 100*n) + counter("vllm:generation_tokens_total", 20*n)
	},
	"sglang": func(n int) string {
		return gauge("sglang:num_queue_reqs", 2) + gauge("sglang:num_running_reqs", 3) +
			gauge("sglang:token_usage", 0.5) + counter("sglang:num_requests_total", n) +
			histogramText("sglang:e2e_request_latency_seconds", n, "0.3", "0.5", "1.0") +
			histogramText("sglang:time_to_first_token_seconds", n, "0.05", "0.1", "0.25") +
			histogramText("sglang:inter_token_latency_seconds", 19*n, "0.01", "0.025", "0.05") +
			counter("sglang:prompt_tokens_total", 100*n) + counter("sglang:generation_tokens_total", 20*n)
	},
	// in batches of four, which take 80 ms
	"triton": func(n int) string {
		return gauge("nv_inference_pending_request_count", 5) + counter("nv_inference_request_success", n) +
			counter("nv_inference_request_failure", 0) + counter("nv_inference_count", n) +
			counter("nv_inference_exec_count", n/4) + counter("nv_inference_request_duration_us", n*400000) +
			counter("nv_inference_compute_input_duration_us", n*5000) +
			counter("nv_inference_compute_infer_duration_us", n*70000) +
			counter("nv_inference_compute_output_duration_us", n*5000)
	},
	"tgi": func(n int) string {
		return gauge("tgi_queue_size", 2) + gauge("tgi_batch_current_size", 3) + counter("tgi_request_success", n) +
			histogramText("tgi_request_duration", n, "0.3", "0.5", "1.0") +
			histogramText("tgi_request_mean_time_per_token_duration", n, "0.01", "0.025", "0.05") +
			fmt.Sprintf("# TYPE tgi_request_input_length histogram\ntgi_request_input_length_bucket{le=\"+Inf\"} %d\n"+
				"tgi_request_input_length_sum %d\ntgi_request_input_length_count %d\n", n, 100*n, n) +
			fmt.Sprintf("# TYPE tgi_request_generated_tokens histogram\n"+
				"tgi_request_generated_tokens_bucket{le=\"+Inf\"} %d\ntgi_request_generated_tokens_sum %d\ntgi_request_generated_tokens_count %d\n", n, 20*n, n)
	},
	// a deployment that computes behind one that passes requests on
	"ray": func(n int) string {
		of := func(deployment string, n int) string {
			return strings.ReplaceAll(gauge("ray_serve_replica_processing_queries", 3)+
				counter("ray_serve_deployment_request_counter_total", n)+
				histogramText("ray_serve_deployment_processing_latency_ms", n, "300", "500", "1000"),
				`model_name="m"`, `deployment="`+deployment+`"`)
		}
		return of("main", n) + withoutTypes(of("router", 2*n)) + gauge("ray_vllm_num_requests_waiting", 2) +
			gauge("ray_vllm_kv_cache_usage_perc", 0.5) +
			histogramText("ray_vllm_time_to_first_token_seconds", n, "0.05", "0.1", "0.25") +
			histogramText("ray_vllm_inter_token_latency_seconds", 19*n, "0.01", "0.025", "0.05") +
			counter("ray_vllm_prompt_tokens_total", 100*n) + counter("ray_vllm_generation_tokens_total", 20*n)
	},
}

func withoutTypes(text string) string {
	return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
}

func gauge(name string, v float64) string {
	return fmt.Sprintf("# HELP %[1]s What it says.\n# TYPE %[1]s gauge\n%[1]s{model_name=\"m\"} %[2]g\n", name, v)
}

func counter(name string, v int) string {
	return fmt.Sprintf("# TYPE %[1]s counter\n%[1]s{model_name=\"m\"} %[2]d\n", name, v)
}

// histogramText has nine tenths between the first two bounds, and one beyond.
func histogramText(name string, n int, bounds ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# TYPE %s histogram\n", name)
	for i, count := range []int{0, n - n/10, n} {
		fmt.Fprintf(&b, "%s_bucket{le=%q,model_name=\"m\"} %d\n", name, bounds[i], count)
	}
	fmt.Fprintf(&b, "%[1]s_bucket{le=\"+Inf\",model_name=\"m\"} %[2]d\n%[1]s_sum{model_name=\"m\"} %[2]d\n"+
		"%[1]s_count{model_name=\"m\"} %[2]d\n", name, n)
	return b.String()
}

// batches are what some of them computed in ten seconds: batches, or what was there at a time.
var batches = map[string]Batches{"triton": {"u1", 4, 50, 0.08}, "vllm": {"u1", 20, 10, 1}}

// TestServers: what is published by each kind of model server over HTTP becomes the requests of a period, their
// latencies, and what was late.
func TestServers(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			n.Store(1000)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, published[name](int(n.Load())))
			}))
			defer s.Close()
			now := time.Unix(1000, 0)
			p := NewPods(func() time.Time { return now }, true)
			pods := []Replica{{ID: "u1", Name: "a", Address: s.URL + "/metrics", Started: time.Unix(0, 0),
				Part: map[string]string{"ray": "main"}[name]}}
			goal := &service.Goal{Latency: 500 * time.Millisecond, Percentile: 99}
			var m Meter
			take := func() Load {
				readings, err := p.Read(t.Context(), "", "", pods)
				if err != nil {
					t.Fatal(err)
				}
				return m.Take(now, goal, pods, readings)
			}
			if l := take(); l.Period != 0 || l.Arrived != 0 || l.Known != 1 {
				t.Errorf("the first look: %+v", l)
			}
			now = now.Add(10 * time.Second)
			n.Add(200)
			l := take()
			if l.Period != 10*time.Second || l.Arrived != 200 || l.Answered != 200 {
				t.Errorf("%d arrived and %d answered in %s", l.Arrived, l.Answered, l.Period)
			}
			if tells := name != "triton" && name != "tgi"; (l.Tell == 1) != tells || tells && l.Full != 0.5 {
				t.Errorf("%d say how full they are: %g", l.Tell, l.Full)
			}
			if want, checked := batches[name]; checked && (len(l.Batches) != 1 || l.Batches[0] != want) {
				t.Errorf("batches %+v, not %+v", l.Batches, want)
			}
			p50, p99 := l.Latency.Quantile(0.5), l.Latency.Quantile(0.99)
			switch name {
			case "triton": // the mean stands for all
				if l.Waiting != 5 || p99 < 399*time.Millisecond || p99 > 410*time.Millisecond || l.Missed() != 0 {
					t.Errorf("%d wait, p99 %s, %d missed", l.Waiting, p99, l.Missed())
				}
				if l.Busy != 4*time.Second { // 50 batches
					t.Errorf("busy for %s", l.Busy)
				}
				return
			case "tgi":
				if l.Busy != 0 || l.TTFT.Total() != 0 {
					t.Errorf("busy for %s, %d first tokens", l.Busy, l.TTFT.Total())
				}
			default:
				if q := l.TTFT.Quantile(0.5); l.Busy != 5*time.Second || q < 50*time.Millisecond ||
					q > 100*time.Millisecond {
					t.Errorf("busy for %s, half of the first tokens after %s", l.Busy, q)
				}
			}
			if p50 < 350*time.Millisecond || p50 > 450*time.Millisecond || p99 < 900*time.Millisecond ||
				p99 > 1020*time.Millisecond {
				t.Errorf("p50 %s, p99 %s", p50, p99)
			}
			if q := l.TPOT.Quantile(0.5); l.Waiting != 2 || l.Missed() != 20 || q < 10*time.Millisecond ||
				q > 25*time.Millisecond {
				t.Errorf("%d wait, %d missed, half of the tokens after %s", l.Waiting, l.Missed(), q)
			}
			if l.Outputs != 4000 || l.Prompts != 20000 && name != "vllm" || l.Prompts != 200 && name == "vllm" {
				t.Errorf("%d tokens of prompts, %d of answers", l.Prompts, l.Outputs)
			}
			n.Store(50) // it began again
			now = now.Add(10 * time.Second)
			if l := take(); l.Arrived != 50 || l.Answered != 50 {
				t.Errorf("after it began again %d arrived, %d answered", l.Arrived, l.Answered)
			}
		})
	}
}

// TestNewReplica: a replica that is new counts as much as in the mean since it started; one that does not answer for
// a while is counted when it does; what was scraped once is not counted twice.
func TestNewReplica(t *testing.T) {
	goal := &service.Goal{Latency: time.Second, Percentile: 99}
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	a, b := Replica{ID: "a", Started: at(0)}, Replica{ID: "b", Started: at(95)}
	read := func(seconds int64, finished float64) Reading { return Reading{At: at(seconds), Finished: finished} }
	var m Meter
	m.Take(at(90), goal, []Replica{a}, map[string]Reading{"a": read(90, 500)})
	l := m.Take(at(100), goal, []Replica{a, b}, map[string]Reading{"b": read(100, 20)})
	if l.Arrived != 20 || l.Known != 1 {
		t.Errorf("%d arrived at the new one, which answered 20", l.Arrived)
	}
	l = m.Take(at(110), goal, []Replica{a, b}, map[string]Reading{"a": read(110, 600), "b": read(100, 20)})
	if l.Arrived != 50+20 {
		t.Errorf("%d arrived: 100 in 20 s at the one that answers again, and 2/s at the other, which was not scraped",
			l.Arrived)
	}
}

// TestClaims: what a replica says can be anything.
func TestClaims(t *testing.T) {
	good := published["vllm"](10)
	for text, want := range map[string]string{
		"":              "no metrics of a server that is known",
		"<html>secret":  "not in Prometheus' text format",
		"up 1\n":        "no metrics of a server that is known (vllm, sglang, triton, tgi, ray)",
		good + "\n\x00": "not in Prometheus' text format",
		strings.Repeat("# a comment of some length that fills what is read\n", 200000): "more than 8 MiB",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text)
		}))
		_, err := NewPods(time.Now, true).Read(t.Context(), "", "", []Replica{{ID: "1", Name: "x", Address: s.URL}})
		s.Close()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	s := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/", http.StatusFound))
	defer s.Close()
	if _, err := NewPods(time.Now, true).Read(t.Context(), "", "", []Replica{{ID: "1", Address: s.URL}}); err == nil ||
		!strings.Contains(err.Error(), "it answers 302") {
		t.Errorf("a redirection: %v", err)
	}
	if _, err := NewPods(time.Now, false).Read(t.Context(), "", "", []Replica{{ID: "1", Address: s.URL}}); err == nil ||
		!strings.Contains(err.Error(), errAddress.Error()) {
		t.Errorf("an address of this machine: %v", err)
	}
	sum, err := parse(strings.NewReader(`vllm:num_requests_waiting -5
vllm:num_requests_running NaN
vllm:request_success_total 1e300
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="-1"} 7
vllm:e2e_request_latency_seconds_bucket{le="1e300"} 1e12
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 3
`), "")
	if err != nil {
		t.Fatal(err)
	}
	sum.add("vllm:known", 1)
	r := vllm.read(sum, time.Unix(5, 0))
	if r.Waiting != 0 || r.Running != 0 || r.Finished != 0 {
		t.Errorf("%+v", r)
	}
	var m Meter
	m.Take(time.Unix(1, 0), &service.Goal{Latency: time.Second}, nil, nil)
	l := m.Take(time.Unix(6, 0), &service.Goal{Latency: time.Second, Percentile: 99},
		[]Replica{{ID: "1", Started: time.Unix(0, 0)}}, map[string]Reading{"1": r})
	if q := l.Latency.Quantile(0.99); q < 0 || q > 48*time.Hour || l.Missed() < 0 {
		t.Errorf("p99 %s, %d missed", q, l.Missed())
	}
}

func TestBeyond(t *testing.T) {
	h := histogram{{0.1, 10}, {0.2, 10}, {math.Inf(1), 5}}
	for limit, want := range map[float64]float64{0.05: 20, 0.1: 15, 0.15: 10, 0.2: 5, 3: 5} {
		if got := h.beyond(limit); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g took longer than %g, not %g", got, limit, want)
		}
	}
}
