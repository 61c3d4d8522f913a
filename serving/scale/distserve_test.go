package scale

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

// phased is a language model with variants on one GPU and on two for each phase.
func phased() *service.Service {
	s := &service.Service{Name: "chat", Goal: service.Goal{TTFT: 250 * ms, TPOT: 50 * ms, Percentile: 90},
		Replicas: service.Replicas{Max: 16}}
	for _, phase := range []llm.Phase{llm.Prefill, llm.Decode} {
		for gpus := 1; gpus <= 2; gpus++ {
			s.Variants = append(s.Variants,
				service.Variant{Request: cluster.Request{GPUs: gpus}, Startup: 30 * time.Second,
					GPUTypes: []string{"A100-80GB"}, Language: &service.Language{Phase: phase, Link: 50e9, Part: 0.9,
						Model:     llm.Model{Params: 12.85e9, Weights: 25.7e9, Layers: 40, Heads: 40, HeadDim: 128},
						Precision: llm.BF16,
						Engine:    llm.Engine{Tokens: 2048, Sequences: 256}}})
		}
	}
	return s
}

func newPolicy(t *testing.T) *distserve {
	t.Helper()
	p, err := New("distserve:over=0")
	if err != nil {
		t.Fatal(err)
	}
	return p.(*distserve)
}

// The published algorithm's choice: prefill does 2 requests a second on one GPU and 5 on two, decode 3 and 5.5; for 12
// requests a second that is three replicas on two GPUs and four on one.
func TestDistServe(t *testing.T) {
	d, s := newPolicy(t), phased()
	v := seen(s, 0, 12, 32)
	v.Ready, v.Coming, v.Prompt, v.Output = make([]int, 4), make([]int, 4), 500, 200
	d.goodput, d.lengths, d.last = []float64{2, 5, 3, 5.5}, tokens{500, 200}, tokens{500, 200}
	if want := d.Decide(v); !slices.Equal(want, []int{0, 3, 4, 0}) {
		t.Errorf("replicas %v", want)
	}
	s.Replicas.Max = 4 // of seven: the same part of each
	if want := d.Decide(v); !slices.Equal(want, []int{0, 1, 3, 0}) {
		t.Errorf("of four replicas %v", want)
	}
}

// Of GPUs that are too few for both phases each has those with which they do as much, and at least one replica.
func TestDistServeFits(t *testing.T) {
	for gpus, want := range map[int][]int{32: {0, 3, 4, 0}, 9: {0, 2, 4, 0}, 7: {0, 2, 3, 0}, 4: {0, 1, 2, 0},
		3: {0, 1, 1, 0}, 2: {0, 1, 1, 0}} {
		d, s := newPolicy(t), phased()
		v := seen(s, 0, 12, gpus)
		v.Ready, v.Coming, v.Prompt, v.Output = make([]int, 4), make([]int, 4), 500, 200
		d.goodput, d.lengths, d.last = []float64{2, 5, 3, 5.5}, tokens{500, 200}, tokens{500, 200}
		if got := d.Decide(v); !slices.Equal(got, want) {
			t.Errorf("on %d GPUs replicas %v, want %v", gpus, got, want)
		}
	}
}

// Of the goodput that is found by play: what a rate needs of both phases, nothing without requests, one of each phase
// for the first, whose lengths are not known, and longer prompts need more for prompts.
func TestDistServePlays(t *testing.T) {
	replicas := func(prompt, output, rate float64) (prefill, decode int) {
		d, s := newPolicy(t), phased()
		v := seen(s, 0, rate, 32)
		v.Ready, v.Coming, v.Prompt, v.Output = make([]int, 4), make([]int, 4), prompt, output
		want := d.Decide(v)
		return want[0] + 2*want[1], want[2] + 2*want[3] // GPUs
	}
	if p, d := replicas(0, 0, 0); p != 0 || d != 0 {
		t.Errorf("without requests %d and %d GPUs", p, d)
	}
	if p, d := replicas(0, 0, 1); p != 1 || d != 2 { // a replica of each
		t.Errorf("for the first requests %d and %d GPUs", p, d)
	}
	p, d := replicas(400, 200, 20)
	longer, _ := replicas(600, 200, 20)
	_, more := replicas(400, 600, 20)
	if p < 2 || d < 1 || longer <= p || more <= d {
		t.Errorf("%d and %d GPUs; %d for longer prompts, %d for longer answers", p, d, longer, more)
	}
}

// Phases and the policy for them go together.
func TestPhasesNeedDistServe(t *testing.T) {
	plain := *parted(1, 1, 1, service.Use{}, 50*ms)
	for text, s := range map[string]service.Service{"muster": *phased(), "distserve": plain} {
		if _, err := Policies([]service.Service{s}, []string{text}); err == nil {
			t.Errorf("%s decides for a service that it does not understand", text)
		}
	}
	if _, err := Policies([]service.Service{*phased()}, []string{"distserve"}); err != nil {
		t.Error(err)
	}
}

// Of ways to use four GPUs for prompts, stages of a pipeline do most within a loose bound, and GPUs that share each
// layer within a tight one (section 3.1); it is said what the others do, and what they miss.
func TestDistServeStages(t *testing.T) {
	model := llm.Model{Params: 8.03e9, Weights: 16.06e9, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128}
	variant := func(name string, phase llm.Phase, gpus, stages int) service.Variant {
		return service.Variant{Name: name, Request: cluster.Request{GPUs: gpus}, GPUTypes: []string{"H100-80GB"},
			Language: &service.Language{Phase: phase, Link: 50e9, Part: 0.9, Model: model, Precision: llm.BF16,
				Engine: llm.Engine{Tokens: 512, Sequences: 256, Stages: stages}}}
	}
	for _, c := range []struct {
		ttft time.Duration
		want int
		says string
	}{{400 * ms, 1, "prefill, requests a second on each GPU: stages "},
		{50 * ms, 0, "stages none (it misses ttft on H100-80GB)"}} {
		s := &service.Service{Name: "chat", Goal: service.Goal{TTFT: c.ttft, TPOT: 30 * ms, Percentile: 90},
			Replicas: service.Replicas{Max: 16}, Variants: []service.Variant{variant("shared", llm.Prefill, 4, 0),
				variant("stages", llm.Prefill, 4, 4), variant("answers", llm.Decode, 1, 0)}}
		d, v := newPolicy(t), seen(s, 0, 100, 32)
		v.Ready, v.Coming, v.Prompt, v.Output = make([]int, 3), make([]int, 3), 700, 200
		want := d.Decide(v)
		if want[c.want] == 0 || want[1-c.want] != 0 || want[2] == 0 {
			t.Errorf("within %v replicas %v, goodput %.1f", c.ttft, want, d.goodput)
		}
		if text := Says(d); !strings.Contains(text, c.says) || !strings.Contains(text, "; decode, requests a second") {
			t.Errorf("within %v it says %q", c.ttft, text)
		}
	}
}
