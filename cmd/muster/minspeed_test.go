//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A share goes beside others only if everybody keeps what it asks for, by what is
// known of pairs; who waits for that is told so, and may ask for less.
func TestMinSpeed(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xA100-80GB", "{min_speed: 0.5}\nperformance: {pairs: {a/b: 0.9, b/a: 0.6, c/a: 0.4}}")
	share := func(more ...string) {
		t.Helper()
		d.must(append(append([]string{"submit", "--gpus", "0.25"}, more...), "--", "sleep", "1000")...)
	}
	share("--model", "a", "--min-speed", "0.85")
	share("--model", "b")
	share("--model", "b", "--min-speed", "0.8")
	share("--model", "b")
	share("--model", "c")
	d.untilSays(`"state": "running"`, "show", "1")
	d.untilSays(`"state": "running"`, "show", "2")
	d.want(d.must("why", "3"), "beside a, b it would be at 0.60 of its speed, it asks for 0.8")
	d.want(d.must("why", "4"), "beside it job 1", "would be at 0.81 of its speed, and asks for 0.85")
	d.want(d.must("why", "5"), "beside a, b it would be at 0.40 of its speed, it asks for 0.5")
	d.must("update", "5", "--min-speed", "0.3")
	d.untilSays(`"state": "running"`, "show", "5")
	if text, code := d.try("submit", "--gpus", "0.5", "--min-speed", "2", "--", "true"); code == 0 {
		t.Errorf("twice its speed cannot be asked for: %s", text)
	}
	d.must("cancel", "1", "2", "3", "4", "5")
}

// A job that waits for a whole GPU may ask for a part of one instead, in all the ways
// in which a new one may.
func TestUpdateShare(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xA100-80GB", "{}")
	d.must("submit", "--gpus", "0.5", "--", "sleep", "1000")
	d.must("submit", "--gpus", "1", "--", "sleep", "1000")
	d.untilSays(`"state": "running"`, "show", "1")
	d.must("update", "2", "--gpu-cores", "30%", "--gpu-mem", "8GiB", "--isolation", "memory")
	d.want(d.must("show", "2"), `"share": 300`, `"gpu_memory": 8192`, `"isolation": "memory"`)
	if text, code := d.try("update", "2", "--isolation", "some"); code == 0 {
		t.Errorf("there is no such isolation: %s", text)
	}
	d.must("update", "2", "--isolation", "none") // as the one that is there
	d.untilSays(`"state": "running"`, "show", "2")
	d.must("cancel", "1", "2")
}

// slowed is a job of ten steps a second, and what makes every such job ten times as slow.
func (d *daemon) slowed() (script string, slow func()) {
	mark := filepath.Join(d.dir, "slow")
	script = `n=0; while :; do n=$((n+1)); echo "{\"step\": $n}" >> $MUSTER_PROGRESS
if [ -e ` + mark + ` ]; then sleep 1; else sleep 0.1; fi; done`
	return script, func() {
		d.t.Helper()
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
}

// untilPaced waits until a job runs and its speed alone is known.
func (d *daemon) untilPaced(id string) {
	d.t.Helper()
	d.untilSays(`"state": "running"`, "show", id)
	d.eventually("its speed alone is known", func() bool {
		j := d.job(id)
		return j.Progress != nil && j.Progress.Step >= 40
	})
}

// A job tells by its progress that it is too slow beside another: after a minute that
// one leaves, and goes where it disturbs no job. The daemon has no table at all.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it measures for a minute")
	}
	d := shares(t, "2xA100-80GB", "{min_speed: 0.8}")
	script, slow := d.slowed()
	d.must("submit", "--gpus", "0.25", "--model", "a", "--", "sh", "-c", script)
	d.untilPaced("1")
	slow()
	d.must("submit", "--gpus", "0.25", "--model", "b", "--", "sleep", "1000")
	d.untilSays(`"index": 0`, "show", "2")
	d.untilSays(`"restarts": 1`, "show", "2")
	d.untilSays(`"index": 1`, "show", "2")
	d.must("cancel", "1", "2")
}

// Two that get less done together than one alone does are parted after a minute, though
// no job asks for a speed and there is no other GPU: the job that came last waits, says why,
// and goes on when the other has left.
func TestParted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it measures for a minute")
	}
	d := shares(t, "1xA100-80GB", "{}")
	script, slow := d.slowed()
	d.must("submit", "--gpus", "0.6", "--model", "b", "--tier", "best-effort", "--", "sh", "-c", script)
	d.untilPaced("1")
	d.must("submit", "--gpus", "0.6", "--model", "a", "--", "sh", "-c", script)
	d.untilPaced("2")
	d.untilSays(`"state": "pending"`, "show", "1")
	slow()
	d.must("update", "1", "--gpus", "0.3")
	d.untilSays(`"state": "running"`, "show", "1")
	d.untilSays("of its speed, and cost the others", "why", "1")
	d.untilSays(`"state": "running"`, "show", "2")
	d.must("cancel", "2")
	d.untilSays(`"state": "running"`, "show", "1")
	d.must("cancel", "1")
}

// Pairs that were not measured are estimated from what the two use of a GPU, or how they
// take turns, in a daemon as elsewhere; config check says so.
func TestMinSpeedEstimated(t *testing.T) {
	t.Parallel()
	d := shares(t, "1xA100-80GB",
		"{min_speed: 0.8}\nperformance: {predict: true, time_slicing: {switch: 0.02, duty: {f: 1}}, use: {h: {compute: 0.5, memory: 0.8}, k: {compute: 0.3, memory: 0.7}, l: {compute: 0.2, memory: 0.1}}}")
	for _, model := range []string{"h", "k", "l"} {
		d.must("submit", "--gpus", "0.25", "--model", model, "--", "sleep", "1000")
	}
	d.untilSays(`"state": "running"`, "show", "3")
	d.want(d.must("why", "2"), "it would be at 0.66 of its speed, it asks for 0.8")
	d.want(d.must("config", "check", filepath.Join(d.dir, "muster.yaml")), "9 by roofline")
	d.must("cancel", "1", "2", "3")
	for range 2 {
		d.must("submit", "--gpus", "0.25", "--model", "f", "--", "sleep", "1000")
	}
	d.untilSays("it would be at 0.49 of its speed, it asks for 0.8", "why", "5") // their processes take turns
	d.must("cancel", "4", "5")
}
