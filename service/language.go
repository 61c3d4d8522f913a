package service

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/serving/llm"
)

// Sustained is the rate (requests per second) that a replica on n GPUs of a model sustains within a goal when requests
// have these many tokens in the mean: as many are answered at once as KV memory holds, and as leave each token in time
// (llm.TokenTime). 0: not even one at a time.
func (l *Language) Sustained(gpu string, n int, goal Goal, prompt, output float64) float64 {
	g, e, err := l.On(gpu, n)
	if err != nil || prompt < 1 || output < 1 {
		return 0
	}
	takes := llm.Roofline(&l.Model, &g, n)
	prefill := llm.PromptTime(takes, prompt)
	if goal.TTFT > 0 && prefill > goal.TTFT.Seconds() {
		return 0
	}
	each := func(b int) float64 { return llm.TokenTime(takes, b, prompt, output) }
	most := min(e.Sequences, int(float64(e.Blocks*llm.BlockTokens)/(prompt+output)))
	bound := time.Duration(math.MaxInt64).Seconds()
	if goal.TPOT > 0 {
		bound = goal.TPOT.Seconds()
	}
	if goal.Latency > 0 {
		bound = min(bound, (goal.Latency.Seconds()-prefill)/output)
	}
	lo, hi := 0, most // the largest with which a token is in time
	for lo < hi {
		if mid := (lo + hi + 1) / 2; each(mid) <= bound {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if lo == 0 {
		return 0
	}
	return float64(lo) / (output * each(lo))
}
