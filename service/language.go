package service

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-gpu/muster/serving/llm"
)

// Sustained is the rate (requests per second) that a replica on n GPUs of a model sustains within a goal when requests
// have these many tokens in the mean: as many are answered at once as KV memory holds, and as leave each token in time
// (llm.TokenTime). 0: not even one at a time.
func (l *Language) Sustained(gpu string, n int, goal Goal, prompt, output float64) float64 {
	takes, e, err := l.On(gpu, n)
	if err != nil || prompt < 1 || output < 1 {
		return 0
	}
	prefill := llm.PromptTime(takes, e.Stages, prompt)
	if goal.TTFT > 0 && prefill > goal.TTFT.Seconds() {
		return 0
	}
	each := func(b int) float64 { return llm.TokenTime(takes, e.Stages, b, prompt, output) }
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

// alone is how long a request that is computed alone takes on n GPUs of a model: to its first token, and for each
// further one in the mean. ok: it is known.
func (l *Language) alone(gpu string, n int, prompt, output float64) (first, each time.Duration, ok bool) {
	takes, e, err := l.On(gpu, n)
	if err != nil {
		return 0, 0, false
	}
	context := int64(prompt + output/2)
	return time.Duration(llm.PromptTime(takes, e.Stages, prompt) * 1e9),
		time.Duration(e.Stages) * takes(&llm.Step{Tokens: 1, Attention: context, Read: context}), true
}

// miss is how far a request is from what is promised of it.
type miss struct {
	key   string        // of the promise
	of    string        // what that bounds
	most  time.Duration // as promised
	takes time.Duration
	by    float64 // the factor between them; at most 1: the promise is kept
}

// farthest is the promise that a request, computed alone, misses most where a variant computes its phase.
func (g *Goal) farthest(phase llm.Phase, first, each time.Duration, output float64) (far miss) {
	consider := func(key, of string, most, takes time.Duration) {
		if by := float64(takes) / float64(most); most > 0 && by > far.by {
			far = miss{key, of, most, takes, by}
		}
	}
	if phase != llm.Decode {
		consider("ttft", "has the first token of", g.TTFT, first)
	}
	if phase != llm.Prefill {
		consider("tpot", "makes each further token of", g.TPOT, each)
	}
	if phase == llm.Both {
		consider("latency", "answers", g.Latency, first+time.Duration((output-1)*float64(each)))
	}
	return far
}

// lengths are the tokens of a request as the forecast states them, else the usual ones.
func (s *Service) lengths() (prompt, output float64) {
	if s.Forecast.Prompt > 0 {
		return s.Forecast.Prompt, s.Forecast.Output
	}
	return usualPrompt, usualOutput
}

// languageReachable reports as an error that no variant of an accuracy, or none of one of the phases, answers a request
// within the goal even if it computes nothing else, and which is nearest. A variant whose GPUs are not stated may.
func (s *Service) languageReachable(accuracy float64) error {
	for phase := range llm.Phase(len(llm.PhaseNames)) {
		if err := s.phaseReachable(phase, accuracy); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) phaseReachable(phase llm.Phase, accuracy float64) error {
	prompt, output := s.lengths()
	nearest, name, least := "", "", miss{by: math.Inf(1)}
	there, accurate := false, false
	for i := range s.Variants {
		v := &s.Variants[i]
		if v.Language.Phase != phase {
			continue
		}
		there = true
		if v.Accuracy < accuracy {
			continue
		}
		accurate = true
		if len(v.GPUTypes) == 0 {
			return nil
		}
		for _, gpu := range v.GPUTypes {
			first, each, ok := v.Language.alone(gpu, v.Request.GPUs, prompt, output)
			if !ok {
				continue
			}
			if far := s.Goal.farthest(phase, first, each, output); far.by < least.by {
				least, name, nearest = far, v.Name, fmt.Sprintf("%d %s", v.Request.GPUs, gpu)
			}
		}
	}
	switch {
	case there && !accurate:
		return fmt.Errorf("budget: no variant has an accuracy of %g or more", accuracy)
	case nearest == "" || least.by <= 1:
		return nil
	}
	return fmt.Errorf("%s: no variant %s a request alone (%g tokens, %g in its answer; prompt and output of forecast state others) within %v; the nearest is %s on %s, which takes %v",
		least.key, least.of, prompt, output, least.most, name, nearest, least.takes.Round(10*time.Microsecond))
}
