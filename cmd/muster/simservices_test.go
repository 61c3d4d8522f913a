package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimServices: three scaling policies in one table; the same twice; beside a workload, whose jobs wait
// longer for it.
func TestSimServices(t *testing.T) {
	play := func(args ...string) (rows []simServiceRow) {
		t.Helper()
		var v struct{ Services []simServiceRow }
		args = append([]string{"sim", "--services", "../../examples/serving/vision.yaml",
			"--requests", "../../examples/serving/vision-load.yaml", "--json", "-"}, args...)
		if err := json.Unmarshal([]byte(ok(t, args...)), &v); err != nil {
			t.Fatal(err)
		}
		return v.Services
	}
	rows := play("--cluster", "1x8xH100-80GB", "--policies", "fifo", "--scaling", "static,hpa,muster")
	if len(rows) != 3 {
		t.Fatalf("%d rows, want 3: %+v", len(rows), rows)
	}
	for _, r := range rows {
		if r.Service != "vision" || r.Requests < 5e6 || r.Attainment < 0.98 || r.GPUHours <= 0 || r.P99 > 0.05 {
			t.Errorf("%+v", r)
		}
	}
	if static, ours := rows[0], rows[2]; ours.GPUHours > static.GPUHours/2 || ours.Peak < 2 {
		t.Errorf("muster takes %g GPU-hours, with %d replicas at most; eight replicas take %g", ours.GPUHours,
			ours.Peak,
			static.GPUHours)
	}
	again := play("--cluster", "1x8xH100-80GB", "--policies", "fifo", "--scaling", "muster")
	if again[0] != rows[2] {
		t.Errorf("again: %+v, before: %+v", again[0], rows[2])
	}
	if beside := play("--demo", "--queues", "none", "--policies", "multifactor"); len(beside) != 1 ||
		beside[0].Attainment < 0.9 {
		t.Errorf("beside the demo's jobs: %+v", beside)
	}
	out := ok(t, "sim", "--services", "../../examples/serving/chat.yaml", "--requests",
		"../../examples/serving/chat-load.yaml", "--cluster", "1x8xH100-80GB", "--policies", "fifo")
	if !strings.Contains(out, "TTFT P99") || !strings.Contains(out, "chat") {
		t.Errorf("%s", out)
	}
	out = ok(t, "sim", "--services", "../../examples/serving/phases.yaml", "--requests",
		"../../examples/serving/phases-load.yaml", "--cluster", "4x8xA100-80GB", "--policies", "fifo", "--json", "-")
	var phases struct{ Services []simServiceRow }
	if err := json.Unmarshal([]byte(out), &phases); err != nil {
		t.Fatal(err)
	}
	if r := phases.Services[0]; r.Scaling != "distserve" || r.Attainment < 0.85 || r.Peak < 5 {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"--services x.yaml":                   "say with --requests which requests come",
		"--requests x.yaml":                   "--requests and --scaling need --services",
		"--services x.yaml --requests y.yaml": "x.yaml",
		"--services ../../examples/serving/vision.yaml --requests ../../examples/serving/vision-load.yaml --demo":                          "the cluster can never run a replica",
		"--services x.yaml --requests y.yaml --tile 2":                                                                                     "--tile",
		"--services ../../examples/serving/vision.yaml --requests ../../examples/serving/chat-load.yaml":                                   `unknown service "chat"`,
		"--services ../../examples/serving/vision.yaml --requests ../../examples/serving/vision-load.yaml":                                 "say on which --cluster",
		"--services ../../examples/serving/vision.yaml --requests ../../examples/serving/vision-load.yaml --cluster 1x1xT4 --scaling best": `unknown scaling policy "best"`,
	} {
		_, stderr, err := muster(t, t.Context(), append([]string{"sim"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(stderr+err.Error(), want) {
			t.Errorf("%s: %v %s, want %s", args, err, stderr, want)
		}
	}
}

// TestSimCanary: a service's canary has a row of its own.
func TestSimCanary(t *testing.T) {
	dir := t.TempDir()
	file, load := filepath.Join(dir, "vision.yaml"), filepath.Join(dir, "load.yaml")
	for path, text := range map[string]string{load: "service: vision\nrate: 50\nfor: 5m\n", file: `name: vision
latency: 50ms
replicas: {min: 1, max: 4}
canary: 0.1
scaling: static:replicas=1
variants:
  - {name: old, profile: [{batch: 1, latency: 5ms}]}
  - {name: new, profile: [{batch: 1, latency: 9ms}]}
`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := ok(t, "sim", "--services", file, "--requests", load, "--cluster", "1x4xH100-80GB", "--policies", "fifo",
		"--json", "-")
	var got struct{ Services []simServiceRow }
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Services) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	all, canary := got.Services[0], got.Services[1]
	if canary.Service != "vision/new" || 10*canary.Requests > all.Requests+10 || 10*canary.Requests < all.Requests-10 ||
		canary.P50 < 0.009 || all.P50 > 0.006 || all.Started != 2 || canary.Started != 1 {
		t.Errorf("%+v, of which the canary %+v", all, canary)
	}
}
