package load

// sglang publishes its metrics with --enable-metrics (https://docs.sglang.io, Production Metrics).
var sglang = Server{Name: "sglang", prefix: "sglang:",
	waiting: []string{"sglang:num_queue_reqs"}, running: []string{"sglang:num_running_reqs"},
	full:     []string{"sglang:token_usage"},
	finished: []string{"sglang:e2e_request_latency_seconds_count", "sglang:num_requests_total"},
	failed:   []string{"sglang:num_aborted_requests_total"},
	prompts:  []string{"sglang:prompt_tokens_total"}, outputs: []string{"sglang:generation_tokens_total"},
	latency: []timing{{name: "sglang:e2e_request_latency_seconds"}},
	ttft:    []timing{{name: "sglang:time_to_first_token_seconds"}},
	tpot: []timing{{name: "sglang:inter_token_latency_seconds"},
		{name: "sglang:time_per_output_token_seconds"}}}
