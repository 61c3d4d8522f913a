package load

import "github.com/muster-gpu/muster/serving/memory"

// sglang publishes its metrics with --enable-metrics (https://docs.sglang.io, Production Metrics). With two phases
// (PD Disaggregation) a request is in a queue of a prefill server and in one of a decode server at the same time: it
// waits for memory of the latter, then for the former to compute it, then for its turn at the latter.
var sglang = Server{Name: "sglang", prefix: "sglang:",
	waiting: []string{"sglang:num_queue_reqs"}, running: []string{"sglang:num_running_reqs"},
	full:     memory.SGLang,
	finished: []string{"sglang:e2e_request_latency_seconds_count", "sglang:num_requests_total"},
	failed:   []string{"sglang:num_aborted_requests_total"},
	prompts:  []string{"sglang:prompt_tokens_total"}, outputs: []string{"sglang:generation_tokens_total"},
	latency: []timing{{name: "sglang:e2e_request_latency_seconds"}},
	ttft:    []timing{{name: "sglang:time_to_first_token_seconds"}},
	tpot: []timing{{name: "sglang:inter_token_latency_seconds"},
		{name: "sglang:time_per_output_token_seconds"}},
	memory: "sglang:num_decode_prealloc_queue_reqs", together: true,
	moving: []string{"sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs",
		"sglang:num_prefill_inflight_queue_reqs", "sglang:num_decode_transfer_queue_reqs"}}
