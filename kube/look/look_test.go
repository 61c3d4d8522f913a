package look

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// When a gang is expected to start is said to be at the earliest: it rests on what those ahead state, and later
// ones may come first.
func TestExpectedAtTheEarliest(t *testing.T) {
	now := cluster.Time(time.Hour)
	spec := &cluster.Job{Tier: cluster.Standard,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	r := &Row{Spec: spec, Submit: 1, State: show.StatePending, Position: 2, Expected: now.Add(time.Hour),
		End: cluster.Never}
	if j := r.Job(now); j.Expected == nil || !j.AtEarliest {
		t.Errorf("expected at %v, at the earliest: %v", j.Expected, j.AtEarliest)
	}
	r.Expected = cluster.Never
	if j := r.Job(now); j.Expected != nil || j.AtEarliest {
		t.Errorf("nothing is expected, but %v", j.Expected)
	}
}
