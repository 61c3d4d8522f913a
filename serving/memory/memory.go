// Package memory knows by which metrics the servers of language models say how full the memory for keys and values is
// (the KV cache), and reads it. What a server says is a claim: it is bounded, and never trusted to be well-formed.
package memory

import (
	"io"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Names of gauges from 0 to 1, the newer ones first: vLLM's (https://docs.vllm.ai, Production Metrics) and SGLang's
// (https://docs.sglang.io, Production Metrics).
var (
	VLLM   = []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}
	SGLang = []string{"sglang:token_usage"}
)

// mostText is how much of what a server answers is read, in bytes.
const mostText = 4 << 20

// Read reads from metrics in Prometheus' text format which part of the memory is in use, 0 to 1: of several engines of
// a server, that of the fullest. known is false where they do not say it.
func Read(r io.Reader) (part float64, known bool) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(io.LimitReader(r, mostText))
	if err != nil {
		return 0, false
	}
	for _, names := range [][]string{VLLM, SGLang} {
		for _, name := range names {
			for _, m := range families[name].GetMetric() {
				if x := m.GetGauge().GetValue() + m.GetUntyped().GetValue(); x >= 0 { // not NaN
					part, known = max(part, min(x, 1)), true
				}
			}
			if known {
				return part, true
			}
		}
	}
	return 0, false
}
