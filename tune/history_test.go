package tune

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/trace"
)

// A job that the daemon found to save nothing saves nothing in replays of its history, unless it
// reported checkpoints of its own.
func TestHistorySavesNothing(t *testing.T) {
	h := NewHistory()
	for id := range 3 {
		id := cluster.JobID(id)
		spec := cluster.Job{ID: id, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
		h.event(0, &engine.Event{Type: engine.Submitted, Spec: &spec})
		h.event(0, &engine.Event{Type: engine.Started, Job: id})
		if id > 0 {
			h.event(1, &engine.Event{Type: engine.Progress, Job: id, Saves: engine.SavesNothing})
		}
		if id > 1 {
			h.event(1, &engine.Event{Type: engine.Progress, Job: id, Saved: time.Second})
		}
		h.event(2, &engine.Event{Type: engine.Stopped, Job: id, Reason: engine.Completed, Done: time.Minute})
	}
	wl, _, err := h.Workload()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if got := wl.Jobs[i].Job.Checkpoint.None; got != want {
			t.Errorf("job %d saves nothing: %v, want %v", i, got, want)
		}
	}
}

// A job whose start and end a busy daemon learns of in one step counts as having run, however
// short.
func TestStartAndEndAtOnce(t *testing.T) {
	h := NewHistory()
	spec := cluster.Job{ID: 7, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	now := cluster.Time(0).Add(1)
	h.event(now, &engine.Event{Type: engine.Submitted, Job: 7, Spec: &spec})
	h.event(now, &engine.Event{Type: engine.Started, Job: 7})
	h.event(now, &engine.Event{Type: engine.Stopped, Job: 7, Reason: engine.Completed})
	wl, _, err := h.Workload()
	if err != nil || len(wl.Jobs) != 1 || wl.Jobs[0].Run <= 0 {
		t.Errorf("%+v, %v", wl, err)
	}
}

// A running job that is cancelled has ended, although its driver reports that the engine stopped
// it; so has a job that is cancelled while it waits again.
func TestCancelledHasEnded(t *testing.T) {
	h := NewHistory()
	minute := cluster.Time(time.Minute)
	for id := range cluster.JobID(3) {
		h.event(0, &engine.Event{Type: engine.Submitted,
			Spec: &cluster.Job{ID: id, Name: "j",
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}})
		h.event(minute, &engine.Event{Type: engine.Started, Job: id})
	}
	h.event(2*minute, &engine.Event{Type: engine.Cancelled, Job: 0})
	h.event(3*minute, &engine.Event{Type: engine.Stopped, Job: 0, Reason: engine.Preempted})
	h.event(3*minute, &engine.Event{Type: engine.Stopped, Job: 1, Reason: engine.Preempted, Done: time.Minute})
	h.event(4*minute, &engine.Event{Type: engine.Cancelled, Job: 1})
	h.event(4*minute, &engine.Event{Type: engine.Cancelled, Job: 2}) // it has not stopped yet
	wl, _, err := h.Workload()
	if err != nil {
		t.Fatal(err)
	}
	if len(wl.Jobs) != 2 || wl.Jobs[0].Run != 2*time.Minute || wl.Jobs[1].Run != time.Minute ||
		wl.Jobs[0].Outcome != trace.Cancelled || wl.Jobs[1].Outcome != trace.Cancelled {
		t.Errorf("the history holds %+v", wl.Jobs)
	}
	if len(h.Notes) != 1 || !strings.Contains(h.Notes[0], "1 jobs that have not ended, 0 that never ran") {
		t.Errorf("notes: %q", h.Notes)
	}
}

// A job that ran with other tasks than it asked for is replayed at the size that it had longest, with the GPU time that
// it had; one that was found running is replayed, too.
func TestHistoryReshaped(t *testing.T) {
	h := NewHistory()
	minute := cluster.Time(time.Minute)
	gpus := func(tasks int) []cluster.TaskSet {
		return []cluster.TaskSet{{Count: tasks, Request: cluster.Request{GPUs: 2}}}
	}
	reshaped := func(at cluster.Time, tasks int) {
		h.event(at, &engine.Event{Type: engine.JobReshaped, Reshape: &engine.Reshape{Tasks: gpus(tasks)}})
	}
	h.event(0, &engine.Event{Type: engine.Submitted, Spec: &cluster.Job{Tasks: gpus(4)}})
	h.event(minute, &engine.Event{Type: engine.Started})
	reshaped(11*minute, 3)
	reshaped(41*minute, 4)
	h.event(51*minute, &engine.Event{Type: engine.Stopped, Reason: engine.Completed, Done: 50 * time.Minute})
	found := &engine.JobRecord{Spec: &cluster.Job{ID: 1, Tasks: gpus(1)}}
	found.Started = 52 * minute
	h.event(55*minute, &engine.Event{Type: engine.Adopted, Job: 1, Record: found})
	h.event(60*minute, &engine.Event{Type: engine.Stopped, Job: 1, Reason: engine.Completed})
	wl, _, err := h.Workload()
	if err != nil || len(wl.Jobs) != 2 {
		t.Fatalf("%+v, %v", wl, err)
	}
	// 20 minutes with 8 GPUs and 30 minutes with 6 are 340 GPU minutes
	one, two := &wl.Jobs[0], &wl.Jobs[1]
	if one.Job.GPUs() != 6 || one.Run.Round(time.Second) != 56*time.Minute+40*time.Second {
		t.Errorf("it is replayed with %d GPUs for %v", one.Job.GPUs(), one.Run)
	}
	if two.Run != 8*time.Minute || two.Job.Submit != 52*minute {
		t.Errorf("what was found running is submitted at %v and runs for %v", two.Job.Submit, two.Run)
	}
}
