package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/report"
)

// measuredHistory is what a daemon's journal says of jobs: how long their stops took.
func measuredHistory(t *testing.T) *pastJobs {
	t.Helper()
	const s = cluster.Time(time.Second)
	h := &pastJobs{at: map[cluster.JobID]int{}}
	h.header.Policy, h.header.Placer = "fifo", "best-fit"
	submit := func(id cluster.JobID, ck cluster.Checkpoint) {
		h.event(cluster.Time(id)*s, &engine.Event{Type: engine.Submitted, Spec: &cluster.Job{ID: id, Checkpoint: ck, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}})
		h.event(cluster.Time(id)*s, &engine.Event{Type: engine.Started, Job: id})
	}
	stop := func(id cluster.JobID, save, restart time.Duration) {
		h.event(20*s, &engine.Event{Type: engine.Stopped, Job: id, Reason: engine.Preempted, Done: 5 * time.Second, Switch: engine.SwitchCost{Save: save}})
		h.event(30*s, &engine.Event{Type: engine.Started, Job: id})
		h.event(40*s, &engine.Event{Type: engine.Progress, Job: id, Switch: engine.SwitchCost{Restart: restart}})
	}
	for id := range cluster.JobID(4) {
		submit(id, cluster.Checkpoint{})
	}
	submit(4, cluster.Checkpoint{Cost: 7 * time.Second, Restart: 8 * time.Second})
	submit(5, cluster.Checkpoint{None: true})
	stop(0, 2*time.Second, 10*time.Second)
	stop(0, 4*time.Second, 12*time.Second)
	stop(0, 3*time.Second, 11*time.Second)
	stop(1, 9*time.Second, 20*time.Second)
	stop(2, 0, time.Hour) // it was killed: to be where it was it had to do work again
	for id := range cluster.JobID(6) {
		h.event(100*s, &engine.Event{Type: engine.Stopped, Job: id, Reason: engine.Completed, Done: 30 * time.Second})
	}
	return h
}

// A replay has stops cost what was measured: of the job itself, else what it states, else what
// is measured of others, in the middle.
func TestHistoryMeasuresStops(t *testing.T) {
	h := measuredHistory(t)
	wl, _, err := h.workload()
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []bool{false, true} {
		entries := slices.Clone(wl.Jobs)
		f := &simFlags{ckptEvery: "0s", ckptCost: "30s", restart: "1m", suspendCost: "0s"}
		if err := f.checkpoints(entries); err != nil {
			t.Fatal(err)
		}
		said := h.book.fill(entries, func(flag string) bool { return given && flag == "checkpoint-cost" })
		want := [][2]time.Duration{{3 * time.Second, 11 * time.Second}, {9 * time.Second, 20 * time.Second}, {3 * time.Second, 11 * time.Second},
			{3 * time.Second, 11 * time.Second}, {7 * time.Second, 8 * time.Second}, {0, 0}}
		if given {
			want[2][0], want[3][0] = 30*time.Second, 30*time.Second
		}
		for i := range entries {
			if c := entries[i].Job.Checkpoint; [2]time.Duration{c.Cost, c.Restart} != want[i] {
				t.Errorf("given %v: job %d has %v and %v, want %v", given, i, c.Cost, c.Restart, want[i])
			}
		}
		text := strings.Join(said, "\n")
		if !strings.Contains(text, "costs of a stop: measured, 4 stops of 2 jobs, median 3 s to write a checkpoint; ") || !strings.Contains(text, "measured, 4 stops of 2 jobs, median 11 s to be back where it was") ||
			strings.Contains(text, "that of --checkpoint-cost") != given || strings.Contains(text, "frozen") {
			t.Errorf("given %v: %s", given, text)
		}
	}
	h = measuredHistory(t) // jobs that have not ended say what stops take, too
	h.jobs[0].ended = false
	if wl, _, err = h.workload(); err != nil {
		t.Fatal(err)
	}
	if h.book.fill(wl.Jobs, func(string) bool { return false }); wl.Jobs[1].Job.Checkpoint.Cost != 3*time.Second {
		t.Errorf("%+v", wl.Jobs[1].Job.Checkpoint)
	}
	none := costBook{jobs: make([]stopCosts, 1), stated: make([]cluster.Checkpoint, 1)}
	if said := none.fill(wl.Jobs[:1], func(string) bool { return false }); len(said) != 1 || !strings.Contains(said[0], "assumed, none was measured") {
		t.Errorf("%q", said)
	}
}

// The replay of the policy in force is held against what happened, over the jobs that were
// under it all the while.
func TestFit(t *testing.T) {
	h := measuredHistory(t)
	h.jobs[1].under = reign{} // the policy changed while it was there
	wl, _, err := h.workload()
	if err != nil {
		t.Fatal(err)
	}
	f := &tuneFlags{past: h.past, force: reign{policy: "fifo", placer: "best-fit"}}
	f.current, f.placers = "fifo", "best-fit"
	run := report.Run{Records: make([]report.Record, len(wl.Jobs))}
	for _, c := range []struct {
		took time.Duration // in the replay; recorded are 100 to 95 s, in the mean of those under fifo 97.2
		far  bool
		want string
	}{
		{90 * time.Second, false, "mean JCT of the 5 jobs that came and ended under fifo: recorded 1m37s, in its replay 1m30s, 7 % shorter\n"},
		{60 * time.Second, true, "warning: the recommendation rests on a model that does not fit what happened: mean JCT of the 5 jobs that came and ended under fifo: recorded"},
		{200 * time.Second, true, "106 % longer"},
	} {
		for i := range run.Records {
			run.Records[i] = report.Record{Submit: wl.Jobs[i].Job.Submit, End: wl.Jobs[i].Job.Submit.Add(c.took), Outcome: report.Completed}
		}
		m := f.fitOf(&run)
		if m == nil {
			t.Fatal("nothing to compare")
		}
		var b bytes.Buffer
		if m.write(&b, "fifo"); m.far() != c.far || !strings.Contains(b.String(), c.want) {
			t.Errorf("%v: far %v: %s", c.took, m.far(), b.String())
		}
	}
	if m := (&fit{Jobs: 1, Recorded: 0.2, Replayed: 0.1, Off: -0.5}); m.far() {
		t.Error("a tenth of a second is far")
	}
	f.current = "las"
	if f.fitOf(&run) != nil {
		t.Error("nothing ran under las")
	}
}
