package results

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestGavel holds a cell of two rows to the published figures: FIFO-het. to the
// printed digit, Gavel LAS within the tolerance. `make results` replays them all.
func TestGavel(t *testing.T) {
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/gavel/simulation_throughputs.json.gz")))
	var rows []gavelRow
	for _, i := range []int{1, 2} {
		r := gavelRows[i]
		r.rates = []string{"4.00"}
		rows = append(rows, r)
	}
	tab, err := gavelTable(context.Background(), dir, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range tab.Failed() {
		t.Errorf("%s, %s: published %g, ours %g (%+.2f %%)", r.Case, r.Figure, r.Published, r.Ours, 100*r.Off())
	}
	if got := fmt.Sprintf("%.2f", tab.Rows[0].Ours); len(tab.Rows) != 2 || got != "17.08" {
		t.Errorf("%d rows, FIFO-het. %s h; want 2 and 17.08", len(tab.Rows), got)
	}
}

// Where the cluster is idle at times, that simulator solves for nobody: FIFO with and
// without heterogeneity at 0.2 jobs/h are equal to the printed digit only with that.
func TestGavelIdle(t *testing.T) {
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/gavel/simulation_throughputs.json.gz")))
	var rows []gavelRow
	for _, r := range gavelRows {
		if r.x.Several && strings.HasPrefix(r.name, "FIFO") {
			r.rates = []string{"0.20"}
			rows = append(rows, r)
		}
	}
	tab, err := gavelTable(context.Background(), dir, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"18.56", "16.91"} {
		if got := fmt.Sprintf("%.2f", tab.Rows[i].Ours); got != want || len(tab.Rows) != 2 {
			t.Errorf("%s: %s h of %d rows; want %s of 2", tab.Rows[i].Case, got, len(tab.Rows), want)
		}
	}
}
