package foresight

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// The latest runs of the same user, name and size give the estimate; what a user
// states stays.
func TestHistory(t *testing.T) {
	spec := func(user, name string, gpus int) *cluster.Job {
		return &cluster.Job{User: user, Name: name,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
	}
	for _, name := range []string{"train", ""} {
		x := &Experience{}
		ann := func() *cluster.Job { return spec("ann", name, 2) }
		for i := range 2 {
			x.Runs.Add(ann(), time.Duration(i+1)*time.Minute)
		}
		if x.Guess(ann()) {
			t.Error("two runs say something")
		}
		for i := 2; i < 11; i++ {
			x.Runs.Add(ann(), time.Duration(i+1)*time.Minute)
		}
		for _, other := range []*cluster.Job{spec("bob", name, 2), spec("ann", "eval", 2), spec("ann", name, 4)} {
			if x.Guess(other) {
				t.Errorf("%s's %q on %d GPUs is another job, but gets %v", other.User, other.Name, other.GPUs(),
					other.Estimate)
			}
		}
		if again := ann(); !x.Guess(again) || again.Estimate != 6*time.Minute {
			t.Errorf("the guess is %v", again.Estimate)
		}
		own := ann()
		if own.Estimate = time.Hour; x.Guess(own) || own.Estimate != time.Hour {
			t.Errorf("what the user stated became %v", own.Estimate)
		}
		for range 50 {
			x.Runs.Add(ann(), time.Hour)
		}
		x.Runs.Add(ann(), time.Minute)
		if again := ann(); !x.Guess(again) || again.Estimate != time.Hour {
			t.Errorf("of the latest fifty the median is %v", again.Estimate)
		}
		for range 24 { // with those of a minute before them 25 of fifty: the others are an hour
			x.Runs.Add(ann(), 2*time.Minute)
		}
		if again := ann(); !x.Guess(again) || again.Estimate != time.Hour {
			t.Errorf("25 of fifty are an hour and longer, the guess is %v", again.Estimate)
		}
		if x.Runs.Add(ann(), 2*time.Minute); !x.Guess(ann()) || x.Runs.Usual(ann()) != 2*time.Minute {
			t.Errorf("26 of fifty are two minutes at most, the guess is %v", x.Runs.Usual(ann()))
		}
	}
}
