package service

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/serving/llm"
)

// Sustained is the rate (requests per second) that a replica on n GPUs of a model sustains within a goal when requests
// have these many tokens in the mean. In the steady state B requests are answered at once; each new one stalls the
// others for its prompt, so a token takes a decode step and B/output prompts (the composition of step times that
// aiconfigurator's silicon points confirm within 12 to 16 %). B is the largest that KV memory holds and with which a
// token is in time. 0: not even one at a time.
func (l *Language) Sustained(gpu string, n int, goal Goal, prompt, output float64) float64 {
	g, e, err := l.On(gpu, n)
	if err != nil || prompt < 1 || output < 1 {
		return 0
	}
	takes := llm.Roofline(&l.Model, &g, n)
	first := &llm.Step{}
	first.Add(int64(math.Ceil(prompt)), 0)
	prefill := takes(first).Seconds()
	if goal.TTFT > 0 && prefill > goal.TTFT.Seconds() {
		return 0
	}
	context := int64(prompt + output/2)
	each := func(b int) float64 { // a token's time with b requests at once
		s := llm.Step{Tokens: int64(b), Attention: int64(b) * context, Read: int64(b) * context}
		return takes(&s).Seconds() + float64(b)/output*prefill
	}
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
