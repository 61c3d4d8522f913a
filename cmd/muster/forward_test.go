//go:build linux

package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
)

// expected is when why says that a job will start, without "about".
func (d *daemon) expected(id string) time.Time {
	d.t.Helper()
	var w api.Why
	if err := json.Unmarshal([]byte(d.must("why", id, "--json")), &w); err != nil {
		d.t.Fatal(err)
	}
	if w.Job.Expected == nil || w.Job.Rough {
		d.t.Fatalf("job %s is %s (%v) and is not told when it will start, or only roughly", id, w.Job.State, w.Blockers)
	}
	return *w.Job.Expected
}

// A chain of jobs of which each waits for the one before is told when they will
// start, by the submission, by why, in the list, and what comes after them would
// be, too. That is what happens, and it is scored.
func TestForeseenChain(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	began := time.Now()
	d.must("submit", "--gpus", "1", "--estimate", "8s", "--", "sleep", "8")
	told := map[string]time.Time{}
	for i, id := range []string{"2", "3", "4"} {
		out := d.must("submit", "--gpus", "1", "--estimate", "2s", "-d",
			[]string{"afterok:1", "afterany:2", "afterok:3"}[i], "--", "sleep", "2")
		d.want(out, "waiting, expected to start ", "waits for after")
		told[id] = d.expected(id)
		want := began.Add(time.Duration(8+2*i) * time.Second)
		if off := told[id].Sub(want); off < -time.Second || off > 20*time.Second {
			t.Errorf("job %s is expected to start %v, that is %v off", id, told[id], off)
		}
	}
	if !told["2"].Before(told["3"]) || !told["3"].Before(told["4"]) {
		t.Errorf("the chain is expected to start at %v, %v and %v", told["2"], told["3"], told["4"])
	}
	d.want(d.must("queue", "--json"), `"expected":`)
	d.must("slurm", "install", filepath.Join(d.dir, "bin"))
	d.want(d.slurm("sbatch", "--test-only", "-G", "1", "-d", "afterok:4", "--wrap", "true"), " to start at ")
	d.must("wait", "4")
	for id, at := range told {
		if j := d.job(id); j.FirstStart == nil || j.FirstStart.Sub(at).Abs() > 30*time.Second {
			t.Errorf("job %s was to start at %v and did at %v", id, at, j.FirstStart)
		}
	}
	d.want(d.must("usage", "--predictions"),
		"3 waiting jobs were given an expected start; 3 of them have started", "half of them within")
}

// A time limit is said to be one: the holder ends at the latest then, and what waits for it starts by then if
// it runs so long. The start that is told is that of the look ahead which says when the holder leaves. Each
// waiting job has its own place.
func TestLimitIsNoRunTime(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "1xH100-80GB")
	began := time.Now()
	d.must("submit", "--gpus", "1", "--time", "1h", "--", "sleep", "1000")
	out := d.must("submit", "--gpus", "1", "--estimate", "60s", "--", "true")
	d.want(out, "number 1 in the line", "if those ahead run to their time limits, sooner if they end sooner",
		"ends at the latest at", ", its time limit")
	d.must("submit", "--gpus", "1", "--estimate", "60s", "--", "true")
	var at []time.Time
	for i, id := range []string{"2", "3"} {
		var w api.Why
		if err := json.Unmarshal([]byte(d.must("why", id, "--json")), &w); err != nil {
			t.Fatal(err)
		}
		if w.Job.Position != i+1 || !w.Job.ByLimits || w.Job.AtEarliest || w.Job.Expected == nil {
			t.Fatalf("job %s: %+v", id, w.Job)
		}
		at = append(at, *w.Job.Expected)
	}
	if off := at[0].Sub(began.Add(time.Hour)).Abs(); off > 30*time.Second || at[1].Sub(at[0]) != time.Minute {
		t.Errorf("they are expected to start at %v", at)
	}
	d.want(d.must("queue", "-o", "job,expected"), "by "+at[0].Local().Format("2006-01-02T15:04:05"))
	d.must("cancel", "1")
	d.must("wait", "3")
}
