package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/experiments/results"
	"github.com/muster-gpu/muster/internal/shared"
)

// Without recorded traces, the error says what is needed.
func TestResultsWithoutTraces(t *testing.T) {
	for _, dir := range []string{t.TempDir() + "/none", "main_test.go"} {
		err := run(t.Context(), []string{"--traces", dir}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--traces: ") ||
			!strings.Contains(err.Error(), "want the directory with the recorded traces") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// The error for an unknown experiment names it and lists the existing ones.
func TestUnknownExperiment(t *testing.T) {
	if err := run(t.Context(), []string{"--traces", ".", "--only", "muri2"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "muri") {
		t.Error(err)
	}
}

// Exactly the page of the requested experiment is written, and it is the one in the repository.
func TestOnePage(t *testing.T) {
	traces, dir := shared.Path(t, "traces"), t.TempDir()
	for _, name := range shared.Soak([]string{"tiresias", "triton"}, // tests of results make the others' rows
		[]string{"tiresias", "distserve", "language", "triton"}) {
		if err := run(t.Context(), []string{"--traces", traces, "--out", dir, "--only", name}, io.Discard); err != nil {
			t.Fatal(err)
		}
		page := filepath.Join("results", name+".md")
		got, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("docs/%s is not what make results writes:\n%s", page, got)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "results.md")); err == nil {
		t.Error("the first page was written, with one experiment only")
	}
}

// The first page has the line of each experiment that takes a moment.
func TestFirstPage(t *testing.T) {
	traces := shared.Path(t, "traces")
	page, err := os.ReadFile("../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range shared.Soak([]string{"tiresias"}, []string{"tiresias", "distserve"}) {
		tables, err := results.All(t.Context(), traces, name)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := results.Index(&b, tables); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, "](results/"+name+".md)") && !strings.Contains(string(page), line) {
				t.Errorf("docs/results.md is not what make results writes; it lacks\n%s", line)
			}
		}
	}
}
