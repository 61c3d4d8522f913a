package llm

import (
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// firsts adds up the times to first tokens.
type firsts struct {
	sum time.Duration
	n   int
}

func (f *firsts) Token(*Sequence, cluster.Time)   {}
func (f *firsts) Tokens(n int, gap time.Duration) {}
func (f *firsts) Done(s *Sequence)                { f.sum, f.n = f.sum+s.First.Sub(s.Arrived), f.n+1 }

// Prompts that all take 0.1 s, or two thirds of it on two GPUs, and come at random wait as in an M/D/1 queue
// (DistServe, section 3.1); above what an instance computes, for ever longer.
func TestPrefillQueue(t *testing.T) {
	w := Exponential(200_000, 1, 1)
	for i := range w.Prompt {
		w.Prompt[i], w.Output[i] = 64, 2
	}
	for _, c := range []struct{ rate, faster, want float64 }{{5, 1, 0.15}, {9, 1, 0.55}, {5, 1.5, 0.08333},
		{9, 1.5, 0.11667}, {12, 1.5, 0.2}, {12, 1, math.Inf(1)}} {
		see := &firsts{}
		x := NewInstance(Engine{Tokens: 64, Sequences: 1, Blocks: 1000},
			func(*Step) time.Duration { return time.Duration(1e8 / c.faster) }, see)
		if asked := playPhase(x, Prefill, w, c.rate); asked != see.n || see.n != 200_000 {
			t.Fatalf("%d of %d prompts were computed", see.n, asked)
		}
		mean := see.sum.Seconds() / float64(see.n)
		if math.IsInf(c.want, 1) && mean < 1000 || !math.IsInf(c.want, 1) && math.Abs(mean/c.want-1) > 0.03 {
			t.Errorf("at %g/s and %g times as fast the first token takes %.4f s, not %g", c.rate, c.faster, mean,
				c.want)
		}
	}
}

// A tail takes the blocks of its prompt, computes a token in each step, and computes its prompt only if it was
// taken off.
func TestTail(t *testing.T) {
	var steps []Step
	takes := func(s *Step) time.Duration { steps = append(steps, *s); return time.Millisecond }
	see := &firsts{}
	x := NewInstance(Engine{Tokens: 2048, Sequences: 8, Blocks: 9}, takes, see)
	add := func(prompt, output int32) {
		head := Head(Sequence{Arrived: 1, First: 1, Last: 1, Prompt: prompt, Output: output})
		if head.Output != 1 {
			t.Fatalf("a head has %d tokens", head.Output)
		}
		rest, more := head.Tail()
		if !more {
			t.Fatal("nothing is left")
		}
		x.Add(rest)
	}
	add(64, 4)  // blocks: 5
	add(60, 10) // 4, and a fifth at the fifth token
	for now := cluster.Time(1); ; now = x.End() {
		if x.End() != cluster.Never {
			x.Finish()
		}
		if x.Begin(now); x.End() == cluster.Never {
			break
		}
	}
	if see.n != 2 || x.Preemptions != 0 || x.MostBlocks != 9 {
		t.Errorf("%d done, %d preemptions, %d blocks", see.n, x.Preemptions, x.MostBlocks)
	}
	if steps[0] != (Step{Tokens: 2, Attention: 65 + 61, Read: 65 + 61}) {
		t.Errorf("the first step is %+v: prompts are not computed again", steps[0])
	}
	if len(steps) != 9 {
		t.Errorf("%d steps", len(steps))
	}
	one := Head(Sequence{Prompt: 5, Output: 1})
	if _, more := one.Tail(); more {
		t.Error("something is left of a request with one token")
	}
}

// The goodput of a phase rises with its bound and with the GPUs, and is nothing where a single request is too slow.
func TestGoodput(t *testing.T) {
	m := &Model{Params: 12.85e9, Weights: 25.7e9, Layers: 40, Heads: 40, HeadDim: 128}
	g, _ := FindGPU("A100-80GB", BF16)
	w := Exponential(300, 400, 200)
	find := func(phase Phase, gpus int, ttft, tpot time.Duration) float64 {
		e := Engine{Tokens: 2048, Sequences: 256, Blocks: m.Blocks(Lay(gpus, 1), &g, 0.9, 0)}
		return Goodput(e, Roofline(m, &g, Lay(gpus, 1)), phase, w, ttft, tpot, 0.9)
	}
	const ms = time.Millisecond
	for _, phase := range []Phase{Prefill, Decode} {
		tight, loose, more := find(phase, 1, 250*ms, 30*ms), find(phase, 1, 500*ms, 60*ms),
			find(phase, 2, 250*ms, 30*ms)
		if !(0 < tight && tight < loose && tight < more) {
			t.Errorf("%s: %.2f/s, %.2f with twice the time, %.2f on two GPUs", PhaseNames[phase], tight, loose, more)
		}
		if none := find(phase, 1, 10*ms, 5*ms); none != 0 {
			t.Errorf("%s: %.2f/s where no request is fast enough", PhaseNames[phase], none)
		}
	}
}

// The instance that does most for each of its GPUs is chosen: DistServe's algorithm on two sizes of each phase, and of
// equals on three ways to use four GPUs.
func TestBest(t *testing.T) {
	sizes, four := []Layout{{1, 1}, {2, 1}}, []Layout{{4, 1}, {1, 4}, {2, 2}}
	for _, c := range []struct {
		goodput []float64
		on      []Layout
		want    int
	}{{[]float64{2, 5}, sizes, 1}, {[]float64{3, 5.5}, sizes, 0}, {[]float64{2, 4}, sizes, 0},
		{[]float64{0, 1}, sizes, 1}, {[]float64{0, 0}, sizes, -1},
		{[]float64{5, 5, 5}, four, 1}, {[]float64{5, 4, 5}, four, 2},
		{[]float64{6, 5, 5}, four, 0}} {
		if got := Best(c.goodput, c.on); got != c.want {
			t.Errorf("%v: %d, not %d", c.goodput, got, c.want)
		}
	}
}

// Whatever the bound, goodput is at most what full steps compute: 512 tokens of prompts in 10 ms, or a token of each of
// the eight requests that are there at once, half of them in each of two stages.
func TestGoodputIsSustained(t *testing.T) {
	w := Exponential(100, 1, 1)
	for i := range w.Prompt {
		w.Prompt[i], w.Output[i] = 128, 11
	}
	for _, c := range []struct {
		phase  Phase
		stages int
		want   float64
	}{{Prefill, 1, 400}, {Prefill, 2, 400}, {Decode, 1, 80}, {Decode, 2, 40}} {
		e := Engine{Tokens: 512, Sequences: 8, Blocks: 1000, Stages: c.stages}
		takes := func(*Step) time.Duration { return 10 * time.Millisecond }
		got := Goodput(e, takes, c.phase, w, time.Hour, time.Hour, 0.9)
		if math.Abs(got/c.want-1) > 1e-9 {
			t.Errorf("%s in %d stages: %.3f/s, want %g", PhaseNames[c.phase], c.stages, got, c.want)
		}
	}
}
