package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// Exactly the page of the requested experiment is written.
func TestOnePage(t *testing.T) {
	traces, dir := shared.Path(t, "traces"), t.TempDir()
	if err := run(t.Context(), []string{"--traces", traces, "--out", dir, "--only", "tiresias"},
		io.Discard); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "results", "tiresias.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../docs/results/tiresias.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("docs/results/tiresias.md is not what make results writes:\n%s", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "results.md")); err == nil {
		t.Error("the first page was written, with one experiment only")
	}
}
