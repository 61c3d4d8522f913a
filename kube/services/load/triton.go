package load

// triton is NVIDIA's Triton Inference Server, which publishes its metrics at a port of its own, usually 8002. It has no
// histogram of latencies, but the time of all requests together: their mean stands for each.
var triton = Server{Name: "triton", prefix: "nv_inference_",
	waiting:  []string{"nv_inference_pending_request_count"},
	finished: []string{"nv_inference_request_success"}, failed: []string{"nv_inference_request_failure"},
	took: timing{"nv_inference_request_duration_us", 1e-6},
	ttft: []timing{{"nv_inference_first_response_histogram_ms", 1e-3}},
	computed: []timing{{"nv_inference_compute_input_duration_us", 1e-6},
		{"nv_inference_compute_infer_duration_us", 1e-6}, {"nv_inference_compute_output_duration_us", 1e-6}},
	requests: "nv_inference_count", batches: "nv_inference_exec_count"}
