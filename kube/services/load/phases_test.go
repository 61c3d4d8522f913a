package load

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

// What model servers of two phases publish after n requests, each with a prompt of 500 tokens and an answer of 100, and
// with so many that wait and run: vLLM with the connector NIXL behind llm-d's router, and SGLang with
// --disaggregation-mode behind its own.
var (
	vllmPrefill = func(n, waiting, running int) string {
		return gauge("vllm:num_requests_waiting", float64(waiting)) +
			gauge("vllm:num_requests_running", float64(running)) +
			counter("vllm:request_success_total", n) + counter("vllm:generation_tokens_total", n) +
			total("vllm:request_prompt_tokens", n, 500*float64(n)) +
			total("vllm:request_generation_tokens", n, float64(n)) +
			equal("vllm:time_to_first_token_seconds", n, "0.1", "0.2", 0.15) +
			equal("vllm:e2e_request_latency_seconds", n, "0.1", "0.2", 0.15) +
			equal("vllm:request_time_per_output_token_seconds", n, "0", "0.01", 0) // of one token
	}
	vllmDecode = func(n, waiting, running int) string {
		return gauge("vllm:num_requests_waiting", float64(waiting)) +
			gauge("vllm:num_requests_running", float64(running)) +
			counter("vllm:request_success_total", n) + counter("vllm:generation_tokens_total", 100*n) +
			total("vllm:request_prompt_tokens", n, 500*float64(n)) +
			total("vllm:request_generation_tokens", n, 100*float64(n)) +
			equal("vllm:time_to_first_token_seconds", n, "0.01", "0.05", 0.03) +
			equal("vllm:e2e_request_latency_seconds", n, "3", "5", 4) +
			equal("vllm:request_time_per_output_token_seconds", n, "0.03", "0.05", 0.04)
	}
	sglangPrefill = func(n, waiting, running int) string {
		return gauge("sglang:num_queue_reqs", float64(waiting)) + gauge("sglang:num_running_reqs", float64(running)) +
			gauge("sglang:num_prefill_bootstrap_queue_reqs", 2) + gauge("sglang:num_prefill_inflight_queue_reqs", 1) +
			gauge("sglang:num_decode_prealloc_queue_reqs", 0) + gauge("sglang:num_decode_transfer_queue_reqs", 0) +
			counter("sglang:num_requests_total", n) + counter("sglang:num_aborted_requests_total", n/10) +
			counter("sglang:prompt_tokens_total", 500*n) + counter("sglang:generation_tokens_total", n) +
			equal("sglang:e2e_request_latency_seconds", n, "0.1", "0.2", 0.15)
	}
	sglangDecode = func(n, waiting, running int) string {
		return gauge("sglang:num_queue_reqs", float64(waiting)) + gauge("sglang:num_running_reqs", float64(running)) +
			gauge("sglang:num_decode_prealloc_queue_reqs", 2) + gauge("sglang:num_decode_transfer_queue_reqs", 6) +
			counter("sglang:num_requests_total", n) + counter("sglang:num_aborted_requests_total", n/10) +
			counter("sglang:prompt_tokens_total", 500*n) + counter("sglang:generation_tokens_total", 100*n) +
			equal("sglang:time_to_first_token_seconds", n, "0.1", "0.3", 0.18) +
			equal("sglang:inter_token_latency_seconds", 99*n, "0.03", "0.05", 0.04) +
			equal("sglang:e2e_request_latency_seconds", n, "3", "5", 4)
	}
)

// equal is a histogram of n durations between two bounds, with a mean.
func equal(name string, n int, from, to string, mean float64) string {
	return fmt.Sprintf("# TYPE %[1]s histogram\n%[1]s_bucket{le=%[3]q} 0\n%[1]s_bucket{le=%[4]q} %[2]d\n"+
		"%[1]s_bucket{le=\"+Inf\"} %[2]d\n%[1]s_sum %[5]g\n%[1]s_count %[2]d\n", name, n, from, to, mean*float64(n))
}

// total is a histogram of which only the sum counts.
func total(name string, n int, sum float64) string {
	return fmt.Sprintf("# TYPE %[1]s histogram\n%[1]s_bucket{le=\"+Inf\"} %[2]d\n%[1]s_sum %[3]g\n%[1]s_count %[2]d\n",
		name, n, sum)
}

// splitServers are a prefill and a decode server that are looked at every ten seconds.
type splitServers struct {
	*testing.T
	m    Meter
	now  time.Time
	goal service.Goal
	list []Replica
}

func newSplit(t *testing.T) *splitServers {
	return &splitServers{T: t, now: time.Unix(1000, 0),
		goal: service.Goal{TTFT: 200 * time.Millisecond, TPOT: 50 * time.Millisecond, Percentile: 90},
		list: []Replica{{ID: "p", Started: time.Unix(0, 0), Phase: llm.Prefill},
			{ID: "d", Started: time.Unix(0, 0), Phase: llm.Decode}}}
}

func (s *splitServers) take(prefill, decode string) Load {
	s.Helper()
	readings := map[string]Reading{}
	for id, text := range map[string]string{"p": prefill, "d": decode} {
		got, err := parse(strings.NewReader(text), "")
		if err != nil {
			s.Fatal(err)
		}
		k, err := recognise(got, "")
		if err != nil {
			s.Fatal(err)
		}
		readings[id] = k.read(got, s.now)
	}
	l := s.m.Take(s.now, &s.goal, s.list, readings)
	s.now = s.now.Add(10 * time.Second)
	return l
}

func near(d, want time.Duration) bool { return d > want*9/10 && d < want*11/10 }

// TestPhasesVLLM: a request that a prefill server computes first and a decode server then counts once: it arrives at
// the former and is answered by the latter, and its times are the sums of both.
func TestPhasesVLLM(t *testing.T) {
	s := newSplit(t)
	s.take(vllmPrefill(1000, 0, 2), vllmDecode(990, 0, 8))
	l := s.take(vllmPrefill(1100, 3, 2), vllmDecode(1080, 4, 16))
	if l.Arrived != 103 || l.Answered != 90 || l.Waiting != 7 || l.Known != 2 {
		t.Errorf("%d arrived, %d answered, %d wait, %d servers are known", l.Arrived, l.Answered, l.Waiting, l.Known)
	}
	if l.Prompts != 90*500 || l.Outputs != 90*100 {
		t.Errorf("%d tokens of prompts, %d of answers, of 90", l.Prompts, l.Outputs)
	}
	first, all := l.TTFT.Quantile(0.5), l.Latency.Quantile(0.5)
	if !near(first, 180*time.Millisecond) || !near(all, 4150*time.Millisecond) {
		t.Errorf("half of the first tokens after %s, half of the answers after %s", first, all)
	}
	if q := l.TPOT.Quantile(0.01); q < 30*time.Millisecond {
		t.Errorf("the fastest tokens after %s", q)
	}
	if l.TTFT.Total() != 100 || l.TPOT.Total() != 90 || l.Latency.Total() != 90 {
		t.Errorf("%d first tokens, %d times of a token, %d latencies", l.TTFT.Total(), l.TPOT.Total(),
			l.Latency.Total())
	}
	// first tokens come after 130 to 230 ms, so three in ten are late
	if l.InTime < 60 || l.InTime > 66 {
		t.Errorf("%d of 90 are in time", l.InTime)
	}
	// prompts are stuck: what arrives counts though it is not answered
	if l = s.take(vllmPrefill(1100, 53, 2), vllmDecode(1080, 4, 16)); l.Arrived != 50 || l.Waiting != 57 {
		t.Errorf("%d arrived, %d wait", l.Arrived, l.Waiting)
	}
	// they go on: what comes to decode servers now is known
	if l = s.take(vllmPrefill(1150, 3, 2), vllmDecode(1130, 4, 16)); l.Arrived != 0 || l.Answered != 50 {
		t.Errorf("%d arrived, %d are answered", l.Arrived, l.Answered)
	}
}

// TestPhasesAlone: requests that a router sends to decode servers alone arrive as well, and those that are between two
// servers for a while do not arrive twice.
func TestPhasesAlone(t *testing.T) {
	s := newSplit(t)
	s.take(vllmPrefill(0, 0, 0), vllmDecode(0, 0, 0))
	arrived := int64(0)
	// 100 with two phases, of which ten come to the other server in the next period, and 60 without
	for k := 1; k <= 10; k++ {
		l := s.take(vllmPrefill(100*k, 0, 0), vllmDecode(160*k-10*(k%2), 0, 0))
		arrived += l.Arrived
	}
	if arrived < 1590 || arrived > 1610 {
		t.Errorf("of 1600 requests %d arrived", arrived)
	}
	if s.m.between > 200 {
		t.Errorf("%g are between two servers", s.m.between)
	}
	arrived = 0
	for k := 1; k <= 10; k++ { // a hundred of each thousand are lost after their prompts
		arrived += s.take(vllmPrefill(1000+1000*k, 0, 0), vllmDecode(1600+900*k, 0, 0)).Arrived
	}
	if l := s.take(vllmPrefill(11000, 0, 0), vllmDecode(10600+5000, 0, 0)); arrived != 10000 || l.Arrived < 4000 {
		t.Errorf("%d arrived of 10000; of 5000 without prompts then %d", arrived, l.Arrived)
	}
}

// TestPhasesSGLang: a request that is at servers of both phases at once counts once, waits once, and has the times of
// the decode server.
func TestPhasesSGLang(t *testing.T) {
	s := newSplit(t)
	s.take(sglangPrefill(1000, 0, 0), sglangDecode(1000, 0, 0))
	l := s.take(sglangPrefill(1100, 4, 1), sglangDecode(1100, 1, 4))
	// 110 are over (ten of them failed); at prefill servers are 5 more; two wait for memory, 4 for their prompts, one
	// for its tokens
	if l.Arrived != 115 || l.Answered != 100 || l.Failed != 10 || l.Waiting != 7 {
		t.Errorf("%d arrived, %d answered, %d failed, %d wait", l.Arrived, l.Answered, l.Failed, l.Waiting)
	}
	if l.Prompts != 100*500 || l.Outputs != 100*100 {
		t.Errorf("%d tokens of prompts, %d of answers, of 100", l.Prompts, l.Outputs)
	}
	if first, all := l.TTFT.Quantile(0.5), l.Latency.Quantile(0.5); !near(first, 200*time.Millisecond) ||
		!near(all, 4*time.Second) || l.TTFT.Total() != 100 {
		t.Errorf("half of %d first tokens after %s, half of the answers after %s", l.TTFT.Total(), first, all)
	}
	if l.InTime < 48 || l.InTime > 52 { // half of the first tokens
		t.Errorf("%d of 100 are in time", l.InTime)
	}
}
