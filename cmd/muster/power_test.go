package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Nodes sleep in the simulator, who needs them wakes them, the report says what it saved where it was asked,
// and the journal replays.
func TestPowerSim(t *testing.T) {
	dir := t.TempDir()
	trace, spec, log := filepath.Join(dir, "jobs.csv"), filepath.Join(dir, "cluster.yaml"),
		filepath.Join(dir, "journal")
	nodes := "nodes: [{name: 'n[1-4]', gpus: 2, model: T4}]\n"
	power := "power: [{suspend_time: 1h, keep: 1h, resume_time: 5m, watts: {asleep: 10, idle: 100, busy: 500}}]\n"
	for name, text := range map[string]string{trace: "submit_s,run_s,gpus,name\n0,36000,1,a\n18000,3600,8,b\n",
		spec: nodes + power} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := ok(t, "sim", "--trace", trace, "--cluster", spec, "--policies", "las", "--journal", log)
	for _, want := range []string{"nodes in use, of those awake", "wake-ups per day", "energy saved, kWh"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if out = ok(t, "explain", log, "--job", "b", "--at", "5h1m"); !strings.Contains(out,
		"2 nodes are waking, ready in about 4m: n3,n4") {
		t.Errorf("%s", out)
	}
	ok(t, "replay", log)
	if out = ok(t, "sim", "--trace", trace, "--cluster", spec, "--csv", "-"); !strings.Contains(out,
		",power.node_utilisation,") {
		t.Errorf("%s", out)
	}
	if err := os.WriteFile(spec, []byte(nodes), 0o600); err != nil {
		t.Fatal(err)
	}
	if out = ok(t, "sim", "--trace", trace, "--cluster", spec, "--csv", "-"); strings.Contains(out, "power") {
		t.Errorf("nobody asked for it: %s", out)
	}
}
