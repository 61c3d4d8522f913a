package load

import "github.com/muster-gpu/muster/serving/memory"

// vllm publishes its metrics at the port of its API (https://docs.vllm.ai, Production Metrics).
var vllm = Server{Name: "vllm", prefix: "vllm:",
	waiting: []string{"vllm:num_requests_waiting"}, running: []string{"vllm:num_requests_running"},
	full:     memory.VLLM,
	finished: []string{"vllm:request_success_total", "vllm:request_success", "vllm:e2e_request_latency_seconds_count"},
	prompts:  []string{"vllm:request_prompt_tokens_sum", "vllm:prompt_tokens_total"},
	outputs:  []string{"vllm:request_generation_tokens_sum", "vllm:generation_tokens_total"},
	latency:  []timing{{name: "vllm:e2e_request_latency_seconds"}},
	ttft:     []timing{{name: "vllm:time_to_first_token_seconds"}},
	tpot: []timing{{name: "vllm:request_time_per_output_token_seconds"}, {name: "vllm:inter_token_latency_seconds"},
		{name: "vllm:time_per_output_token_seconds"}}}
