//go:build linux

package local

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Earlier runs of the same user, name and size give the estimate; what a user
// states stays.
func TestHistory(t *testing.T) {
	spec := func(user, name string, gpus int) *cluster.Job {
		return &cluster.Job{User: user, Name: name, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
	}
	h := history{}
	ann := spec("ann", "train", 2)
	for i := range 2 {
		h.add(ann, time.Duration(i+1)*time.Minute)
	}
	if d := h.of(ann, 0, 50); d != 0 {
		t.Errorf("two runs say %v", d)
	}
	for i := 2; i < 11; i++ {
		h.add(ann, time.Duration(i+1)*time.Minute)
	}
	for percent, want := range map[int]time.Duration{10: 2 * time.Minute, 50: 6 * time.Minute, 90: 10 * time.Minute} {
		if d := h.of(ann, 0, percent); d != want {
			t.Errorf("%d %% of runs of 1 to 11 minutes: %v, not %v", percent, d, want)
		}
	}
	if d := h.of(ann, 9*time.Minute, 10); d != 10*time.Minute {
		t.Errorf("after 9 minutes the shortest is %v", d)
	}
	if d := h.of(ann, time.Hour, 50); d != 0 {
		t.Errorf("a job that outlasts all earlier ones: %v", d)
	}
	for _, other := range []*cluster.Job{spec("bob", "train", 2), spec("ann", "eval", 2), spec("ann", "train", 4)} {
		if d := h.of(other, 0, 50); d != 0 {
			t.Errorf("%s's %s on %d GPUs is another job, but gets %v", other.User, other.Name, other.GPUs(), d)
		}
	}
	m := &Machine{history: h}
	if again := spec("ann", "train", 2); !m.guess(again) || again.Estimate != 6*time.Minute {
		t.Errorf("the guess is %v", again.Estimate)
	}
	stated := spec("ann", "train", 2)
	if stated.Estimate = time.Hour; m.guess(stated) || stated.Estimate != time.Hour {
		t.Errorf("what the user stated became %v", stated.Estimate)
	}
	for range 2 * mostRuns {
		h.add(ann, time.Hour)
	}
	if n := len(h[keyOf(ann)]); n != mostRuns || h.of(ann, 0, 1) != time.Hour {
		t.Errorf("%d runs are kept", n)
	}
}
