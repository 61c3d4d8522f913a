package results

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestElasticFlow compares the replays with the shares of the released simulator; the longest, which takes as long as
// all others, under MUSTER_SOAK.
func TestElasticFlow(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/elasticflow-itp/expected_fig8b_deadline_satisfaction.csv")))
	var rows []slotRow
	want := 0
	for _, r := range slotRows {
		few := r
		few.cells = nil
		for _, c := range r.cells {
			whole := c.to == 0 && c.rerun > 0 && r.reason == "" // these have the printed figure, too
			if c.cluster == "cluster01" && shared.Soak(true, false) {
				continue
			}
			if r.ours != "elasticflow" && (c.cluster == "cluster10" || c.to > 0 && c.to < 450) {
				few.cells, want = append(few.cells, c), want+1+count(whole)
			}
		}
		rows = append(rows, few)
	}
	tab, err := elasticFlowOn(context.Background(), dir, rows)
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != want {
		t.Errorf("%d rows, want %d", len(tab.Rows), want)
	}
	for _, r := range tab.Rows {
		if r.Reason == "" && math.Abs(r.Ours-r.Published) > 1e-6 {
			t.Errorf("%s: published %g, ours %g", r.Case, r.Published, r.Ours)
		}
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
