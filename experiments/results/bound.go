package results

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-gpu/muster/trace"
)

// task is a job in the computation of a bound.
type task struct {
	submit float64 // seconds
	run    float64 // seconds on the requested GPUs
	work   float64 // ... multiplied by the number of GPUs
}

// LowerBound is a lower bound, in seconds, of the mean completion time under any scheduler on a
// number of equal GPUs, even one that knows everything, stops and moves jobs at no cost and may
// give each job any part of a GPU up to its request. It is the largest of three relaxations:
//
//   - every job alone: the mean run time;
//   - all GPUs as one machine that works on any job at once, where the shortest
//     remaining work first is the best (Schrage 1968);
//   - the same machine, where the mean busy times of jobs add up to least if the
//     smallest work goes first, preemptively (Goemans 1997); a job that cannot run
//     faster than on its own GPUs ends at least half its run time after its mean
//     busy time.
func LowerBound(entries []trace.Entry, gpus float64) float64 {
	list, alone := make([]task, 0, len(entries)), 0.0
	for i := range entries {
		e := &entries[i]
		t := task{e.Job.Submit.Sub(0).Seconds(), e.Run.Seconds(), 0}
		t.work = t.run * float64(e.Job.GPUMilli()) / 1000
		list = append(list, t)
		alone += t.run
	}
	if len(list) == 0 {
		return 0
	}
	slices.SortStableFunc(list, func(a, b task) int { return cmp.Compare(a.submit, b.submit) })
	ends, _ := oneMachine(list, gpus, func(t *task, left float64) float64 { return left })
	_, busy := oneMachine(list, gpus, func(t *task, _ float64) float64 { return t.work })
	half := alone / 2
	return max(alone, ends, busy+half) / float64(len(list))
}

// oneMachine works on the job with the lowest key first, at the speed of all GPUs. It returns the
// sums of the jobs' ends and of their mean busy times, each less their submissions.
func oneMachine(list []task, speed float64, key func(t *task, left float64) float64) (ends, busy float64) {
	left := make([]float64, len(list))
	var open []int
	now, next := 0.0, 0
	for next < len(list) || len(open) > 0 {
		if len(open) == 0 {
			now = max(now, list[next].submit)
		}
		for next < len(list) && list[next].submit <= now {
			left[next] = list[next].work
			open = append(open, next)
			next++
		}
		best := slices.MinFunc(open, func(a, b int) int {
			return cmp.Compare(key(&list[a], left[a]), key(&list[b], left[b]))
		})
		until := math.Inf(1)
		if next < len(list) {
			until = list[next].submit
		}
		end := min(until, now+left[best]/speed)
		part := (end - now) * speed
		if list[best].work > 0 {
			busy += part / list[best].work * (now + end) / 2
		} else {
			busy += now
		}
		if left[best] -= part; end < until || left[best] <= 1e-9*list[best].work {
			ends += end - list[best].submit
			busy -= list[best].submit
			open = slices.DeleteFunc(open, func(i int) bool { return i == best })
		}
		now = end
	}
	return ends, busy
}
