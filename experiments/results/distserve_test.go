package results

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestDistServe: all published figures are equal, and the page's statements about our engine hold.
func TestDistServe(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/distserve-profiles/max_num_tokens.csv")))
	tab, err := DistServe(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 120*8+202+12+4*2+34*3 {
		t.Errorf("%d rows, want 1284", len(tab.Rows))
	}
	for _, r := range tab.Failed() {
		t.Errorf("%s, %s: published %g, ours %g", r.Case, r.Figure, r.Published, r.Ours)
	}
	for _, r := range tab.Rows {
		if r.Reason != "" && !strings.Contains(r.Case, "(ours: ") {
			t.Errorf("%s, %s: published %g, ours %g: %s", r.Case, r.Figure, r.Published, r.Ours, r.Reason)
		}
	}
	var own *Section
	for i := range tab.Sections {
		s := &tab.Sections[i]
		for _, cells := range s.Cells {
			if len(cells) != len(s.Head) {
				t.Errorf("%s: %d cells under %d headings", s.Title, len(cells), len(s.Head))
			}
		}
		if strings.HasPrefix(s.Title, "One instance") {
			own = s
		}
	}
	if own == nil || len(own.Cells) != 34 {
		t.Fatalf("34 runs on an instance of ours were expected: %+v", own)
	}
	for _, cells := range own.Cells {
		n := make([]float64, len(cells))
		for i := 3; i < len(cells); i++ {
			if n[i], err = strconv.ParseFloat(cells[i], 64); err != nil {
				t.Fatal(err)
			}
		}
		if n[5] < n[4] || n[6] < n[4] || n[9] > n[6] || n[10] < n[7] || n[11] > n[8] {
			t.Errorf("not as the page says: %v", cells)
		}
	}
}
