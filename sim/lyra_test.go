package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// lyraJobs draws elastic jobs with tasks of several GPUs and arbitrary curves: some lose speed with
// more tasks.
func lyraJobs(r *rand.Rand, n int) (curve, engine.Batch) {
	speeds, b := curve{}, engine.Batch{Now: 1}
	for i := range n {
		id, least, gpus := cluster.JobID(i), 1+r.IntN(3), 1+r.IntN(3)
		most := least + r.IntN(5)
		speeds[id] = make([]int64, most+1)
		for k := 1; k <= most; k++ {
			speeds[id][k] = 100_000 + r.Int64N(int64(k)*1_000_000)
		}
		j := &cluster.Job{ID: id, User: "u", Tier: cluster.Standard, Submit: 1,
			Estimate: time.Duration(100+r.IntN(5000)) * time.Second,
			Elastic:  cluster.Elastic{Min: least, Max: most},
			Tasks:    []cluster.TaskSet{{Count: least, Request: cluster.Request{GPUs: gpus}}}}
		b.Events = append(b.Events, engine.Event{Type: engine.Submitted, Job: id, Spec: j})
	}
	return speeds, b
}

// lyraBest is the least total time of all jobs that are allocated, by exhaustive search over their
// sizes.
func lyraBest(speeds curve, jobs []*cluster.Job, free int) float64 {
	if len(jobs) == 0 {
		return 0
	}
	j, best := jobs[0], math.Inf(1)
	for k := j.Elastic.Min; k <= j.Elastic.Max; k++ {
		if g := (k - j.Elastic.Min) * j.Tasks[0].Request.GPUs; g <= free {
			best = min(best, lyraTime(speeds, j, k)+lyraBest(speeds, jobs[1:], free-g))
		}
	}
	return best
}

func lyraTime(speeds curve, j *cluster.Job, k int) float64 {
	return j.Estimate.Seconds() * 1e6 / float64(speeds[j.ID][k])
}

// Invariants of Lyra (EuroSys'23): allocations stay within capacity; a job without GPUs is not
// shorter than an allocated one, or would not fit next to it; an allocated job has at least its
// minimum; and no other sizes of these jobs make the sum of their times smaller.
func TestLyraShares(t *testing.T) {
	surplus, without := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 17))
		speeds, b := lyraJobs(r, 1+r.IntN(5))
		capacity := 9 + r.IntN(20)
		got := sharesOf(t, "lyra", capacity, speeds, b)
		var jobs, served []*cluster.Job
		for i := range b.Events {
			jobs = append(jobs, b.Events[i].Spec)
		}
		slices.SortStableFunc(jobs, func(a, b *cluster.Job) int {
			if lyraTime(speeds, a, a.Elastic.Min) < lyraTime(speeds, b, b.Elastic.Min) {
				return -1
			}
			return 1
		})
		free, sum := capacity, 0.0
		for _, j := range jobs {
			if g := j.Elastic.Min * j.Tasks[0].Request.GPUs; g <= free {
				free -= g
				served = append(served, j)
			} else if without++; got[j.ID] != 0 {
				t.Errorf("seed %d: job %d has %d tasks, although shorter ones leave too little", seed, j.ID, got[j.ID])
			}
		}
		taken := 0
		for _, j := range served {
			k := got[j.ID]
			if k < j.Elastic.Min {
				t.Fatalf("seed %d: job %d has %d tasks, its minimum is %d", seed, j.ID, k, j.Elastic.Min)
			}
			taken += k * j.Tasks[0].Request.GPUs
			sum += lyraTime(speeds, j, k)
			surplus += k - j.Elastic.Min
		}
		if best := lyraBest(speeds, served, free); math.Abs(sum-best) > 1e-9*best || taken > capacity {
			t.Errorf("seed %d: the jobs take %g s on %d of %d GPUs, the best sizes %g s", seed, sum, taken, capacity,
				best)
		}
	}
	if surplus < 100 || without < 100 {
		t.Errorf("%d tasks above the minimum, %d jobs without GPUs", surplus, without)
	}
}

// Beyond the number of sizes in the knob, sizes in between are still used for the remainder.
func TestLyraSizes(t *testing.T) {
	speeds, b := curve{}, engine.Batch{Now: 1}
	for id := range cluster.JobID(2) {
		speeds[id] = make([]int64, 101)
		for k := range speeds[id] {
			speeds[id][k] = int64(k) * 1_000_000
		}
		j := &cluster.Job{ID: id, User: "u", Tier: cluster.Standard, Submit: 1, Estimate: time.Hour,
			Elastic: cluster.Elastic{Min: 1, Max: 100},
			Tasks:   []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
		b.Events = append(b.Events, engine.Event{Type: engine.Submitted, Job: id, Spec: j})
	}
	for policy, want := range map[string][2]int{"lyra": {21, 19}, "lyra:sizes=99": {20, 20}, "lyra:sizes=3": {39, 1},
		"lyra:sizes=1": {39, 1}} {
		if got := sharesOf(t, policy, 40, speeds, b); got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s: %v, want %v", policy, got, want)
		}
	}
}
