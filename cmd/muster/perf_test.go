package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A table is read, what is estimated of it is said, and how far each way is off.
func TestPerfCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "table.yaml")
	text := "predict: true\nuse: {a: {compute: 0.6, memory: 0.7}, n: {compute: 0.5, memory: 0.6}}\npairs: {a/a: 0.5, a/b: 0.5, b/a: 0.5, b/b: 0.5, c/a: 0.5, '*/z': 0.3}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := ok(t, "perf", "check", file, "a/b", "c/b", "n/a", "a/z", "x/y")
	for _, want := range []string{"7 pairs are estimated", "like models", "linear", "roofline",
		"a keeps 0.50 of its speed beside b: listed", "c keeps 0.50 of its speed beside b: estimated",
		"n keeps 0.77 of its speed beside a: estimated", "a keeps 0.30 of its speed beside z: listed for any",
		"x keeps 1.00 of its speed beside y: not known"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not said:\n%s", want, out)
		}
	}
	if _, _, err := muster(t, context.Background(), "perf", "check", file, "ab"); err == nil ||
		!strings.Contains(err.Error(), "want job/neighbour") {
		t.Errorf("a pair that is none: %v", err)
	}
}
