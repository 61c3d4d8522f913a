package results

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestLanguageModels: the time of a token is within the errors that are expected of the roofline on the measured
// points, and requests wait for KV memory where they were measured to. Of those that leave half of it free, a quarter
// is played, and all under MUSTER_SOAK.
func TestLanguageModels(t *testing.T) {
	t.Parallel()
	traces := filepath.Dir(filepath.Dir(shared.Path(t, "traces/llm-profiles/silicon-agg.csv")))
	tab, err := languageModels(t.Context(), traces, shared.Soak(4, 1))
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 4+1+6 {
		t.Errorf("%d figures are compared", len(tab.Rows))
	}
	for _, r := range tab.Failed() {
		t.Errorf("%s: %s: %g, want %g", r.Case, r.Figure, r.Ours, r.Published)
	}
	for i, want := range []string{"282", "177"} {
		if got := tab.Sections[0].Cells[i][1]; got != want {
			t.Errorf("%s: %s points, want %s", tab.Sections[0].Cells[i][0], got, want)
		}
	}
}

// TestMemoryCliff: 32 callers have their first token at once on two H100, and 64 wait half a minute for memory, as
// measured: 0.29 s and 30.8 s.
func TestMemoryCliff(t *testing.T) {
	t.Parallel()
	models, err := readMeasuredLoops(shared.Path(t, "traces/llm-profiles/silicon-agg.csv"))
	if err != nil {
		t.Fatal(err)
	}
	m := &models[slices.IndexFunc(models, func(m measuredModel) bool { return m.name == llama70B })]
	if len(m.points) != 309 {
		t.Errorf("%d points, want 309", len(m.points))
	}
	found := 0
	for i := range m.points {
		p := &m.points[i]
		if p.gpu != "H100-80GB" || p.gpus != 2 || p.prompt != 1024 || p.output != 8192 || p.callers < 32 {
			continue
		}
		found++
		// The time until prompts of all callers are computed bounds the first; half of what was measured, the second.
		got := m.play(p)
		if p.callers == 32 && (p.ttft > 0.3 || got.ttft > 0.6 || got.preemptions > 0) ||
			p.callers == 64 && (p.ttft < 30 || math.Abs(got.ttft/p.ttft-1) > 0.5 || got.preemptions == 0) {
			t.Errorf("%d callers: the first token takes %.2f s, %.2f s as measured; %d preemptions", p.callers, got.ttft,
				p.ttft, got.preemptions)
		}
		if got.n != loopRounds*p.callers {
			t.Errorf("%d callers: %d answers", p.callers, got.n)
		}
	}
	if found != 2 {
		t.Errorf("%d points", found)
	}
}
