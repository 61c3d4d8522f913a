package llm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Of the layers each stage has its part, rounded up, and hands on what it computed; its GPUs split a layer's heads, and
// have the same ones where there are fewer heads with keys and values than GPUs.
func TestLayout(t *testing.T) {
	step := steps([2]int64{2048, 0})
	one := Roofline(&llama70B, &h100fp8, Layout{2, 1})(step).Seconds()
	for stages, part := range map[int]float64{2: 1. / 2, 4: 1. / 4, 3: 27. / 80} {
		want := one*part + 20e-6
		if got := Roofline(&llama70B, &h100fp8, Layout{2, stages})(step).Seconds(); math.Abs(got-want) > 1e-9 {
			t.Errorf("a stage of %d takes %.9f s, want %.9f", stages, got, want)
		}
	}
	blocks := func(l Layout) int { return llama70B.Blocks(l, &h100fp8, 0.9, 0) }
	if one, four := blocks(Layout{4, 1}), blocks(Layout{1, 4}); one != four {
		t.Errorf("four GPUs have %d blocks, and %d as stages", one, four)
	}
	// 27 of 80 layers: 0.9 x 85,899,345,920 x 80/27 - 70.6e9 bytes, blocks of 16 x 327,680
	if got := blocks(Layout{1, 3}); got != 30224 {
		t.Errorf("three stages have %d blocks, want 30224", got)
	}
	whole, shared := blocks(Layout{8, 1}), blocks(Layout{16, 1})
	if want := float64(whole) + 0.9*8*h100fp8.Memory/llama70B.KV()/BlockTokens; math.Abs(2*float64(shared)-want) > 2 {
		t.Errorf("16 GPUs of which two each have the same heads hold %d blocks, and 8 hold %d", shared, whole)
	}
	decode := decodes(1, 1<<20) // reading keys and values is what takes time
	takes := func(tp int) time.Duration { return Roofline(&llama70B, &h100fp8, Layout{tp, 1})(decode) }
	two, less := takes(8), takes(16)
	if saved := (two - less).Seconds(); math.Abs(saved/(llama70B.Weights/16/(h100fp8.Rate*0.8))-1) > 1e-3 {
		t.Errorf("16 GPUs save %.6f s: that of the weights, not of keys and values", saved)
	}
}

// Prompts that come at random wait as in an M/D/1 queue before the first of two stages, each of which takes half of
// their 0.1 s (DistServe, section 3.1): with 200,000 of them the mean is within 1 %, more than four standard errors.
func TestPipelineQueue(t *testing.T) {
	w := Exponential(200_000, 1, 1)
	for i := range w.Prompt {
		w.Prompt[i], w.Output[i] = 64, 2
	}
	const d = 0.1
	for rate, want := range map[float64]float64{5: 0.10833, 9: 0.12045, 12: 0.1375} {
		if by := d + rate*d*d/(4*(2-rate*d)); math.Abs(by-want) > 1e-5 {
			t.Fatalf("the formula gives %.5f", by)
		}
		see := &firsts{}
		x := NewInstance(Engine{Tokens: 64, Sequences: 2, Blocks: 1000, Stages: 2},
			func(*Step) time.Duration { return time.Duration(1e9 * d / 2) }, see)
		if playPhase(x, Prefill, w, rate); see.n != 200_000 {
			t.Fatalf("%d prompts were computed", see.n)
		}
		if mean := see.sum.Seconds() / float64(see.n); math.Abs(mean/want-1) > 0.01 {
			t.Errorf("at %g/s the first token takes %.5f s, not %g", rate, mean, want)
		}
	}
}

// At a low rate two GPUs that share each layer have the first token sooner, and at a high one two stages: DistServe's
// section 3.1, with a speed-up of 1.5.
func TestPipelineOrLayers(t *testing.T) {
	w := Exponential(600, 1, 1)
	for i := range w.Prompt {
		w.Prompt[i], w.Output[i] = 64, 2
	}
	find := func(stages int, each, ttft time.Duration) float64 {
		e := Engine{Tokens: 64, Sequences: 2, Blocks: 1000, Stages: stages}
		return Goodput(e, func(*Step) time.Duration { return each }, Prefill, w, ttft, time.Second, 0.9)
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		ttft   time.Duration
		stages bool
	}{{90 * ms, false}, {115 * ms, false}, {500 * ms, true}, {time.Second, true}} {
		layers, stages := find(1, 100*ms*2/3, c.ttft), find(2, 50*ms, c.ttft)
		if stages > layers != c.stages {
			t.Errorf("within %v: %.2f prompts a second where GPUs share layers, %.2f in stages", c.ttft, layers, stages)
		}
	}
}

// random is a workload that presses on memory.
func random(rng *rand.Rand, blocks int) (list []Sequence) {
	at := cluster.Time(1)
	for i := range 30 + rng.IntN(60) {
		at += cluster.Time(rng.IntN(4)*rng.IntN(40)) * ms
		most := blocks * BlockTokens
		prompt := 1 + rng.IntN(most/2)
		list = append(list, Sequence{ID: int64(i + 1), Arrived: at, Prompt: int32(prompt),
			Output: int32(1 + rng.IntN(min(60, most-prompt)))})
	}
	return list
}

// slow is an instance that keeps no more than what is known of each request, and looks at all of it at each instant.
type slow struct {
	engine  Engine
	takes   Timer
	now     cluster.Time
	waiting []*slowRequest
	running []*slowRequest
	batches []*slowBatch // that are computed, in the order in which they began
	free0   cluster.Time
	began   int64
	stages  []cluster.Time
}

type slowRequest struct {
	Sequence
	tokens, cached, held int
	in                   *slowBatch
	adds                 int
	first, last          cluster.Time
}

type slowBatch struct{ end cluster.Time }

func (x *slow) left() int {
	n := x.engine.Blocks
	for _, r := range x.running {
		n -= r.held
	}
	return n
}

func (x *slow) start() {
	if len(x.batches) == len(x.stages) || x.stages[0] > x.now {
		return
	}
	b, s, budget, short := &slowBatch{}, &Step{}, x.engine.Tokens, false
	most := int(math.Ceil(float64(len(x.running)) / float64(len(x.stages))))
	add := func(r *slowRequest, c int) {
		r.in, r.adds, r.held = b, c, int(math.Ceil(float64(r.cached+c)/BlockTokens))
		s.Add(int64(c), int64(r.cached))
		budget -= c
	}
	for _, r := range slices.Clone(x.running) {
		c := min(int(r.Prompt)+r.tokens-r.cached, budget)
		if !slices.Contains(x.running, r) || r.in != nil || c == 0 || most == 0 {
			continue
		}
		for need := int(math.Ceil(float64(r.cached+c)/BlockTokens)) - r.held; need > x.left(); {
			short = true
			at := slices.Index(x.running, r)
			k := len(x.running) - 1
			for ; k > at && x.running[k].in != nil; k-- {
			}
			if k == at && at < len(x.running)-1 {
				c = 0 // later ones are computed
				break
			}
			v := x.running[k]
			v.held, v.cached = 0, 0
			x.running = slices.Delete(x.running, k, k+1)
			x.waiting = slices.Insert(x.waiting, 0, v)
			if v == r {
				c = 0
				break
			}
		}
		if c == 0 {
			break
		}
		add(r, c)
		most--
	}
	for !short && len(x.waiting) > 0 && budget > 0 && len(x.running) < x.engine.Sequences {
		r := x.waiting[0]
		c := min(int(r.Prompt)+r.tokens, budget)
		need := int(math.Ceil(float64(c) / BlockTokens))
		if len(x.running) > 0 {
			need += x.engine.Watermark
		}
		if need > x.left() {
			break
		}
		x.waiting, x.running = x.waiting[1:], append(x.running, r)
		add(r, c)
	}
	if s.Tokens == 0 {
		return
	}
	took := x.takes(s)
	b.end = x.now
	for i := range x.stages {
		b.end = max(b.end, x.stages[i]).Add(took)
		x.stages[i] = b.end
	}
	x.batches = append(x.batches, b)
	x.began++
}

func (x *slow) finish() {
	for len(x.batches) > 0 && x.batches[0].end == x.now {
		b := x.batches[0]
		x.batches = x.batches[1:]
		for _, r := range slices.Clone(x.running) {
			if r.in != b {
				continue
			}
			r.in, r.cached = nil, r.cached+r.adds
			if r.cached < int(r.Prompt)+r.tokens {
				continue
			}
			r.tokens, r.last = r.tokens+1, x.now
			if r.first == 0 {
				r.first = x.now
			}
			if r.tokens == int(r.Output) {
				i := slices.Index(x.running, r)
				x.running = slices.Delete(x.running, i, i+1)
			}
		}
		if len(x.batches) > 0 && x.batches[0].end == x.now { // one step begins for each that ends
			x.start()
		}
	}
}

func (x *slow) play(list []Sequence) (done []*slowRequest) {
	next := 0
	for {
		at := cluster.Never
		if next < len(list) {
			at = list[next].Arrived
		}
		if len(x.batches) > 0 {
			at = min(at, x.batches[0].end)
		}
		if len(x.batches) < len(x.stages) && x.stages[0] > x.now {
			at = min(at, x.stages[0])
		}
		if at == cluster.Never {
			return done
		}
		x.now = at
		x.finish()
		for ; next < len(list) && list[next].Arrived == at; next++ {
			r := &slowRequest{Sequence: list[next]}
			done, x.waiting = append(done, r), append(x.waiting, r)
		}
		x.start()
	}
}

// TestPipelineTwin compares instances of one to five stages with slow ones, request by request, on workloads for which
// memory is too small; all requests get all of their tokens, no block is lost, none is taken from what is computed.
func TestPipelineTwin(t *testing.T) {
	preempted := map[int]int64{}
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 1))
		stages := 1 + int(seed%5)
		e := Engine{Tokens: []int{32, 128, 2048}[rng.IntN(3)], Sequences: 2 + rng.IntN(24), Blocks: 12 + rng.IntN(40),
			Watermark: rng.IntN(3), Stages: stages}
		takes := func(s *Step) time.Duration {
			return (3*time.Millisecond + time.Duration(s.Tokens+s.Read/8)*time.Millisecond/16) / time.Duration(stages)
		}
		list := random(rng, e.Blocks)
		twin := &slow{engine: e, takes: takes, stages: make([]cluster.Time, stages)}
		want := twin.play(list)
		x, r := play(t, e, takes, list)
		if r.tokens != total(list) || x.free != int32(e.Blocks) || x.Steps != twin.began {
			t.Fatalf("seed %d: %d tokens of %d, %d blocks of %d, %d steps of %d", seed, r.tokens, total(list), x.free,
				e.Blocks, x.Steps, twin.began)
		}
		for _, q := range want {
			if r.first[q.ID] != q.first || r.last[q.ID] != q.last {
				t.Fatalf("seed %d, %d stages: request %d has its first token at %v and its last at %v, not %v and %v", seed,
					stages, q.ID, r.first[q.ID], r.last[q.ID], q.first, q.last)
			}
		}
		preempted[stages] += x.Preemptions
	}
	for stages := 1; stages <= 5; stages++ {
		if preempted[stages] < 10 {
			t.Errorf("with %d stages there were %d preemptions: nothing is tried", stages, preempted[stages])
		}
	}
}

func total(list []Sequence) (tokens int64) {
	for i := range list {
		tokens += int64(list[i].Output)
	}
	return tokens
}

// Whole prompts and phases pass stages, too: every request gets its tokens, whatever the memory.
func TestPipelineKeepsAll(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		e := Engine{Tokens: 256, Sequences: 1 + rng.IntN(16), Blocks: 12 + rng.IntN(30), Stages: 1 + rng.IntN(4),
			Whole: true}
		list := random(rng, e.Blocks)
		if _, r := play(t, e, linear, list); r.tokens != total(list) {
			t.Fatalf("seed %d: %d tokens of %d", seed, r.tokens, total(list))
		}
	}
}

// Requests that are answered at once are spread over as many batches as there are stages, so that none is idle: a token
// takes as TokenTime says.
func TestPipelineIsFull(t *testing.T) {
	for _, c := range []struct{ stages, n int }{{1, 8}, {2, 8}, {4, 8}, {4, 6}, {2, 1}} {
		takes := Roofline(&llama70B, &h100fp8, Layout{2, c.stages})
		var list []Sequence
		for i := range c.n {
			list = append(list, Sequence{ID: int64(i + 1), Arrived: 1, Prompt: 1024, Output: 2000})
		}
		_, r := play(t, Engine{Tokens: 2048, Sequences: 64, Blocks: 10_000, Stages: c.stages}, takes, list)
		var tpot []float64
		for i := range list {
			tpot = append(tpot, r.tpot(&list[i]))
		}
		want := TokenTime(takes, c.stages, c.n, 1024, 2000) - float64(c.n)/2000*PromptTime(takes, 1, 1024)
		if got := mean(tpot) / 1e3; math.Abs(got/want-1) > 0.02 {
			t.Errorf("%d requests in %d stages: a token takes %.3f ms, want %.3f", c.n, c.stages, 1e3*got, 1e3*want)
		}
	}
}

// Stages are counted from one, or not stated.
func TestPipelineCheck(t *testing.T) {
	for stages, ok := range map[int]bool{-1: false, 0: true, 1: true, MaxStages: true, MaxStages + 1: false} {
		e := Engine{Tokens: 1, Sequences: 1, Blocks: 1, Stages: stages}
		if err := e.Check(); (err == nil) != ok {
			t.Errorf("%d stages: %v", stages, err)
		}
	}
}

func ExampleLay() {
	fmt.Println(Lay(8, 2), Lay(4, 0))
	// Output: {4 2} {4 1}
}
