package report

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Two tenants have half of eight GPUs each: one holds all for ten seconds, twice what it
// deserves; the other waits for as long as it runs, and has half.
func TestLongTerm(t *testing.T) {
	job := func(user string, gpus int) *cluster.Job {
		return &cluster.Job{User: user, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
	}
	at := func(s int) cluster.Time { return cluster.Time(time.Duration(s) * time.Second) }
	r := Run{Capacity: 8000, Last: at(20), Queues: []string{"default"},
		Jobs: []*cluster.Job{job("a", 8), job("b", 4), job("a", 100)},
		Records: []Record{{End: at(10), Outcome: Completed, Held: 8000 * 10_000}, {End: at(20), Outcome: Completed, Held: 4000 * 10_000},
			{Outcome: Rejected}}}
	if v := r.longTerm(); v != 0.5 {
		t.Errorf("%v, want 0.5", v)
	}
	r.Records[1] = Record{Outcome: Unfinished, Held: 4000 * 5_000} // to the end of the run
	if v := r.longTerm(); v != 0.25 {
		t.Errorf("unfinished: %v, want 0.25", v)
	}
	r.Queues, r.Records[1].Queue = []string{"default", "other"}, 1
	if v := r.longTerm(); v != 0.25 {
		t.Errorf("by queues: %v, want 0.25", v)
	}
	if r.Records[1].Queue = 0; r.longTerm() != 0 {
		t.Errorf("one tenant: %v", r.longTerm())
	}
}
