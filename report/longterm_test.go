package report

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Two tenants deserve half of eight GPUs each: one holds all of them for ten seconds, twice what it
// deserves; the other waits for as long as it runs, and has half.
func TestLongTerm(t *testing.T) {
	job := func(user string, gpus int) *cluster.Job {
		return &cluster.Job{User: user, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
	}
	at := func(s int) cluster.Time { return cluster.Time(time.Duration(s) * time.Second) }
	r := Run{Capacity: 8000, Last: at(20), Queues: []string{"default"},
		Jobs: []*cluster.Job{job("a", 8), job("b", 4), job("a", 100)},
		Records: []Record{{End: at(10), Outcome: Completed, Held: 8000 * 10_000},
			{End: at(20), Outcome: Completed, Held: 4000 * 10_000},
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

// ASTRAEA (TPDS'22), vector 3: a tenant with a quota of four of eight GPUs requests and holds
// eight: F = 2, a benefit. The other one requests and holds two all the time: F = 1.
func TestShareOf(t *testing.T) {
	r := twoTenants()
	if f := r.shareOf(); len(f) != 2 || f[0] != 2 || f[1] != 1 {
		t.Errorf("%v, want 2 and 1", f)
	}
	// An hour of b's old GPUs counts as a quarter: of the eight new and eight old ones, ten by
	// weight, a's part is five. It holds eight new ones. b's jobs may use any model; they request
	// two, which count 1.25 on average, and hold two old ones, or half.
	r.Capacity, r.Kinds = 16_000, []Kind{{"A100-80GB", 8, 1000}, {"T4-16GB", 8, 250}}
	r.Records[0].Worth, r.Records[1].Worth = r.Records[0].Held, r.Records[1].Held/4
	r.Jobs[0].GPUTypes = []string{"A100"}
	if f := r.shareOf(); f[0] != 1.6 || f[1] != 0.4 {
		t.Errorf("with weights %v, want 1.6 and 0.4", f)
	}
	if v := r.longTerm(); v != 0.4 {
		t.Errorf("least %v, want 0.4", v)
	}
	r.Jobs[1].GPUTypes = []string{"T4-16GB"} // it requests no other model, so it has what it deserves
	if f := r.shareOf(); f[1] != 1 {
		t.Errorf("of T4s only %v, want 1", f[1])
	}
	r.Kinds[1].Weight = 1000 // all alike, as without weights
	r.Records[1].Worth = r.Records[1].Held
	was := r.shareOf()
	r.Kinds = nil
	if f := r.shareOf(); f[0] != was[0] || f[1] != was[1] {
		t.Errorf("%v, without weights %v", was, f)
	}
}

// twoTenants hold eight and two of eight GPUs for ten seconds.
func twoTenants() Run {
	at := cluster.Time(10 * time.Second)
	job := func(user string, gpus int) *cluster.Job {
		return &cluster.Job{User: user, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
	}
	return Run{Capacity: 8000, Last: at, Queues: []string{"default"}, Jobs: []*cluster.Job{job("a", 8), job("b", 2)},
		Records: []Record{{End: at, Outcome: Completed, Held: 8000 * 10_000},
			{End: at, Outcome: Completed, Held: 2000 * 10_000}}}
}
