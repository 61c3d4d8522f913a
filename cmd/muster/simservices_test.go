package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/serving/scale"
)

// TestSimServices: three scaling policies in one table; the same twice; beside a workload, whose jobs wait
// longer for it.
func TestSimServices(t *testing.T) {
	play := func(args ...string) (rows []report.Service) {
		t.Helper()
		var v struct{ Services []report.Service }
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
	besideJobs(t)
	out := ok(t, "sim", "--services", "../../examples/serving/chat.yaml", "--requests",
		"../../examples/serving/chat-load.yaml", "--cluster", "1x8xH100-80GB", "--policies", "fifo")
	if !strings.Contains(out, "TTFT P99") || !strings.Contains(out, "chat") {
		t.Errorf("%s", out)
	}
	out = ok(t, "sim", "--services", "../../examples/serving/phases.yaml", "--requests",
		"../../examples/serving/phases-load.yaml", "--cluster", "4x8xA100-80GB", "--policies", "fifo", "--json", "-")
	var phases struct{ Services []report.Service }
	if err := json.Unmarshal([]byte(out), &phases); err != nil {
		t.Fatal(err)
	}
	if r := phases.Services[0]; r.Scaling != "distserve" || r.Attainment < 0.85 || r.Peak < 5 {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"--services x.yaml":                   "say with --requests which requests come",
		"--requests x.yaml":                   "--requests, --scaling and --service-weights need --services",
		"--services x.yaml --requests y.yaml": "x.yaml",
		"--services ../../examples/serving/vision.yaml --requests ../../examples/serving/vision-load.yaml --demo":                          "the cluster can never run a replica",
		"--services x.yaml --requests y.yaml --csv z":                                                                                      "--csv",
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

// besideJobs plays a service beside the demo's jobs, which wait longer for it than alone; table, JSON and page have
// both.
func besideJobs(t *testing.T) {
	t.Helper()
	demo := []string{"sim", "--demo", "--queues", "none", "--policies", "multifactor", "--cluster", "3x8xH100-80GB"}
	var alone struct{ Runs []report.Summary }
	if err := json.Unmarshal([]byte(ok(t, append(demo, "--json", "-")...)), &alone); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	list, page := filepath.Join(dir, "list.json"), filepath.Join(dir, "page.html")
	file := filepath.Join(dir, "vision.yaml")
	text, err := os.ReadFile("../../examples/serving/vision.yaml")
	if err != nil {
		t.Fatal(err)
	}
	costly := strings.ReplaceAll(string(text), "    startup:", "    cost: 4\n    startup:")
	if err := os.WriteFile(file, []byte(costly), 0o600); err != nil {
		t.Fatal(err)
	}
	out := ok(t, append(demo, "--services", file, "--requests", "../../examples/serving/vision-load.yaml",
		"--scaling", "static,muster", "--json", list, "--html", page)...)
	for _, want := range []string{"PER COST", "The jobs beside them", "multifactor with static",
		"Job completion time"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	data, err := os.ReadFile(list)
	var both struct {
		Services []report.Service
		Jobs     []report.Summary
	}
	if err == nil {
		err = json.Unmarshal(data, &both)
	}
	if err != nil || len(both.Services) != 2 || len(both.Jobs) != 2 {
		t.Fatalf("%v: %s", err, data)
	}
	for i, s := range both.Services {
		j := &both.Jobs[i]
		if s.Attainment < 0.9 || math.Abs(s.PerCost*4/s.PerHour-1) > 1e-3 {
			t.Errorf("beside the demo's jobs: %+v", s)
		}
		if j.Jobs != alone.Runs[0].Jobs {
			t.Errorf("%d jobs beside the service, %d alone", j.Jobs, alone.Runs[0].Jobs)
		}
	}
	none, static, ours := alone.Runs[0].Delay.Mean, both.Jobs[0].Delay.Mean, both.Jobs[1].Delay.Mean
	if static <= none || ours >= static {
		t.Errorf("jobs wait %g s in the mean alone, %g s beside eight replicas, %g s beside as many as are needed",
			none, static, ours)
	}
	if data, err = os.ReadFile(page); err != nil || !strings.Contains(string(data), `"service vision"`) {
		t.Errorf("the page has no curve of what the service holds: %v", err)
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
	var got struct{ Services []report.Service }
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Services) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	all, canary := got.Services[0], got.Services[1]
	if canary.Service != "vision/new" || 10*canary.Requests > all.Requests+10 || 10*canary.Requests < all.Requests-10 ||
		canary.P50 < 0.009 || all.P50 > 0.006 || all.Started != 2 || canary.Started != 1 {
		t.Errorf("%+v, of which the canary %+v", all, canary)
	}
}

// TestSimStep: a step in load is met once what it needs has started: requests miss their goal for as long as a replica
// takes to start after the next look, and with the step in the forecast none do.
func TestSimStep(t *testing.T) {
	const startup, period, before, after = 20, 15, 100, 400 // seconds; requests a second
	dir := t.TempDir()
	file, load := filepath.Join(dir, "api.yaml"), filepath.Join(dir, "load.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(load, fmt.Sprintf("service: api\nrate: %d\nsteps: [{at: 10m, rate: %d}]\nfor: 30m\n", before, after))
	for forecast, seconds := range map[string]int{"": startup + period + 5, `
forecast: {steps: [{at: 1970-01-01T00:00:00Z, rate: 100}, {at: 1970-01-01T00:10:00Z, rate: 400}]}`: 1} {
		write(file, "name: api\nlatency: 100ms\npercentile: 99\nreplicas: {min: 1, max: 8}"+forecast+
			"\nvariants:\n  - {name: m, startup: 20s, profile: [{batch: 1, latency: 8ms}]}\n")
		var got struct{ Services []report.Service }
		out := ok(t, "sim", "--services", file, "--requests", load, "--cluster", "1x8xH100-80GB", "--policies", "fifo",
			"--scaling", "muster", "--json", "-")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		s := &got.Services[0]
		missed := int(float64(s.Requests) * (1 - s.Attainment))
		first := before * startup // until the first replica answers
		if missed < first*9/10 || missed > first*11/10+seconds*after {
			t.Errorf("forecast %q: %d requests missed the goal, of %d before the first replica answered; want those of %d s",
				forecast, missed, first, seconds)
		}
	}
}

// TestSimServiceWeights: the weights of a file count for services under inss-rl that name none, as on a machine.
func TestSimServiceWeights(t *testing.T) {
	t.Cleanup(func() { scale.Weights = nil })
	const file = "../../serving/inss/agents.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	wrong, load := filepath.Join(dir, "wrong.json"), filepath.Join(dir, "load.yaml")
	if err := errors.Join(os.WriteFile(wrong, []byte("{}"), 0o600),
		os.WriteFile(load, []byte("service: a\nrate: 100\nfor: 1m\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	sim := []string{"sim", "--services", "../../examples/serving/three.yaml", "--requests", load, "--cluster",
		"1x4xA100-80GB", "--policies", "fifo", "--scaling", "inss-rl"}
	if out := ok(t, append(sim, "--service-weights", file)...); !strings.Contains(out, "inss-rl") {
		t.Error(out)
	}
	if string(scale.Weights) != string(text) {
		t.Error("the file's weights are not those of the policy")
	}
	for name, want := range map[string]string{wrong: "muster learn inss-rl writes such a file",
		filepath.Join(dir, "none"): "no such file"} {
		if _, _, err := muster(t, t.Context(), append(sim, "--service-weights", name)...); err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--service-weights "+name) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, _, err := muster(t, t.Context(), "sim", "--demo", "--service-weights", file); err == nil ||
		!strings.Contains(err.Error(), "need --services") {
		t.Error(err)
	}
}

// TestSimPipeline: of four GPUs for prompts distserve takes those in stages where the bound is loose, which saves GPUs,
// and those that share each layer where it is tight: then nothing changes without stages, which alone are too slow.
func TestSimPipeline(t *testing.T) {
	example, err := os.ReadFile("../../examples/serving/pipeline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "s.yaml")
	play := func(changes ...string) report.Service {
		t.Helper()
		text := strings.NewReplacer(changes...).Replace(string(example))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var v struct{ Services []report.Service }
		out := ok(t, "sim", "--services", file, "--requests", "../../examples/serving/pipeline-load.yaml", "--cluster",
			"8x8xH100-80GB", "--policies", "fifo", "--json", "-")
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		return v.Services[0]
	}
	const tight, loose = "ttft: 60ms ", "ttft: 400ms"
	both, shared := play(), play("    pipeline: 4\n", "")
	if both.Attainment < 0.98 || shared.Attainment < 0.98 || both.GPUHours > 0.7*shared.GPUHours {
		t.Errorf("within 400 ms stages take %.2f GPU-hours (%.3f in time), shared layers %.2f (%.3f)", both.GPUHours,
			both.Attainment, shared.GPUHours, shared.Attainment)
	}
	quick, stages := play(loose, tight), play(loose, tight, "name: prefill-shared", "pipeline: 4, name: prefill-shared")
	if same := play(loose, tight, "    pipeline: 4\n", ""); quick.Attainment < 0.98 || stages.Attainment > 0.9 ||
		same.GPUHours != quick.GPUHours || same.Attainment != quick.Attainment {
		t.Errorf("within 60 ms %.3f are in time, %.3f without stages, %.3f with stages only", quick.Attainment,
			same.Attainment, stages.Attainment)
	}
}

// TestSimPhaseWithoutGPUs: where no GPU is left for one of the phases, requests wait in vain, and the replay ends all
// the same.
func TestSimPhaseWithoutGPUs(t *testing.T) {
	out := ok(t, "sim", "--services", "../../examples/serving/phases.yaml", "--requests",
		"../../examples/serving/phases-load.yaml", "--cluster", "1x2xA100-80GB", "--policies", "fifo")
	if !strings.Contains(out, " 0.00 % ") {
		t.Error(out)
	}
}
