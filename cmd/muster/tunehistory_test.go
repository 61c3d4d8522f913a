package main

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// What the daemon found of a job that saves nothing holds in the replays of its history, too,
// unless the job reported checkpoints of its own.
func TestHistorySavesNothing(t *testing.T) {
	h := &pastJobs{at: map[cluster.JobID]int{}}
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
	wl, _, err := h.workload()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if got := wl.Jobs[i].Job.Checkpoint.None; got != want {
			t.Errorf("job %d saves nothing: %v, want %v", i, got, want)
		}
	}
}

// A job whose start and end a busy daemon hears of in one step ran, however short.
func TestStartAndEndAtOnce(t *testing.T) {
	h := &pastJobs{at: map[cluster.JobID]int{}}
	spec := cluster.Job{ID: 7, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	now := cluster.Time(0).Add(1)
	h.event(now, &engine.Event{Type: engine.Submitted, Job: 7, Spec: &spec})
	h.event(now, &engine.Event{Type: engine.Started, Job: 7})
	h.event(now, &engine.Event{Type: engine.Stopped, Job: 7, Reason: engine.Completed})
	wl, _, err := h.workload()
	if err != nil || len(wl.Jobs) != 1 || wl.Jobs[0].Run <= 0 {
		t.Errorf("%+v, %v", wl, err)
	}
}
