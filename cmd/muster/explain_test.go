package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// The answers that are asked for in a journal are those that the replay gave which wrote it, and as good.
func TestExplainScore(t *testing.T) {
	log := filepath.Join(t.TempDir(), "demo.journal")
	out := ok(t, "sim", "--demo", "--limit", "40", "--cluster", "1x8", "--policies", "multifactor", "--backfill",
		"easy", "--estimates", "exact", "--score-starts", "6", "--journal", log)
	_, want, found := strings.Cut(out, "POLICY  ")
	if _, rest, again := strings.Cut(want, "POLICY  "); again {
		want = rest
	}
	lines := strings.Split(strings.TrimSpace(want), "\n")
	if !found || len(lines) < 4 || !strings.Contains(lines[0], "INSIDE 80 %") {
		t.Fatalf("no answers are scored:\n%s", out)
	}
	_, got, _ := strings.Cut(ok(t, "explain", log, "--score", "--every", "6"), "POLICY  ")
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("in the journal:\n%s\nin the replay:\n%s", got, want)
	}
	if early := ok(t, "explain", log, "--score", "--at", "0s"); strings.Contains(early, "later") {
		t.Errorf("at the first instant:\n%s", early)
	}
	for _, c := range []struct{ args, want string }{
		{"explain " + log + " --score --every 0", "want a number from 1"},
		{"explain " + log + " --job 1 --every 3", "--every is for --score"},
		{"explain " + log + " --job 1 --score", "job score"},
		{"explain " + log, "job"},
		{"explain " + log + " --score --at soon", "soon"},
	} {
		if _, _, err := muster(t, context.Background(), strings.Fields(c.args)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ... %s", c.args, err, c.want)
		}
	}
}
