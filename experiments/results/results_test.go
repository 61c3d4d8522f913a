package results

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestTiresias compares the 60-job replay with the upstream simulator's figures: within 2 %, and
// exactly where the rules are the same.
func TestTiresias(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/tiresias/60_job.csv")))
	tab, err := Tiresias(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 28 {
		t.Errorf("%d rows, want 28", len(tab.Rows))
	}
	for _, r := range tab.Failed() {
		t.Errorf("%s, %s: published %g, ours %g (%+.2f %%)", r.Case, r.Figure, r.Published, r.Ours, 100*r.Off())
	}
	exact := map[string]float64{
		"2x8, fifo (ours: fifo)":                                          200.817,
		"2x8, dlas-gpu (ours: las:thresholds=3250/7200/18000)":            190.683,
		"2x8, dlas (ours: las:thresholds=3250/7200/18000,dimension=time)": 190.683,
		"2x8, shortest (ours: srtf)":                                      192.117,
		"4x8, fifo (ours: fifo)":                                          178.417,
	}
	for _, r := range tab.Rows {
		want, ok := exact[r.Case]
		if ok && r.Figure == "mean JCT" {
			if d := r.Ours - want; d > 0.001 || d < -0.001 {
				t.Errorf("%s: mean JCT %.3f, want %.3f", r.Case, r.Ours, want)
			}
			delete(exact, r.Case)
		}
	}
	for name := range exact {
		t.Errorf("no row for %s", name)
	}
}
