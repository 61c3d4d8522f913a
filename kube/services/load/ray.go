package load

// rayServe is Ray Serve, whose replicas' metrics Ray publishes at a port of its own on each pod, usually 8080
// (https://docs.ray.io, Serve: Monitor Your Application). The latency is that in the replica. Of vLLM in it Ray
// publishes the metrics under names of its own.
var rayServe = Server{Name: "ray", prefix: "ray_serve_", more: []string{"ray_vllm"},
	waiting: []string{"ray_vllm_num_requests_waiting"},
	running: []string{"ray_serve_replica_processing_queries", "ray_serve_num_ongoing_requests_at_replicas"},
	full:    []string{"ray_vllm_kv_cache_usage_perc", "ray_vllm_gpu_cache_usage_perc"},
	finished: []string{"ray_serve_deployment_request_counter_total", "ray_serve_deployment_request_counter",
		"ray_serve_deployment_processing_latency_ms_count"},
	failed:  []string{"ray_serve_deployment_error_counter_total", "ray_serve_deployment_error_counter"},
	prompts: []string{"ray_vllm_request_prompt_tokens_sum", "ray_vllm_prompt_tokens_total"},
	outputs: []string{"ray_vllm_request_generation_tokens_sum", "ray_vllm_generation_tokens_total"},
	latency: []timing{{"ray_serve_deployment_processing_latency_ms", 1e-3}},
	ttft:    []timing{{name: "ray_vllm_time_to_first_token_seconds"}},
	tpot: []timing{{name: "ray_vllm_request_time_per_output_token_seconds"},
		{name: "ray_vllm_inter_token_latency_seconds"}}}
