package tune

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/report"
)

// Blocks are stretches of the history by submission time, which the bootstrap draws with
// replacement to see how far the choice depends on single weeks.
type Blocks struct {
	Length time.Duration // 0: the whole history is one block
	N      int           // number of blocks with jobs
	of     []int32       // block of each job, numbered in order of time
}

// fewest is the smallest number of blocks that allows a bootstrap.
const fewest = 4

const day = 24 * time.Hour

// Divide cuts the history into blocks of the given length; 0: weeks if there are at least four,
// otherwise days if there are at least four, otherwise one block.
func Divide(jobs []*cluster.Job, length time.Duration) Blocks {
	if length > 0 {
		return divide(jobs, length)
	}
	for _, l := range []time.Duration{7 * day, day} {
		if b := divide(jobs, l); b.N >= fewest {
			return b
		}
	}
	return Blocks{N: 1, of: make([]int32, len(jobs))}
}

func divide(jobs []*cluster.Job, length time.Duration) Blocks {
	b := Blocks{Length: length, of: make([]int32, len(jobs))}
	if len(jobs) == 0 {
		return b
	}
	first := jobs[0].Submit
	for _, j := range jobs {
		first = min(first, j.Submit)
	}
	held := map[int64]bool{}
	var order []int64
	nth := func(j *cluster.Job) int64 { return int64(j.Submit.Sub(first) / length) }
	for _, j := range jobs {
		if k := nth(j); !held[k] {
			held[k] = true
			order = append(order, k)
		}
	}
	slices.Sort(order)
	for i, j := range jobs {
		k, _ := slices.BinarySearch(order, nth(j))
		b.of[i] = int32(k)
	}
	b.N = len(order)
	return b
}

// sample holds a figure of jobs so that percentiles over any choice of blocks need no further
// sorting.
type sample struct {
	blocks [][]float64 // sorted
	all    []float64   // sorted, each value once
}

func (s *sample) finish() {
	s.all = nil
	for _, b := range s.blocks {
		sort.Float64s(b)
		s.all = append(s.all, b...)
	}
	sort.Float64s(s.all)
	s.all = slices.Compact(s.all)
}

// p95 is the 95th percentile by nearest rank over blocks, each counted the given number of times.
func (s *sample) p95(times []int) float64 {
	n := 0
	for k, b := range s.blocks {
		n += times[k] * len(b)
	}
	if n == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(0.95 * float64(n)))
	i := sort.Search(len(s.all), func(i int) bool {
		upTo := 0
		for k, b := range s.blocks {
			if times[k] > 0 {
				upTo += times[k] * sort.Search(len(b), func(x int) bool { return b[x] > s.all[i] })
			}
		}
		return upTo >= rank
	})
	return s.all[i]
}

// scores are one candidate's figures, block by block.
type scores struct {
	jct           []float64 // sum, seconds
	ended         []int     // number of jobs in jct
	wait, ratio   sample
	due, late     []int // deadlines; missed ones
	total         int   // jobs that ended by themselves
	jobs          int
	stopped       int // preemptions
	waits, jctAll []float64
}

// score evaluates a run. Jobs that did not end by themselves (completed or failed) have no JCT;
// jobs that never started have no wait; both miss their deadlines.
func score(r *report.Run, b *Blocks) *scores {
	s := &scores{jct: make([]float64, b.N), ended: make([]int, b.N), due: make([]int, b.N), late: make([]int, b.N),
		jobs:  len(r.Records),
		waits: make([]float64, len(r.Records)), jctAll: make([]float64, len(r.Records))}
	s.wait.blocks, s.ratio.blocks = make([][]float64, b.N), make([][]float64, b.N)
	for i := range r.Records {
		rec, k := &r.Records[i], b.of[i]
		s.stopped += int(rec.Preemptions)
		s.waits[i], s.jctAll[i] = math.NaN(), math.NaN()
		if d := r.Jobs[i].Deadline; d > 0 {
			s.due[k]++
			if rec.Outcome != report.Completed || rec.End > d {
				s.late[k]++
			}
		}
		if rec.Outcome == report.Rejected || rec.FirstStart == cluster.Never {
			continue
		}
		s.waits[i] = rec.Waited.Seconds()
		s.wait.blocks[k] = append(s.wait.blocks[k], s.waits[i])
		if ratio, ok := r.FinishTimeRatio(i); ok {
			s.jctAll[i] = rec.End.Sub(rec.Submit).Seconds()
			s.jct[k] += s.jctAll[i]
			s.ended[k]++
			s.total++
			s.ratio.blocks[k] = append(s.ratio.blocks[k], ratio)
		}
	}
	s.wait.finish()
	s.ratio.finish()
	return s
}

// over are the figures with each block counted the given number of times; metrics that the
// objective does not use are 0 unless all are wanted.
func (s *scores) over(times []int, o *Objective, all bool) figures {
	var f figures
	if all || o.Uses(MeanJCT) {
		f[MeanJCT] = ratioOf(s.jct, s.ended, times)
	}
	if all || o.Uses(P95Wait) {
		f[P95Wait] = s.wait.p95(times)
	}
	if all || o.Uses(Fairness) {
		f[Fairness] = s.ratio.p95(times)
	}
	if all || o.Uses(Deadlines) {
		f[Deadlines] = ratioOf(s.late, s.due, times)
	}
	return f
}

// ratioOf is the ratio of two weighted sums; NaN if the divisor is zero.
func ratioOf[T int | float64](sum []T, n []int, times []int) float64 {
	a, c := 0.0, 0
	for k := range times {
		a += float64(times[k]) * float64(sum[k])
		c += times[k] * n[k]
	}
	if c == 0 {
		return math.NaN()
	}
	return a / float64(c)
}
