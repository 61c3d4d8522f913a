package results

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestFGD holds the replay to the published table: equal in every cell, Random
// within the spread of the seeds.
func TestFGD(t *testing.T) {
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/openb-v2023/expected_gpu_alloc_pct_mean_of_10_seeds.csv")))
	tab, err := FGD(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 6*6+5 {
		t.Errorf("%d rows, want 41", len(tab.Rows))
	}
	for _, r := range tab.Rows {
		off := math.Abs(r.Ours - r.Published)
		if strings.Contains(r.Case, "Random") {
			if off > 0.6 { // both are means of ten runs that differ by 0.15 to 0.36
				t.Errorf("%s, %s: %v, ours %v", r.Case, r.Figure, r.Published, r.Ours)
			}
			continue
		}
		if off > 1e-9 {
			t.Errorf("%s, %s: %v, ours %v", r.Case, r.Figure, r.Published, r.Ours)
		}
	}
}

// BenchmarkFGD plays the whole table: 6 policies on 6 lists with 10 seeds.
func BenchmarkFGD(b *testing.B) {
	dir := filepath.Dir(filepath.Dir(shared.Path(b, "traces/openb-v2023/expected_gpu_alloc_pct_mean_of_10_seeds.csv")))
	for range b.N {
		if _, err := FGD(context.Background(), dir); err != nil {
			b.Fatal(err)
		}
	}
}
