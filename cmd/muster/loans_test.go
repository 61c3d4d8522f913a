package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node is given back in the simulator, who was there waits for it and is told until when, and the
// journal replays; without a calendar the file is refused.
func TestLoansSim(t *testing.T) {
	dir := t.TempDir()
	trace, spec, log := filepath.Join(dir, "jobs.csv"), filepath.Join(dir, "cluster.yaml"),
		filepath.Join(dir, "journal")
	text := "nodes:\n  - {name: n1, gpus: 2, model: T4}\n  - {name: n2, gpus: 2, model: T4}\npartitions: [{name: lent, nodes: 'n[1-2]', default: true}]\n" +
		"loans: [{partition: lent, back: {'mon 18:00-20:00': 1}, zone: Europe/Berlin}]\n"
	for name, text := range map[string]string{trace: "submit_s,run_s,gpus,name\n0,36000,2,a\n0,36000,2,b\n",
		spec: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := muster(t, t.Context(), "sim", "--trace", trace, "--cluster", spec); err == nil ||
		!strings.Contains(err.Error(), "loans: neither") {
		t.Errorf("without an epoch: %v", err)
	}
	if err := os.WriteFile(spec, []byte("epoch: 2026-11-16T16:30:00Z\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := ok(t, "sim", "--trace", trace, "--cluster", spec, "--policies", "lyra", "--journal", log, "--json", "-")
	if !strings.Contains(strings.ReplaceAll(out, " ", ""), `"preemptions":1,`) {
		t.Errorf("not one job is preempted: %s", out)
	}
	if out = ok(t, "explain", log, "--job", "a", "--at", "1h"); !strings.Contains(out,
		"given back: n1 until 20:00 (Europe/Berlin)") {
		t.Errorf("%s", out)
	}
	ok(t, "replay", log)
}
