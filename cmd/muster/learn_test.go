package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// Weights are trained by a command, twice the same from one seed; a policy and a placer take them; the journal
// names them, and a replay with others in that file is refused.
func TestLearn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ system, flags string }{
		{"sched2", "--policies sched2:weights=FILE"},
		{"meta-rl", "--policies fifo --gang gpu --place meta-rl:weights=FILE"},
	} {
		file, again, other, jr := filepath.Join(dir, c.system), filepath.Join(dir, "again"),
			filepath.Join(dir, "other"), filepath.Join(dir, c.system+".journal")
		out := ok(t, "learn", c.system, "--rounds", "1", "--limit", "60", "--out", file)
		for _, want := range []string{"weights of " + c.system, "held out: 60 jobs", "fifo", "tiresias-l", "srtf",
			c.system + ":"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", c.system, want, out)
			}
		}
		ok(t, "learn", c.system, "--rounds", "1", "--limit", "60", "--seed", "2", "--out", other)
		read := func(name string) string {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if read(file) == read(other) {
			t.Errorf("%s: trainings with two seeds do not differ", c.system)
		}
		if shared.Soak(c.system == "sched2", true) { // one takes seconds
			ok(t, "learn", c.system, "--rounds", "1", "--limit", "60", "--out", again)
			if read(file) != read(again) {
				t.Errorf("%s: two trainings differ", c.system)
			}
		}
		flags := strings.Fields(strings.ReplaceAll(c.flags, "FILE", file))
		ok(t, append([]string{"sim", "--demo", "--limit", "80", "--journal", jr}, flags...)...)
		if out := ok(t, "replay", jr); !strings.Contains(out, "every decision the same") {
			t.Errorf("%s: %s", c.system, out)
		}
		if err := os.Rename(other, file); err != nil {
			t.Fatal(err)
		}
		if _, _, err := muster(t, context.Background(), "replay", jr); err == nil ||
			!strings.Contains(err.Error(), "their digest is") {
			t.Errorf("%s: a replay with other weights: %v", c.system, err)
		}
	}
}

// The agents that plan services are trained by the same command; what they are worth is said beside the solver, and the
// simulator takes their file, which a service that runs for real cannot name.
func TestLearnServices(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "weights.json")
	out := ok(t, "learn", "inss-rl", "--rounds", "1", "--out", file)
	for _, want := range []string{"weights of inss-rl", "held out: 1000 cases", "solver (inss)", "the better of both"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out = ok(t, "sim", "--services", "../../examples/serving/three.yaml", "--requests",
		"../../examples/serving/three-load.yaml", "--cluster", "1x4xA100-80GB", "--policies", "fifo", "--scaling",
		"inss-rl:weights="+file)
	if !strings.Contains(out, "inss-rl") {
		t.Error(out)
	}
	for args, want := range map[string]string{
		"learn inss-rl --trace x.csv --out " + file: "made-up services",
		"sim --services ../../examples/serving/three.yaml --requests ../../examples/serving/three-load.yaml " +
			"--cluster 1x4xA100-80GB --policies fifo --scaling inss-rl:weights=../../go.mod": "not weights",
	} {
		if _, stderr, err := muster(t, t.Context(), strings.Fields(args)...); err == nil ||
			!strings.Contains(stderr+err.Error(), want) {
			t.Errorf("%s: %v %s", args, err, stderr)
		}
	}
}

// Of a trace the last part is held out.
func TestLearnTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wl, file := filepath.Join(dir, "w.jsonl"), filepath.Join(dir, "w.json")
	ok(t, "trace", "synth", "preset=philly-like,jobs=700,gpus=64,load=0.9,seed=7", wl)
	out := ok(t, "learn", "sched2", "--rounds", "1", "--trace", wl, "--cluster", "8x8", "--held", "0.2", "--out", file)
	if !strings.Contains(out, "held out: the last 140 jobs of "+wl) || !strings.Contains(out, "sched2:digest=") {
		t.Error(out)
	}
	for _, c := range []struct{ args, want string }{
		{"learn", "accepts 1 arg"},
		{"learn sched3 --out x", `unknown system "sched3": did you mean "sched2"?`},
		{"learn sched2", "--out FILE is needed"},
		{"learn sched2 --out x --rounds -1", "--rounds -1"},
		{"learn sched2 --out x --held 1", "--held 1"},
		{"learn sched2 --out x --cluster 8x8", "only with --trace"},
		{"learn sched2 --out x --from " + wl, "--from: weights=" + wl + ": not weights"},
		{"learn sched2 --out x --trace " + wl + " --limit 100 --cluster 8x8", "at least 400 jobs are needed"},
		{"sim --demo --policies sched2:weights=" + wl, "not weights"},
		{"sim --demo --policies sched2:weights=" + file + ",digest=00", "want 00"},
		{"sim --demo --place meta-rl:weights=" + file, `system: the weights are of "sched2", want "meta-rl"`},
		{"sim --demo --place meta-rl:weight=x", `unknown knob "weight": did you mean "weights"?`},
	} {
		if _, _, err := muster(t, context.Background(), strings.Fields(c.args)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("muster %s: %v, want ... %s", c.args, err, c.want)
		}
	}
}

// Where the weights go is tried first; an interrupted training writes the best so far and says so; the file
// names all flags that count.
func TestLearnOut(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := muster(t, context.Background(), "learn", "sched2", "--out",
		filepath.Join(dir, "none", "w")); err == nil || !strings.Contains(err.Error(), "--out: ") {
		t.Errorf("a folder that is not there: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	file := filepath.Join(dir, "w")
	out, _, err := muster(t, ctx, "learn", "sched2", "--limit", "60", "--seed", "3", "--out", file)
	if !errors.Is(err, errInterrupted) || !strings.Contains(out, "the best so far") {
		t.Errorf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "muster learn sched2 --limit 60 --seed 3 (interrupted)") {
		t.Errorf("%v: %.200s", err, text)
	}
	if _, _, err := muster(t, context.Background(), "sim", "--demo", "--limit", "20", "--policies",
		"sched2:weights="+file); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".weights-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
