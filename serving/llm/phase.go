package llm

import (
	"cmp"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Phase is what an instance computes of requests.
type Phase uint8

// An instance computes requests from their prompt to their last token, or one of the two phases: prompts up to the
// first token, or the tokens after it.
const (
	Both Phase = iota
	Prefill
	Decode
)

// PhaseNames are the spellings, by value.
var PhaseNames = [...]string{"both", "prefill", "decode"}

// Workload is a sample of requests: how long they are, and the gaps between them in units of their mean.
type Workload struct {
	Prompt, Output []int32
	Gaps           []float64
}

// Exponential is a workload of n requests with exponential gaps and lengths of these means (tokens). It is the same
// each time.
func Exponential(n int, prompt, output float64) Workload {
	state := uint64(1)
	draw := func() float64 {
		state = state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX generator
		return -math.Log1p(-float64(state>>11) / (1 << 53))
	}
	length := func(mean float64) int32 { return max(1, int32(math.Round(mean*min(8, draw())))) }
	w := Workload{}
	for range n {
		w.Gaps = append(w.Gaps, draw())
		w.Prompt, w.Output = append(w.Prompt, length(prompt)), append(w.Output, length(output))
	}
	return w
}

// Goodput is the highest rate (requests per second, found to 2 %) at which an instance answers a part of a workload
// within its bounds, when it computes one phase alone: of prefill the time to the first token, of decode the mean time
// of a token after it (DistServe, Zhong et al., OSDI 2024, algorithm 1). It is at most what full steps compute: of more
// a short workload may be in time, and a long one is not. 0: not even at one in a hundred seconds.
func Goodput(e Engine, takes Timer, phase Phase, w Workload, ttft, tpot time.Duration, part float64) float64 {
	holds := func(rate float64) bool { return attained(e, takes, phase, w, rate, ttft, tpot) >= part }
	low, high := 0.01, 0.02
	if !holds(low) {
		return 0
	}
	most := max(low, capacity(e, takes, phase, w))
	for high < most && holds(high) {
		low, high = high, 2*high
	}
	if high >= most {
		if high = most; holds(most) {
			return most
		}
	}
	for high > 1.02*low {
		if mid := math.Sqrt(low * high); holds(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// capacity is the requests per second of which an instance computes a phase when all its steps are as full as they can
// be: of prompts as many tokens as a step has, of other tokens one for as many requests as there are at once.
func capacity(e Engine, takes Timer, phase Phase, w Workload) float64 {
	n, tokens, attention, context := 0.0, 0.0, 0.0, 0.0
	for i, prompt := range w.Prompt {
		p, later := float64(prompt), float64(w.Output[i]-1)
		switch {
		case phase == Prefill:
			n, tokens, attention = n+1, tokens+p, attention+p*(p+1)/2
		case later > 0:
			n, tokens, context = n+1, tokens+later, context+later*(p+1+later/2)
		}
	}
	if tokens == 0 {
		return math.Inf(1)
	}
	full, read := float64(e.Tokens), 1.0 // tokens of a step; of each one those that are read
	if phase == Decode {
		attention, read = context, context/tokens
		full = min(full, float64(e.Sequences), max(1, float64(e.Blocks)*BlockTokens/read))
		full = max(1, full/float64(e.stages()))
	}
	s := &Step{Tokens: int64(math.Ceil(full)), Attention: int64(full * attention / tokens),
		Read: int64(full * read)}
	return n / (tokens / full * takes(s).Seconds())
}

// inTime counts the requests of a phase that were in time.
type inTime struct {
	phase      Phase
	ttft, tpot time.Duration
	n          int
}

func (c *inTime) Token(*Sequence, cluster.Time) {}

func (c *inTime) Tokens(int, time.Duration) {}

func (c *inTime) Done(s *Sequence) {
	switch {
	case c.phase == Prefill && s.First.Sub(s.Arrived) <= c.ttft,
		c.phase == Decode && s.Last.Sub(s.First) <= c.tpot*time.Duration(s.Output-1):
		c.n++
	}
}

// attained is the part of a workload that is in time at a rate (requests per second).
func attained(e Engine, takes Timer, phase Phase, w Workload, rate float64, ttft, tpot time.Duration) float64 {
	c := &inTime{phase: phase, ttft: ttft, tpot: tpot}
	asked := playPhase(NewInstance(e, takes, c), phase, w, rate)
	return float64(c.n) / float64(max(1, asked))
}

// playPhase has an instance compute a phase of a workload at a rate, and returns of how many requests there is
// such a phase.
func playPhase(x *Instance, phase Phase, w Workload, rate float64) (asked int) {
	at := 0.0
	until := func(to cluster.Time) {
		for x.End() <= to {
			now := x.End()
			x.Finish()
			x.Begin(now)
		}
	}
	for i := range w.Gaps {
		at += w.Gaps[i] / rate * 1e9
		now := cluster.Time(at) + 1 // 0 is no time of a first token
		until(now)
		s := Sequence{Arrived: now, Prompt: w.Prompt[i], Output: w.Output[i]}
		if phase == Decode {
			s.First, s.Last = now, now
		}
		head := Head(s)
		rest, more := head.Tail()
		switch {
		case phase == Decode && !more:
			continue
		case phase == Decode:
			s = rest
		case phase == Prefill:
			s = head
		}
		asked++
		if !x.Fits(s.Prompt, s.Output) {
			continue
		}
		x.Add(s)
		x.Begin(now)
	}
	until(cluster.Never - 1)
	return asked
}

// Best returns the index of the instance with the highest goodput for each of its GPUs; of equals the one with the
// fewest GPUs, then the one of which the fewest share a layer. -1: none has any.
func Best(goodput []float64, on []Layout) int {
	best := -1
	for i, g := range goodput {
		if g <= 0 {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		here, there := g*float64(on[best].GPUs()), goodput[best]*float64(on[i].GPUs())
		if here > there || here == there && cmp.Or(on[i].GPUs()-on[best].GPUs(), on[i].TP-on[best].TP) < 0 {
			best = i
		}
	}
	return best
}
