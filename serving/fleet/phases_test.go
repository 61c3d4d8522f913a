package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

// phased is chat with a variant for prompts, whose keys and values leave at 50 GB/s, and one for the other tokens.
func phased() service.Service {
	s := chat()
	s.Variants = append(s.Variants, s.Variants[0])
	for i, p := range []llm.Phase{llm.Prefill, llm.Decode} {
		l := *s.Variants[i].Language
		l.Phase, l.Link = p, 50e9
		s.Variants[i].Language = &l
	}
	return s
}

// A request alone takes its prompt's step, the way of its keys and values, and a step for each token after the first.
func TestPhases(t *testing.T) {
	s := []service.Service{phased()}
	a := &requests.Arrivals{Rate: 1, For: 1500 * ms, Prompt: requests.Tokens{Median: 2000},
		Output: requests.Tokens{Median: 5}}
	f, err := New(s, requests.Draw(a, 0))
	if err != nil {
		t.Fatal(err)
	}
	prompt, output := f.next.Prompt, f.next.Output
	g, _ := llm.FindGPU("H100-80GB", llm.BF16)
	m := &s[0].Variants[0].Language.Model
	takes := llm.Roofline(m, &g, llm.Lay(1, 1))
	step := llm.Step{}
	step.Add(int64(prompt), 0)
	first := takes(&step)
	want := first + time.Duration(float64(prompt)*m.KV()/50e9*1e9)
	for k := range int64(output) - 1 {
		step = llm.Step{}
		step.Add(1, int64(prompt)+k)
		want += takes(&step)
	}
	if _, err := f.Add(0, 0, alone); err != nil {
		t.Fatal(err)
	}
	if err := f.Advance(f.next.At.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if f.Waiting(0) != 1 || f.Total(0).TTFT.Total() != 1 || f.Total(0).Answered != 0 {
		t.Fatalf("%d wait for a replica that makes the other tokens", f.Waiting(0))
	}
	if f, err = New(s, requests.Draw(a, 0)); err != nil {
		t.Fatal(err)
	}
	for v := range 2 {
		if _, err := f.Add(0, v, alone); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Advance(cluster.Never - 1); err != nil {
		t.Fatal(err)
	}
	c := f.Total(0)
	if c.Answered != 1 || c.Tokens != int64(output) {
		t.Fatalf("%d answered, %d tokens of %d", c.Answered, c.Tokens, output)
	}
	within := func(got, want time.Duration) bool { return got >= want && got <= want*65/64 }
	if got := c.TTFT.Quantile(1); !within(got, first) {
		t.Errorf("the first token after %v, not %v", got, first)
	}
	if got := c.Latency.Quantile(1); !within(got, want) {
		t.Errorf("the answer after %v, not %v", got, want)
	}
}

// The keys and values of 2,048 tokens of a model of 70 billion parameters, 671,088,640 bytes, take 13.42 ms over 50
// GB/s before the second token can be made, and none of the first.
func TestMoved(t *testing.T) {
	s := []service.Service{phased()}
	for i := range s[0].Variants {
		v := &s[0].Variants[i]
		v.Request.GPUs = 2
		v.Language.Precision = llm.FP8
		v.Language.Model = llm.Model{Params: 70.6e9, Weights: 70.6e9, Layers: 80, Heads: 64, KVHeads: 8, HeadDim: 128}
	}
	f, err := New(s, requests.Draw(&requests.Arrivals{Rate: 1, For: 1500 * ms, Prompt: requests.Tokens{Median: 2048},
		Output: requests.Tokens{Median: 2}}, 0))
	if err != nil {
		t.Fatal(err)
	}
	for v := range 2 {
		if _, err := f.Add(0, v, alone); err != nil {
			t.Fatal(err)
		}
	}
	for len(f.services[0].moving) == 0 && f.Next() != cluster.Never {
		if err := f.Advance(f.Next()); err != nil {
			t.Fatal(err)
		}
	}
	first := f.now
	if len(f.services[0].moving) != 1 || f.Total(0).TTFT.Total() != 1 {
		t.Fatalf("%d requests move, %d have their first token", len(f.services[0].moving), f.Total(0).TTFT.Total())
	}
	if err := f.Advance(f.Next()); err != nil {
		t.Fatal(err)
	}
	if took := f.now.Sub(first); took.Round(10*time.Microsecond) != 13420*time.Microsecond {
		t.Errorf("moving takes %v, want 13.42 ms", took)
	}
	if f.Total(0).Answered != 0 {
		t.Error("the second token was there before the keys and values")
	}
}

// Whatever happens to replicas of both phases, each request is answered, refused, lost or still there.
func TestPhasesConserve(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		f, err := New([]service.Service{inStages(phased(), 1+int(seed%3))},
			requests.Draw(&requests.Arrivals{Rate: 60, CV: 1, For: 4 * time.Second,
				Seed: seed, Prompt: requests.Tokens{Median: 400, Sigma: 1},
				Output: requests.Tokens{Median: 40, Sigma: 1}},
				0))
		if err != nil {
			t.Fatal(err)
		}
		var live []int
		for k := range 40 {
			if err := f.Advance(cluster.Time(k) * cluster.Time(100*ms)); err != nil {
				t.Fatal(err)
			}
			switch n := r.IntN(10); {
			case n < 6:
				id, err := f.Add(0, r.IntN(2), alone)
				if err != nil {
					t.Fatal(err)
				}
				live = append(live, id)
			case len(live) > 0 && n < 8:
				f.Drain(live[r.IntN(len(live))])
			case len(live) > 0:
				f.Remove(live[r.IntN(len(live))])
			}
		}
		if err := f.Advance(cluster.Never - 1); err != nil {
			t.Fatal(err)
		}
		c := f.Total(0)
		if sum := c.Answered + c.Refused + c.Failed + int64(f.Waiting(0)); sum != c.Arrived || c.Answered == 0 {
			t.Fatalf("seed %d: %d of %d requests are accounted for: %+v, %d wait", seed, sum, c.Arrived, c,
				f.Waiting(0))
		}
	}
}

// The keys and values of a prompt take memory of the replica that computed it until those that make the other tokens
// have room for them; what such a replica held is lost with it.
func TestHeld(t *testing.T) {
	s := []service.Service{phased()}
	s[0].Goal.TTFT, s[0].Goal.TPOT = time.Hour, time.Hour
	for i, blocks := range []int{400, 130} { // 130 hold one of these requests, 400 the prompts of three
		s[0].Variants[i].Language.Engine.Blocks = blocks
	}
	a := &requests.Arrivals{Rate: 1000, For: 9500 * time.Microsecond, Prompt: requests.Tokens{Median: 2000},
		Output: requests.Tokens{Median: 40}}
	f, err := New(s, requests.Draw(a, 0))
	if err != nil {
		t.Fatal(err)
	}
	for v := range 2 {
		if _, err := f.Add(0, v, alone); err != nil {
			t.Fatal(err)
		}
	}
	prompts := f.replicas[0].language
	for f.Total(0).TTFT.Total() < 5 && f.Next() != cluster.Never {
		if err := f.Advance(f.Next()); err != nil {
			t.Fatal(err)
		}
		if used := prompts.instance.Used(); used < float64(prompts.holds)*125/400 || f.Idle(0) && prompts.holds > 0 {
			t.Fatalf("%d held, %.3f of the memory used", prompts.holds, used)
		}
	}
	if f.Total(0).Answered != 1 || prompts.holds != 3 {
		t.Errorf("a fifth prompt was computed when %d requests were answered and %d held", f.Total(0).Answered, prompts.holds)
	}
	f.Drain(0)
	if f.Idle(0) || f.IdleAt(0) <= f.now {
		t.Errorf("it holds what others fetch, and is idle at %v", f.IdleAt(0))
	}
	f.Remove(0)
	if err := f.Advance(f.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := f.Total(0); got.Answered != 2 || got.Answered+got.Failed != got.Arrived || f.Waiting(0) != 0 {
		t.Errorf("%d of %d answered, %d failed, %d wait", got.Answered, got.Arrived, got.Failed, f.Waiting(0))
	}
}
