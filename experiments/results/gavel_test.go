package results

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestGavel compares a cell of two rows with the published figures: FIFO-het. to the printed digit, Gavel LAS within
// the tolerance, and under MUSTER_SOAK within a unit of the printed digit with the method of the solver used there; of
// LAS, whose programs take long, one of few jobs. `make results` replays all rows.
func TestGavel(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/gavel/simulation_throughputs.json.gz")))
	var rows []gavelRow
	for _, i := range shared.Soak([]int{1, 3}, []int{1, 3, 5}) {
		r := gavelRows[i]
		if r.rates = []string{"4.00"}; i > 1 {
			r.rates = shared.Soak([]string{"1.60"}, r.rates)
		}
		rows = append(rows, r)
	}
	tab, err := gavelTable(context.Background(), dir, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range tab.Failed() {
		t.Errorf("%s, %s: published %g, ours %g (%+.2f %%)", r.Case, r.Figure, r.Published, r.Ours, 100*r.Off())
	}
	if got := fmt.Sprintf("%.2f", tab.Rows[0].Ours); len(tab.Rows) != len(rows) || got != "17.08" {
		t.Errorf("%d rows, FIFO-het. %s h; want %d and 17.08", len(tab.Rows), got, len(rows))
	}
	if last := len(rows) - 1; rows[last].x.Own == "max-min" {
		if r := tab.Rows[last]; math.Abs(r.Ours-r.Published) > 0.0101 {
			t.Errorf("%s: %.3f h; want %g", r.Case, r.Ours, r.Published)
		}
	}
}

// When the cluster is idle, that simulator solves without jobs: FIFO with and without heterogeneity
// at 0.2 jobs/h match the printed digit only with that, and with space sharing, under MUSTER_SOAK, too.
func TestGavelIdle(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/gavel/simulation_throughputs.json.gz")))
	var rows []gavelRow
	for _, r := range gavelRows {
		if packed := r.x.Own == "fifo-packed"; packed && shared.Soak(true, false) {
			continue
		}
		if r.x.Several && strings.HasPrefix(r.name, "FIFO") {
			r.rates = []string{"0.20"}
			rows = append(rows, r)
		}
	}
	tab, err := gavelTable(context.Background(), dir, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	hours := []string{"18.56", "16.91", "16.91"}[:shared.Soak(2, 3)]
	for i, want := range hours {
		if got := fmt.Sprintf("%.2f", tab.Rows[i].Ours); got != want || len(tab.Rows) != len(hours) {
			t.Errorf("%s: %s h of %d rows; want %s of %d", tab.Rows[i].Case, got, len(tab.Rows), want, len(hours))
		}
	}
}

// Makespans are means of three seeds, in rounds of 1,920 s: equal to the last printed digit.
func TestGavelSpans(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/gavel/simulation_throughputs.json.gz")))
	spans := slices.Clone(gavelSpans[:2])
	spans[0].jobs, spans[1].jobs = []int{200}, []int{100}
	tab, err := gavelTable(context.Background(), dir, nil, spans)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range tab.Rows {
		if got, want := fmt.Sprintf("%.6f", r.Ours), fmt.Sprintf("%.6f", r.Published); got != want ||
			len(tab.Rows) != 2 {
			t.Errorf("%s, %s: %s h of %d rows; want %s of 2", r.Case, r.Figure, got, len(tab.Rows), want)
		}
	}
	bad := filepath.Join(t.TempDir(), "makespan.txt")
	if err := os.WriteFile(bad, []byte("policy  num_total_jobs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readGavelSpans(bad); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("a file without makespans: %v", err)
	}
}

// FIFO with space sharing and, under MUSTER_SOAK, AlloX' ratio of finish-time fairness, of the same run as its mean,
// match the printed digits.
func TestGavelFair(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(filepath.Dir(shared.Path(t, "traces/gavel/simulation_throughputs.json.gz")))
	var rows []gavelRow
	for _, r := range gavelRows {
		if r.x.Own == "allox" && shared.Soak(false, true) {
			r.rates = []string{"2.80"}
			rows = append(rows, r)
		} else if r.x.Own == "fifo-packed" && r.x.Several {
			r.rates = []string{"1.60"}
			rows = append(rows, r)
		}
	}
	tab, err := gavelTable(context.Background(), dir, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	figures := shared.Soak([]string{"19.95"}, []string{"16.37", "0.78", "19.95"})
	if len(tab.Rows) != len(figures) {
		t.Fatalf("%d rows, want %d", len(tab.Rows), len(figures))
	}
	for i, want := range figures {
		if r := tab.Rows[i]; fmt.Sprintf("%.2f", r.Ours) != want || fmt.Sprintf("%.2f", r.Published) != want {
			t.Errorf("%s, %s: %.3f, published %.2f; want %s", r.Case, r.Figure, r.Ours, r.Published, want)
		}
	}
}
