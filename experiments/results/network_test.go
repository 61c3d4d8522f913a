package results

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestNetwork: the figures of Sincronia's simulator are ours to the digit, and the page is the one in the repository.
func TestNetwork(t *testing.T) {
	traces := filepath.Dir(filepath.Dir(shared.Path(t, "traces/coflow/coflow500.txt")))
	tab, err := Network(context.Background(), traces)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range tab.Failed() {
		t.Errorf("%s, %s: published %g, ours %g", r.Case, r.Figure, r.Published, r.Ours)
	}
	var b strings.Builder
	if err := tab.Write(&b); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/results/network.md")
	if err != nil || string(page) != b.String() {
		t.Errorf("docs/results/network.md is not what make results writes (%v)", err)
	}
}
