package compat

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/llm"
)

// distModels are the models of that world as our engine has them.
var distModels = map[string]llm.Model{
	"opt-13b": {Name: "OPT-13B", Params: 12.85e9, Weights: 25.7e9, Layers: 40, Heads: 40, HeadDim: 128},
	"opt-66b": {Name: "OPT-66B", Params: 66e9, Weights: 132e9, Layers: 64, Heads: 72, HeadDim: 128},
}

// DistOurs is an instance of ours that serves the requests of that world.
type DistOurs struct {
	Engine llm.Engine
	Timer  llm.Timer
	Extra  int // tokens of each answer beyond its output: 1 as in that world
}

// Timer is how long the world's steps take on instances of a single stage. A step of ours is of prompts if nothing was
// computed before of its sequences.
func (m *DistMachine) Timer() llm.Timer {
	return func(s *llm.Step) time.Duration {
		n, took := float64(s.Tokens), 0.0
		if s.Tokens == s.Read {
			f := &m.prefill.Prefill
			took = f[0] + f[1]*n + f[2]*float64(2*s.Attention-s.Tokens) + distPerStage + distStep + distPerToken*n
		} else {
			f := &m.decode.Small
			if int(s.Tokens) >= m.decode.Threshold {
				f = &m.decode.Large
			}
			took = f[0] + f[1]*float64(s.Read) + f[2]*n + distStep + distPerToken*float64(s.Read-s.Tokens)
		}
		return time.Duration(math.Round(took * float64(time.Millisecond)))
	}
}

// Ours is the world's instance on one of ours: whole prompts in steps of their own, its step times, and no bound on the
// KV memory. It differs in one rule: all requests get their next token together, however long their context. false:
// there are two instances, or several stages.
func (m *DistMachine) Ours() (DistOurs, bool) {
	return DistOurs{Timer: m.Timer(), Extra: 1,
			Engine: llm.Engine{Tokens: m.budget, Sequences: m.most, Blocks: math.MaxInt32 / 2, Whole: true}},
		m.layout.Together && m.layout.Prefill.PP == 1
}

// NewDistOurs is a model on tp A100-80GB as our engine plays it by default: step times by the roofline, requests held
// in what 0.9 of the GPUs' memory leaves beside the weights, and prompts in chunks, so many tokens to a step; 0: whole
// prompts, in steps of their own. false: it cannot run there.
func NewDistOurs(model string, tp, chunk int) (DistOurs, bool) {
	m := distModels[model]
	g, ok := llm.FindGPU("A100-80GB", llm.BF16)
	o := DistOurs{Timer: llm.Roofline(&m, &g, llm.Lay(tp, 1)),
		Engine: llm.Engine{Tokens: chunk, Sequences: 256, Blocks: m.Blocks(llm.Lay(tp, 1), &g, 0.9, 0), Watermark: 64}}
	if chunk == 0 {
		o.Engine.Tokens, o.Engine.Whole = 2048, true
	}
	return o, ok && m.Heads%tp == 0 && o.Engine.Blocks > o.Engine.Watermark
}

// distServed collects what an instance hands out.
type distServed struct {
	times []DistTimes
	extra int
}

func (*distServed) Token(*llm.Sequence, cluster.Time) {}
func (*distServed) Tokens(int, time.Duration)         {}

func (d *distServed) Done(s *llm.Sequence) {
	t := DistTimes{TTFT: milliseconds(s.First - s.Arrived), Exit: milliseconds(s.Last)}
	if s.Output > 1 {
		t.TPOT = milliseconds(s.Last-s.First) / float64(s.Output-1)
	}
	d.times[s.ID] = t
}

func milliseconds(t cluster.Time) float64 { return float64(t) / float64(time.Millisecond) }

// Run plays requests. TPOT is the mean time between tokens: over one less than there are.
func (o *DistOurs) Run(list []DistRequest, arrivals []float64) ([]DistTimes, error) {
	if err := o.Engine.Check(); err != nil {
		return nil, err
	}
	d := &distServed{times: make([]DistTimes, len(list))}
	x := llm.NewInstance(o.Engine, o.Timer, d)
	for next := 0; next < len(list) || x.End() != cluster.Never; {
		now := x.End()
		if next < len(list) {
			now = min(now, distTime(arrivals[next]))
		}
		if now == x.End() {
			x.Finish()
		}
		for ; next < len(list) && distTime(arrivals[next]) <= now; next++ {
			q := llm.Sequence{ID: int64(next), Arrived: now, Prompt: int32(list[next].Prompt),
				Output: int32(list[next].Output + o.Extra)}
			if !x.Fits(q.Prompt, q.Output) {
				return nil, fmt.Errorf("request %d: %d tokens are more than the KV memory holds", next,
					q.Prompt+q.Output)
			}
			x.Add(q)
		}
		x.Begin(now)
	}
	return d.times, nil
}

func distTime(ms float64) cluster.Time {
	return cluster.Time(math.Round(ms * float64(time.Millisecond)))
}
