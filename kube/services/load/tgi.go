package load

// tgi is Hugging Face's Text Generation Inference (https://huggingface.co/docs/text-generation-inference, Metrics). It
// does not publish the time until the first token.
var tgi = Server{Name: "tgi", prefix: "tgi_",
	waiting: []string{"tgi_queue_size"}, running: []string{"tgi_batch_current_size"},
	finished: []string{"tgi_request_success", "tgi_request_duration_count"},
	failed:   []string{"tgi_request_failure"},
	prompts:  []string{"tgi_request_input_length_sum"}, outputs: []string{"tgi_request_generated_tokens_sum"},
	latency: []timing{{name: "tgi_request_duration"}},
	tpot:    []timing{{name: "tgi_request_mean_time_per_token_duration"}}}
