// Package llm computes how long steps of a language model take, and plays requests on an instance of one, step by
// step: continuous batching with chunked prompts and KV memory in blocks.
package llm

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Model is a language model as far as its speed and memory depend on it.
type Model struct {
	Name    string
	Params  float64 // that a token passes through: all, or with experts the active ones
	Weights float64 // bytes
	Layers  int
	Heads   int
	KVHeads int // heads with keys and values of their own; 0: all
	HeadDim int
	KVBytes float64 // of a token over all layers; 0: 2 x layers x KV heads x dimension x 2 bytes
}

// GPU is a device as far as speed and memory depend on it.
type GPU struct {
	Memory float64 // bytes
	Flops  float64 // operations per second at the model's precision
	Rate   float64 // memory bandwidth, bytes per second
}

// BlockTokens is the number of tokens of a block of KV memory.
const BlockTokens = 16

// KV is the bytes of KV memory of a token.
func (m *Model) KV() float64 {
	if m.KVBytes > 0 {
		return m.KVBytes
	}
	heads := m.KVHeads
	if heads == 0 {
		heads = m.Heads
	}
	return 2 * float64(m.Layers) * float64(heads) * float64(m.HeadDim) * 2
}

// Layout is how an instance's GPUs share a model: TP compute each layer together, and PP such groups, the stages,
// have the layers in turn.
type Layout struct{ TP, PP int }

// Lay is n GPUs in stages (0: one), which divide them.
func Lay(n, stages int) Layout {
	stages = max(1, stages)
	return Layout{TP: n / stages, PP: stages}
}

// GPUs is how many there are.
func (l Layout) GPUs() int { return l.TP * l.PP }

// kv is the bytes of KV memory of a token where each layer's heads with keys and values are split over tp GPUs: a GPU
// has whole ones, the same as others where there are fewer than GPUs.
func (m *Model) kv(tp int) float64 {
	heads := m.KVHeads
	if heads == 0 {
		heads = m.Heads
	}
	each := (heads + tp - 1) / tp
	return m.KV() * (float64(each*tp) / float64(heads))
}

// share is the part of the layers that the stage with the most has.
func (m *Model) share(stages int) float64 {
	return float64((m.Layers+stages-1)/stages) / float64(m.Layers)
}

// Blocks is the blocks of KV memory of an instance on GPUs of which a part (0.9, say) may be used, with reserve bytes
// of each for activations: as many as the stage with the most layers holds; 0 if the weights do not fit.
func (m *Model) Blocks(l Layout, g *GPU, part, reserve float64) int {
	left := float64(l.TP)*(part*g.Memory-reserve)/m.share(l.PP) - m.Weights
	return max(0, int(left/m.kv(l.TP)/BlockTokens))
}

// Check says what is wrong with a model.
func (m *Model) Check() error {
	switch {
	case !(m.Params > 0 && m.Params < 1e15) || !(m.Weights > 0 && m.Weights < 1e15):
		return errors.New("params (a number) and weights (bytes) must be above 0")
	case m.Layers < 1 || m.Heads < 1 || m.HeadDim < 1 || m.KVHeads < 0 || m.KVHeads > m.Heads || !(m.KVBytes >= 0):
		return errors.New("layers, heads and head_dim must be above 0, kv_heads at most heads")
	}
	return nil
}

// Step is the new tokens of a step and the context that they look at, over all of its sequences.
type Step struct {
	Tokens    int64 // new ones
	Attention int64 // sum over new tokens of the tokens that each looks at
	Read      int64 // sum over sequences of their tokens after the step
}

// Add adds c new tokens of a sequence after s that are computed already.
func (t *Step) Add(c, s int64) {
	t.Tokens += c
	t.Attention += c*s + c*(c+1)/2
	t.Read += s + c
}

// Timer says how long a stage takes for a step.
type Timer func(*Step) time.Duration

// Roofline is how long steps take if either computing or reading memory bounds them: a fixed time, the exchanges
// between GPUs, and the larger of operations and bytes over what the GPUs achieve (60 % of their operations, 80 % of
// their bandwidth). Of several stages each takes the part of this that it has of the layers, and hands on what it
// computed, which takes as long as an exchange; all take as long as the one with the most layers.
func Roofline(m *Model, g *GPU, l Layout) Timer {
	const (
		fixed    = 1e-3  // seconds
		exchange = 20e-6 // of an all-reduce; two for each layer
	)
	attention := 4 * float64(m.Layers) * float64(m.Heads) * float64(m.HeadDim)
	kv, flops, rate := m.kv(l.TP), float64(l.TP)*g.Flops*0.6, float64(l.TP)*g.Rate*0.8
	base, share, hop := fixed, m.share(l.PP), 0.0
	if l.TP > 1 {
		base += 2 * float64(m.Layers) * exchange
	}
	if l.PP > 1 {
		hop = exchange
	}
	return func(s *Step) time.Duration {
		compute := (2*m.Params*float64(s.Tokens) + attention*float64(s.Attention)) / flops
		read := (m.Weights + kv*float64(s.Read)) / rate
		return time.Duration(math.Round(((base+max(compute, read))*share + hop) * 1e9))
	}
}

// Engine says how an instance batches.
type Engine struct {
	Tokens    int  // new tokens of a step, at most
	Sequences int  // that run at once, at most
	Blocks    int  // of KV memory
	Watermark int  // blocks that an admission leaves free
	Stages    int  // that compute batches in turn; 0: one
	Whole     bool // prompts are computed whole, in steps of their own, before anything else (vLLM's first scheduler)
}

func (e *Engine) stages() int { return max(1, e.Stages) }

// MaxStages is the most stages of an instance.
const MaxStages = 64

// Check says what is wrong with an engine.
func (e *Engine) Check() error {
	if e.Stages < 0 || e.Stages > MaxStages {
		return fmt.Errorf("an instance has from 1 to %d stages, not %d", MaxStages, e.Stages)
	}
	if e.Tokens < 1 || e.Sequences < 1 || e.Blocks < 1 || e.Watermark < 0 || e.Watermark >= e.Blocks {
		return fmt.Errorf("an instance needs tokens, sequences and blocks of KV memory, all above 0; there are %d, %d and %d",
			e.Tokens, e.Sequences, e.Blocks)
	}
	return nil
}
