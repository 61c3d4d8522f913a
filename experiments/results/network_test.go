package results

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/internal/shared"
)

// TestCoflowPage: the figures of Sincronia's simulator are ours to the digit, and the page in the repository has them.
func TestCoflowPage(t *testing.T) {
	t.Parallel()
	traces := filepath.Dir(filepath.Dir(shared.Path(t, "traces/coflow/coflow500.txt")))
	var tab Table
	if err := tab.coflows(traces, shared.Soak([]string{"PD", "SEBF"}, compat.CoflowOrders)); err != nil {
		t.Fatal(err)
	}
	tab.Tolerance = 1e-5
	for _, r := range tab.Failed() {
		t.Errorf("%s, %s: published %g, ours %g", r.Case, r.Figure, r.Published, r.Ours)
	}
	tab.onPage(t)
}

// TestSnapshots: shifts gain where the jobs of a link fit beside each other, nowhere do they cost anything, and the
// page in the repository says so.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	var tab Table
	if err := tab.cassini(); err != nil {
		t.Fatal(err)
	}
	tab.onPage(t)
	fits := 0
	for _, c := range tab.Sections[0].Cells {
		if gain, err := strconv.ParseFloat(c[7], 64); err != nil || gain < 1 {
			t.Errorf("%v: slower than aligned: %v", c, gain)
		}
		if c[3] != "1.00" {
			continue
		}
		fits++
		if gain, err := strconv.ParseFloat(c[7], 64); err != nil || gain < 1.05 {
			t.Errorf("%v: the gain is %v", c, gain)
		}
	}
	if fits < 5 {
		t.Errorf("%d snapshots of jobs that fit", fits)
	}
}

// TestFabrics: on a small part of the trace simulation, crux and muster have GPUs compute for the largest part of the
// time on two layers with oversubscription.
func TestFabrics(t *testing.T) {
	t.Parallel()
	traces := filepath.Dir(filepath.Dir(shared.Path(t, "traces/topology/lingjun2023_topo.csv")))
	var tab Table
	cases := shared.Soak(fabricCases[:1], fabricCases)
	if err := tab.fabrics(context.Background(), traces, cases, .04); err != nil {
		t.Fatal(err)
	}
	s := &tab.Sections[0]
	want := 6 * len(cases)
	if len(s.Cells) != want || len(s.Cells[0]) != len(s.Head) || len(s.Cells[1]) != len(s.Head) {
		t.Fatalf("%d rows, of %d cells, want %d of %d", len(s.Cells), len(s.Cells[0]), want, len(s.Head))
	}
	for _, row := range [][]string{s.Cells[2], s.Cells[4]} {
		share := func(at int) float64 {
			v, err := strconv.ParseFloat(strings.TrimSuffix(row[at], " %"), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		for at := 3; at < 7; at++ {
			if best := min(share(7), share(8)); share(at) > best+.005 {
				t.Errorf("%v: %s has %v %%, crux and muster %v %%", row[:3], s.Head[at], share(at), best)
			}
		}
	}
}

// onPage checks that the page in the repository has the table's cells.
func (tab *Table) onPage(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/results/network.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range tab.Sections {
		for _, cells := range s.Cells {
			if !strings.Contains(string(page), "| "+strings.Join(cells, " | ")+" |\n") {
				t.Errorf("docs/results/network.md lacks %v", cells)
			}
		}
	}
}

// cell is a figure of a section, found by what its row begins with.
func cell(t *testing.T, s *Section, column int, first ...string) float64 {
	t.Helper()
	for _, c := range s.Cells {
		if strings.Join(c[:len(first)], "|") == strings.Join(first, "|") {
			v, err := strconv.ParseFloat(strings.TrimSuffix(c[column], " %"), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("%s: no row %v", s.Title, first)
	return 0
}

// TestCruxParts: on some of the small cases, Crux' parts are near the best of all choices, as published, and what the
// page says of its factors holds.
func TestCruxParts(t *testing.T) {
	t.Parallel()
	var tab Table
	tab.crux(context.Background(), shared.Soak(45, 90))
	if len(tab.Rows) != 3 {
		t.Fatalf("%+v", tab.Rows)
	}
	for _, r := range tab.Rows {
		if r.Ours < r.Published {
			t.Errorf("%s: %v %%, published %v %%", r.Case, r.Ours, r.Published)
		}
	}
	s := &tab.Sections[0]
	if crux, plain := cell(t, s, 4, "order"), cell(t, s, 4, "", "intensity alone"); plain < crux {
		t.Errorf("intensity alone reaches %v %%, Crux %v %%", plain, crux)
	}
	if two := cell(t, s, 4, "order of two"); two < 99.9 {
		t.Errorf("of two jobs, Crux reaches %v %%", two)
	}
}

// TestTrafficMixes: on mixes of each kind no policy is faster than muster, in the mean and by more than 1 % in any.
func TestTrafficMixes(t *testing.T) {
	t.Parallel()
	var tab Table
	mixes := shared.Soak(10, 40)
	if err := tab.traffic(context.Background(), mixes, mixes); err != nil {
		t.Fatal(err)
	}
	s := &tab.Sections[0]
	for at := 0; at < len(s.Cells); at += 6 {
		own := s.Cells[at+5]
		for _, c := range s.Cells[at : at+5] {
			a, err := strconv.ParseFloat(strings.TrimSuffix(c[3], " %"), 64)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := strconv.ParseFloat(strings.TrimSuffix(own[3], " %"), 64)
			if a > b+.005 || c[5] != "0" {
				t.Errorf("%s: %v, muster %v", s.Cells[at][0], c, own)
			}
		}
	}
}
