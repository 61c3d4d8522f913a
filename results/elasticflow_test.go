package results

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestElasticFlow holds the replays to the shares of the released simulator.
func TestElasticFlow(t *testing.T) {
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/elasticflow-itp/expected_fig8b_deadline_satisfaction.csv")))
	tab, err := elasticFlowOn(context.Background(), dir, "cluster01", "cluster10")
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 18 {
		t.Errorf("%d rows, want 18", len(tab.Rows))
	}
	for _, r := range tab.Rows {
		if r.Reason == "" && math.Abs(r.Ours-r.Published) > 1e-6 {
			t.Errorf("%s: published %g, ours %g", r.Case, r.Published, r.Ours)
		}
	}
}
