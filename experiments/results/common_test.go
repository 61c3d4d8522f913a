package results

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/trace"
)

// jobsOf makes one-GPU jobs from submissions and run times in seconds.
func jobsOf(pairs ...[2]int) (list []trace.Entry) {
	for i, p := range pairs {
		list = append(list, trace.Entry{Run: time.Duration(p[1]) * time.Second, Job: cluster.Job{ID: cluster.JobID(i),
			Submit: cluster.Time(p[0]) * cluster.Time(time.Second),
			Tasks:  []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}})
	}
	return list
}

// The bound on one GPU is the shortest remaining time first; on many GPUs the jobs' own run times;
// in between, half the run time after the mean busy time.
func TestLowerBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		jobs []trace.Entry
		gpus float64
		want float64
	}{
		{jobsOf([2]int{0, 10}, [2]int{2, 3}), 1, (13 + 3) / 2.0},
		{jobsOf([2]int{0, 10}, [2]int{2, 3}), 2, 6.5},
		{jobsOf([2]int{0, 10}, [2]int{0, 10}, [2]int{0, 10}), 2, ((2.5 + 7.5 + 12.5) + 15) / 3},
		{nil, 2, 0},
	} {
		if got := LowerBound(c.jobs, c.gpus); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d jobs on %g GPUs: %g, want %g", len(c.jobs), c.gpus, got, c.want)
		}
	}
}

// No policy beats the bound, and some get close to it.
func TestNoPolicyBeatsTheBound(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 2))
	wl := &trace.Workload{}
	at := 0
	for range 120 {
		at += r.IntN(600)
		e := jobsOf([2]int{at, 60 + r.IntN(20000)})[0]
		e.Job.ID, e.Job.Tasks[0].Request.GPUs = cluster.JobID(len(wl.Jobs)), 1+r.IntN(8)
		e.Job.User, e.Job.Queue = "u", "default"
		wl.Jobs = append(wl.Jobs, e)
	}
	c, err := CompareOn(context.Background(), "random", wl, 0.9, policy.Names(), nil)
	if err != nil {
		t.Fatal(err)
	}
	best := math.Inf(1)
	for i := range c.Rows {
		s := &c.Rows[i]
		if s.Completed != c.Jobs {
			t.Errorf("%s: %d of %d jobs completed", s.Policy, s.Completed, c.Jobs)
		}
		if s.JCT.Mean < c.Bound {
			t.Errorf("%s: mean JCT %g is below the bound %g", s.Policy, s.JCT.Mean, c.Bound)
		}
		best = min(best, s.JCT.Mean/c.Bound)
	}
	if best > 1.5 {
		t.Errorf("the best policy is at %.2f of the bound", best)
	}
}
