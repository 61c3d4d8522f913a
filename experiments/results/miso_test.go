package results

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestMISO checks MISO's claim: dividing each GPU by its mix of jobs beats whole GPUs by at least
// as much as published, and beats the best static geometry; with few orders of arrival, and all under
// MUSTER_SOAK.
func TestMISO(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/miso-mig/trace_100.json")))
	tab, err := misoOn(context.Background(), dir, shared.Soak(3, misoSeeds))
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(tab.Rows))
	}
	if whole := tab.Rows[0].Ours; whole > 0.51 || whole < 0.3 {
		t.Errorf("the mean JCT is %.3f of that on whole GPUs; published is 0.51", whole)
	}
	if static := tab.Rows[1].Ours; static > 0.95 || static < 0.7 {
		t.Errorf("the mean JCT is %.3f of that with the best static geometry; published is 0.84", static)
	}
}
