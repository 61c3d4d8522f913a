//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// protectedSim has no job moved in protected times, on the clock of the cluster file.
func protectedSim(t *testing.T, dir, trace string) {
	t.Helper()
	protected := func(args ...string) (string, error) {
		text, _, err := muster(t, t.Context(),
			append([]string{"sim", "--trace", trace, "--policies", "fifo", "--defragment", "auto", "--json", "-"},
				args...)...)
		return text, err
	}
	spec := filepath.Join(dir, "cluster.yaml")
	if err := os.WriteFile(spec,
		[]byte("epoch: 2026-11-16T17:00:00Z\nnodes:\n  - {name: n1, gpus: 2, model: T4}\n  - {name: n2, gpus: 2, model: T4}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := protected("--cluster", spec, "--protected", "mon 08:00-18:00"); err != nil ||
		!strings.Contains(out, `"preemptions": 1`) && !strings.Contains(out, `"preemptions":1`) {
		t.Errorf("moved at 18:00: %v %s", err, out)
	}
	if out, err := protected("--cluster", spec, "--protected", "mon 08:00-18:00", "--protected",
		"mon 18:00-17:00"); err != nil || strings.Contains(out, `"preemptions": 1`) ||
		strings.Contains(out, `"preemptions":1`) {
		t.Errorf("never moved: %v %s", err, out)
	}
	for want, args := range map[string][]string{"(epoch:": {"--cluster", "2x2xT4", "--protected", "mon"},
		"--protected[0]:":      {"--cluster", spec, "--protected", "noon"},
		"--zone:":              {"--cluster", spec, "--zone", "UTC"},
		"without --defragment": {"--cluster", spec, "--protected", "mon", "--defragment", "off"}} {
		if _, err := protected(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// Jobs are moved in the simulator, the gang starts hours earlier, the journal replays;
// looking back at the journal of a run without moves says which there would have been.
func TestDefragSim(t *testing.T) {
	dir := t.TempDir()
	trace, log := filepath.Join(dir, "jobs.csv"), filepath.Join(dir, "off.journal")
	// a and b are left on two nodes of two; big needs one whole.
	text := "submit_s,run_s,gpus,name\n0,36000,1,a\n0,60,1,x\n0,36000,1,b\n0,60,1,y\n120,600,2,big\n"
	if err := os.WriteFile(trace, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	wait := func(mode, journal string) float64 {
		out, _, err := muster(t, t.Context(), "sim", "--trace", trace, "--cluster", "2x2xT4", "--policies", "fifo",
			"--defragment", mode, "--journal", journal, "--json", "-")
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`"makespan": ?([0-9.]+)`).FindStringSubmatch(out)
		if found == nil {
			t.Fatal(out)
		}
		v, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	without, with := wait("off", log), wait("auto", filepath.Join(dir, "auto.journal"))
	if without < 36600 || with > 36100 {
		t.Errorf("the last job ends after %v s without moves, %v s with them", without, with)
	}
	if out, _, err := muster(t, t.Context(), "replay", filepath.Join(dir, "auto.journal")); err != nil ||
		!strings.Contains(out, "every decision the same") {
		t.Errorf("%s, %v", out, err)
	}
	out, _, err := muster(t, t.Context(), "defrag", "big", "--journal", log, "--at", "10m", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var list []engine.Moves
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || !list[0].Worth ||
		len(list[0].Moves) != 1 || list[0].Without != cluster.Time(10*time.Hour) {
		t.Errorf("%s %v", out, err)
	}
	if out, _, err = muster(t, t.Context(), "defrag", "--journal", log, "--at", "10m"); err != nil ||
		!strings.Contains(out, "from n") {
		t.Errorf("%s, %v", out, err)
	}
	protectedSim(t, dir, trace)
	for _, args := range [][]string{{"nobody"}, {"big", "--compact"}, {"--compact=all"}} {
		if _, _, err = muster(t, t.Context(), append([]string{"defrag", "--journal", log}, args...)...); err == nil {
			t.Errorf("%q has an answer", args)
		}
	}
	out, _, err = muster(t, t.Context(), "defrag", "--compact=nodes", "--journal", log, "--at", "90s")
	if err != nil || !strings.Contains(out, "from n1 to n2; costs 0s of GPU time; empties n1: gains 19h57m") {
		t.Errorf("%s, %v", out, err)
	}
}

// A daemon says that no move would help, and moves no job; who asks must be an operator.
func TestDefragServe(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.want(d.must("defrag"), "no job waits for room", "nothing was changed")
	d.must("submit", "--gpus", "2", "--", "sleep", "1000")
	d.must("submit", "--gpus", "2", "--name", "big", "--", "true")
	d.want(d.must("defrag", "big"), "job 2 big (2 GPUs): no move would help: it needs 2 GPUs, 0 suitable ones are free")
	var list []api.Moves
	if err := json.Unmarshal([]byte(d.must("defrag", "2", "--apply", "--json")), &list); err != nil || len(list) != 1 ||
		list[0].Made {
		t.Errorf("%+v %v", list, err)
	}
	d.want(d.must("defrag", "--compact"), "no node is emptied while a job waits for room", "nothing was changed")
	d.must("cancel", "1", "2")
	list = nil
	if err := json.Unmarshal([]byte(d.must("defrag", "--compact=nodes", "--apply", "--json")), &list); err != nil ||
		len(list) != 1 || !strings.Contains(list[0].Text, "no node can be emptied") {
		t.Errorf("%+v %v", list, err) // it is one node, and no job is on it
	}
}

// What moves cost is written to the second.
func TestDefragRounds(t *testing.T) {
	now := time.Unix(0, 0)
	var b strings.Builder
	x := api.Move{Job: 1, GPUs: 1, From: []string{"a"}, To: []string{"b"}, Lost: api.Duration(21056336755),
		Stop: api.Duration(1499 * time.Millisecond), Restart: api.Duration(time.Minute)}
	if err := (&defragFlags{}).print(&b,
		[]api.Moves{{Job: 2, Start: &now, Moves: []api.Move{x},
			Saved: api.Duration(time.Hour + time.Millisecond)}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(checkpoint 1s, restart 1m, lost work 21s)", "saves 1h x"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, b.String())
		}
	}
}
