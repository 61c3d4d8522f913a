package sched

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Jobs that are submitted together resemble one another: sweeps, retries, the same program on the
// next data. So completed jobs predict jobs of their size that were submitted around the same time,
// best those of the same user and name.

// Size is statistics of completed jobs of similar size, in GPUs rounded down to a power of two.
type Size struct {
	Class int               // 0: less than a GPU, 1: one, 2: two and three, 3: four to seven ...
	Jobs  []Earlier         // in the order of submission
	Runs  [16]time.Duration // the medians of the sixteenths of their run times, ascending; zero without jobs
}

// SizeClass is the class of Size for that many milli-GPU.
func SizeClass(milli cluster.Milli) int { return bits.Len64(uint64(max(0, milli) / cluster.Whole)) }

// newSize computes the statistics of jobs.
func newSize(class int, jobs []Earlier) Size {
	s := Size{Class: class, Jobs: slices.Clone(jobs)}
	slices.SortStableFunc(s.Jobs, func(a, b Earlier) int { return cmp.Compare(a.Submit, b.Submit) })
	runs := make([]time.Duration, len(jobs))
	for i := range jobs {
		runs[i] = jobs[i].Ran
	}
	slices.Sort(runs)
	for i := range s.Runs {
		if n := len(runs); n > 0 {
			s.Runs[i] = runs[(2*i+1)*n/(2*len(s.Runs))]
		}
	}
	return s
}

// OrderSizes groups completed jobs by size.
func (p *Past) OrderSizes(jobs []Earlier) {
	p.All = newSize(0, jobs)
	by := map[int][]Earlier{}
	classes := []int{}
	for i := range jobs {
		c := SizeClass(jobs[i].Milli)
		if by[c] == nil {
			classes = append(classes, c)
		}
		by[c] = append(by[c], jobs[i])
	}
	slices.Sort(classes)
	for _, c := range classes {
		p.Sizes = append(p.Sizes, newSize(c, by[c]))
	}
}

// Like returns the statistics of jobs of that many milli-GPU: those of their own size if at least
// that many completed, else those of all jobs.
func (p *Past) Like(milli cluster.Milli, least int) *Size {
	c := SizeClass(milli)
	i, ok := slices.BinarySearchFunc(p.Sizes, c, func(s Size, c int) int { return cmp.Compare(s.Class, c) })
	if ok && len(p.Sizes[i].Jobs) >= least {
		return &p.Sizes[i]
	}
	return &p.All
}

// Near appends to buf the run times of the at most n jobs that are most similar: first those of the
// same user and name, then of the same user, then all others; within each group those submitted
// nearest in time, the earlier of two equally near. Their order is not significant.
func (s *Size) Near(buf []time.Duration, j *cluster.Job, n int) []time.Duration {
	var kin [3][]time.Duration // same user and name, same user, others
	b := sort.Search(len(s.Jobs), func(i int) bool { return s.Jobs[i].Submit >= j.Submit })
	a := b - 1
	for len(kin[0]) < n && (a >= 0 || b < len(s.Jobs)) {
		var c *Earlier
		if b == len(s.Jobs) || a >= 0 && j.Submit-s.Jobs[a].Submit <= s.Jobs[b].Submit-j.Submit {
			c, a = &s.Jobs[a], a-1
		} else {
			c, b = &s.Jobs[b], b+1
		}
		k := 2
		switch {
		case c.User == j.User && c.Name == j.Name:
			k = 0
		case c.User == j.User:
			k = 1
		}
		if len(kin[k]) < n {
			kin[k] = append(kin[k], c.Ran)
		}
	}
	for _, l := range kin {
		buf = append(buf, l[:min(len(l), n)]...)
		n -= min(len(l), n)
	}
	return buf
}

// Earlier is what is kept of a completed job if the policy learns from earlier jobs.
type Earlier struct {
	User   string        `json:"user,omitempty"`   // if the policy predicts, or uses similar jobs
	Name   string        `json:"name,omitempty"`   // likewise
	Submit cluster.Time  `json:"submit,omitempty"` // if the policy uses similar jobs
	Milli  cluster.Milli `json:"milli,omitempty"`
	Ran    time.Duration `json:"ran"`    // wall time on devices, over all runs
	Served int64         `json:"served"` // milli-GPU-milliseconds
}

// Past is statistics of recently completed jobs. It is updated once per period of the policy
// (Traits.Learns).
type Past struct {
	Services []int64       // total service of each job, in milli-GPU-milliseconds, ascending
	Sums     []int64       // Sums[i] is the sum of the first i services; one element longer than Services
	Median   time.Duration // of their run times; 0: no job has completed yet
	Sizes    []Size        // if the policy uses similar jobs (Traits.Alike): by class, ascending
	All      Size          // likewise, of all sizes
}

// NewPast sorts services, given in milli-GPU-milliseconds. If their sum would overflow, the largest
// are capped.
func NewPast(services []int64, runs []time.Duration) Past {
	p := Past{Services: slices.Clone(services), Sums: make([]int64, 1, len(services)+1)}
	slices.Sort(p.Services)
	for i, s := range p.Services {
		p.Services[i] = min(s, math.MaxInt64/int64(len(services)))
		p.Sums = append(p.Sums, p.Sums[i]+p.Services[i])
	}
	if runs = slices.Clone(runs); len(runs) > 0 {
		slices.Sort(runs)
		p.Median = runs[(len(runs)-1)/2]
	}
	return p
}

// Past returns statistics of completed jobs, as of the policy's last period.
func (v View) Past() *Past { return v.w.Past }
