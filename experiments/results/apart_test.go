package results

import (
	"math"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/serving/llm"
)

// TestApart: of the measured rows those are played whose model and GPUs are known; a caller alone has its first token
// after its prompt's step, and the others after one step each and the way of its keys and values.
func TestApart(t *testing.T) {
	t.Parallel()
	list, err := readApart(shared.Path(t, "traces/llm-profiles/silicon-disagg.csv"))
	if err != nil {
		t.Fatal(err)
	}
	out, played := map[string]int{}, 0
	for i := range list {
		if why := list[i].lacks(); why != "" {
			out[why]++
		} else {
			played++
		}
	}
	if len(list) != 253 || played != 165 || len(out) != 2 || out["the speed of gb300 is not known here"] != 59 ||
		out["the sizes of Kimi-K2.5 are not known here"] != 29 {
		t.Errorf("%d rows, %d are played: %v", len(list), played, out)
	}
	p := measuredApart{model: "DeepSeek-V3, fp8", gpu: "h200", precision: "fp8", callers: 1, prompt: 4000, output: 400,
		phase: [2]instances{{1, 8, 1, 1}, {2, 1, 1, 16}}}
	got, m := p.play(), apartModels[p.model]
	if got.n != 5 || got.preemptions > 0 {
		t.Errorf("%d answers, %d preemptions", got.n, got.preemptions)
	}
	_, prompts := m.on("H200-141GB", llm.FP8, p.phase[0], false)
	_, tokens := m.on("H200-141GB", llm.FP8, p.phase[1], true)
	least, most := llm.PromptTime(prompts, 1, 0.8*p.prompt), llm.PromptTime(prompts, 1, p.prompt)
	if got.ttft < least || got.ttft > most {
		t.Errorf("the first token takes %.4f s, a prompt from %.4f to %.4f", got.ttft, least, most)
	}
	step := tokens(&llm.Step{Tokens: 1, Attention: 3800, Read: 3800}).Seconds()
	if want := step + 0.9*p.prompt*70272/50e9/(0.9*p.output); math.Abs(got.tpot/want-1) > 0.05 {
		t.Errorf("a token takes %.5f s, want %.5f", got.tpot, want)
	}
}

// TestApartReads: a step reads the weights of the experts that its tokens hit, and GPUs without data parallelism all
// have the latent vectors.
func TestApartReads(t *testing.T) {
	t.Parallel()
	m := apartModels["DeepSeek-V3, fp8"]
	group, split := instances{1, 1, 1, 16}, instances{1, 16, 1, 1}
	_, takes := m.on("H200-141GB", llm.FP8, group, true)
	one, many := takes(&llm.Step{Tokens: 1}).Seconds(), takes(&llm.Step{Tokens: 256}).Seconds()
	if read := (many - one) * 16 * 4.8e12 * 0.8; math.Abs(read/(654e9*(1-8./256))-1) > 0.01 {
		t.Errorf("256 tokens read %.0f GB more than one", read/1e9)
	}
	apart, _ := m.on("H200-141GB", llm.FP8, group, true)
	same, _ := m.on("H200-141GB", llm.FP8, split, true)
	if apart < 15*same || apart > 17*same {
		t.Errorf("%d blocks where each GPU has its own sequences, %d where all have all", apart, same)
	}
}
