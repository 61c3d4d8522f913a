package tune

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/report"
)

// measuredHistory is a daemon's journal with measured stops.
func measuredHistory(t *testing.T) *History {
	t.Helper()
	const s = cluster.Time(time.Second)
	h := NewHistory()
	h.Header.Policy, h.Header.Placer = "fifo", "best-fit"
	submit := func(id cluster.JobID, ck cluster.Checkpoint) {
		h.event(cluster.Time(id)*s,
			&engine.Event{Type: engine.Submitted,
				Spec: &cluster.Job{ID: id, Checkpoint: ck,
					Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}})
		h.event(cluster.Time(id)*s, &engine.Event{Type: engine.Started, Job: id})
	}
	stop := func(id cluster.JobID, save, restart time.Duration) {
		h.event(20*s, &engine.Event{Type: engine.Stopped, Job: id, Reason: engine.Preempted, Done: 5 * time.Second,
			Switch: engine.SwitchCost{Save: save}})
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
	stop(2, 0, time.Hour) // it was killed: its restart includes repeated work
	for id := range cluster.JobID(6) {
		h.event(100*s, &engine.Event{Type: engine.Stopped, Job: id, Reason: engine.Completed, Done: 30 * time.Second})
	}
	return h
}

// A replay uses the measured costs of stops: the median of the job's own, otherwise what it states,
// otherwise the median over others.
func TestHistoryMeasuresStops(t *testing.T) {
	h := measuredHistory(t)
	wl, _, err := h.Workload()
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []bool{false, true} {
		entries := slices.Clone(wl.Jobs)
		for i := range entries { // the defaults that muster tune fills in
			if c := &entries[i].Job.Checkpoint; !c.None && c.Cost == 0 {
				c.Cost, c.Restart = 30*time.Second, time.Minute
			}
		}
		said := h.Costs.Fill(entries, func(flag string) bool { return given && flag == "checkpoint-cost" })
		want := [][2]time.Duration{{3 * time.Second, 11 * time.Second}, {9 * time.Second, 20 * time.Second},
			{3 * time.Second, 11 * time.Second},
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
		if !strings.Contains(text,
			"costs of a stop: measured, 4 stops of 2 jobs, median 3 s to write a checkpoint; ") ||
			!strings.Contains(text, "measured, 4 stops of 2 jobs, median 11 s to be back where it was") ||
			strings.Contains(text, "that of --checkpoint-cost") != given || strings.Contains(text, "frozen") {
			t.Errorf("given %v: %s", given, text)
		}
	}
	h = measuredHistory(t) // unfinished jobs contribute measurements, too
	h.jobs[0].ended = false
	if wl, _, err = h.Workload(); err != nil {
		t.Fatal(err)
	}
	if h.Costs.Fill(wl.Jobs, func(string) bool { return false }); wl.Jobs[1].Job.Checkpoint.Cost != 3*time.Second {
		t.Errorf("%+v", wl.Jobs[1].Job.Checkpoint)
	}
	none := Costs{jobs: make([]stopCosts, 1), stated: make([]cluster.Checkpoint, 1)}
	if said := none.Fill(wl.Jobs[:1], func(string) bool {
		return false
	}); len(said) != 1 || !strings.Contains(said[0], "assumed, none was measured") {
		t.Errorf("%q", said)
	}
}

// The replay of the current policy is compared with what happened, over the jobs that were under it
// for their whole life.
func TestFit(t *testing.T) {
	h := measuredHistory(t)
	h.jobs[1].under = ruleSet{} // the policy changed during its life
	wl, _, err := h.Workload()
	if err != nil {
		t.Fatal(err)
	}
	run := report.Run{Records: make([]report.Record, len(wl.Jobs))}
	for _, c := range []struct {
		took time.Duration // in the replay; recorded are 100 to 95 s, on average 97.2 under fifo
		far  bool
		off  float64
	}{{90 * time.Second, false, -0.074}, {60 * time.Second, true, -0.383}, {200 * time.Second, true, 1.058}} {
		for i := range run.Records {
			run.Records[i] = report.Record{Submit: wl.Jobs[i].Job.Submit, End: wl.Jobs[i].Job.Submit.Add(c.took),
				Outcome: report.Completed}
		}
		m := h.Fit(&run)
		if m == nil {
			t.Fatal("nothing to compare")
		}
		if m.Jobs != 5 || m.Far() != c.far || math.Abs(m.Off-c.off) > 0.001 {
			t.Errorf("%v: %+v", c.took, m)
		}
	}
	if m := (&Fit{Jobs: 1, Recorded: 0.2, Replayed: 0.1, Off: -0.5}); m.Far() {
		t.Error("a tenth of a second is far")
	}
	h.Header.Policy = "las"
	if h.Fit(&run) != nil {
		t.Error("nothing ran under las")
	}
}
