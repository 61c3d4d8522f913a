package memory

import (
	"math"
	"strings"
	"testing"
)

// TestRead: of several engines the fullest counts, the newer name before the older one, and no claim is believed that
// is no part.
func TestRead(t *testing.T) {
	for text, want := range map[string]float64{
		"vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n": 0.75,
		"# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc 0.5\n":                    0.5,
		"vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.1\n":                              0.1,
		"sglang:token_usage 0.4\n":                                         0.4,
		"vllm:kv_cache_usage_perc 7\n":                                     1,
		"vllm:kv_cache_usage_perc +Inf\n":                                  1,
		"vllm:kv_cache_usage_perc NaN\n":                                   math.NaN(), // unknown
		"vllm:kv_cache_usage_perc -1\n":                                    math.NaN(),
		"tgi_queue_size 3\n":                                               math.NaN(),
		"{\"error\": \"no such path\"}":                                    math.NaN(),
		strings.Repeat("#\n", mostText) + "vllm:kv_cache_usage_perc 0.5\n": math.NaN(),
	} {
		got, known := Read(strings.NewReader(text))
		if known == math.IsNaN(want) || known && got != want {
			t.Errorf("%.60q: %g, %t; want %g", text, got, known, want)
		}
	}
}
