// Package solve solves the programs by which policies divide GPUs: shares of time x_ij of job i on
// GPU type j. They are linear, or searches over linear ones, and there are few types: a specialised
// interior-point method takes O(jobs x types^2) per step.
//
// It is floating-point arithmetic: callers that decide by it round to integers. Sources: Narayanan
// et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads (OSDI 2020);
// Mehrotra's predictor-corrector method.
package solve

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Shares is the division problem: every job may use at most all of its time, sum_j x_ij <= 1, and
// every type has a capacity, sum_i s_i x_ij <= W_j. Matrices over jobs and types are stored by job:
// x_ij is x[i*len(Capacity)+j].
type Shares struct {
	GPUs     []float64 // s_i > 0: GPUs that job i takes of a type while it runs on it
	Capacity []float64 // W_j >= 0: GPUs of the type
}

// ErrInfeasible means that no shares satisfy the constraints.
var ErrInfeasible = errors.New("solve: no shares satisfy the constraints")

// errStuck means that the method did not converge, which is a defect.
var errStuck = errors.New("solve: the interior-point method did not converge")

// check validates the input.
func (s *Shares) check(what string, matrix []float64) error {
	n, k := len(s.GPUs), len(s.Capacity)
	if n == 0 || k == 0 {
		return fmt.Errorf("solve: %d jobs and %d types; at least one of each is needed", n, k)
	}
	if len(matrix) != n*k {
		return fmt.Errorf("solve: %d %s for %d jobs and %d types; want %d", len(matrix), what, n, k, n*k)
	}
	for i, g := range s.GPUs {
		if !(g > 0) || math.IsInf(g, 0) {
			return fmt.Errorf("solve: job %d takes %g GPUs; more than 0 are possible", i, g)
		}
	}
	for j, w := range s.Capacity {
		if !(w >= 0) || math.IsInf(w, 0) {
			return fmt.Errorf("solve: type %d has %g GPUs; 0 or more are possible", j, w)
		}
	}
	for ij, v := range matrix {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("solve: job %d has %s %g on type %d; 0 or more are possible", ij/k, what, v, ij%k)
		}
	}
	return nil
}

// program is a linear program over the shares, without objective and rows.
func (s *Shares) program(open func(ij int) bool) *linear {
	n, k := len(s.GPUs), len(s.Capacity)
	p := &linear{n: n, k: k, s: s.GPUs, W: make([]float64, k), a: make([]float64, n*k), c: make([]float64, n*k),
		b: make([]float64, n), m: make([]float64, n), row: make([]bool, n), open: make([]bool, n*k),
		count: make([]float64, n)}
	for j, w := range s.Capacity {
		if p.W[j] = w; w == 0 {
			p.W[j] = 1 // no job may use it: any number will do
		}
	}
	for i := range n {
		p.count[i] = 1
		for j := range k {
			p.open[i*k+j] = s.Capacity[j] > 0 && open(i*k+j)
		}
	}
	return p
}

// MaxMin maximises the smallest of the jobs' rates, sum_j rate_ij x_ij, and returns it with the
// shares. Among many optima they are (nearly) the analytic centre. A share is 0 where the rate is.
// ErrInfeasible: a job has a rate on no type.
func (s *Shares) MaxMin(rate []float64) (level float64, x []float64, err error) {
	if err := s.check("rate", rate); err != nil {
		return 0, nil, err
	}
	p := s.program(func(ij int) bool { return rate[ij] > 0 })
	scale, err := s.unit(rate, p)
	if err != nil {
		return 0, nil, err
	}
	for i := range p.n {
		p.row[i], p.b[i] = true, 1
		for j := range p.k {
			p.a[i*p.k+j] = rate[i*p.k+j] / scale
		}
	}
	p.gain = 1
	small, of := merge(p)
	q := newInterior(small)
	if _, ok := q.run(); !ok {
		return 0, nil, errStuck
	}
	x, level = spreadOut(q.tidy(), of, p.k), math.Inf(1)
	for i := range p.n {
		level = min(level, dot(rate[i*p.k:(i+1)*p.k], x[i*p.k:(i+1)*p.k]))
	}
	return level, x, nil
}

// unit is the smallest rate if every job had an equal part of everything: the optimum is not far
// from it.
func (s *Shares) unit(rate []float64, p *linear) (float64, error) {
	unit, total := math.Inf(1), 0.0
	for _, g := range s.GPUs {
		total += g
	}
	for i := range p.n {
		equal := 0.0
		for j := range p.k {
			if p.open[i*p.k+j] {
				equal += rate[i*p.k+j] * min(1/float64(p.k), s.Capacity[j]/total)
			}
		}
		if equal == 0 {
			return 0, fmt.Errorf("solve: job %d has a rate on no type that has GPUs: %w", i, ErrInfeasible)
		}
		unit = min(unit, equal)
	}
	return unit, nil
}

// merge replaces equal jobs by one: they have equal shares in the centre. of is the representative
// of each job.
func merge(p *linear) (small *linear, of []int) {
	k := p.k
	equal := func(x, y int) bool {
		return p.s[x] == p.s[y] && slices.Equal(p.a[x*k:(x+1)*k], p.a[y*k:(y+1)*k])
	}
	small, of = &linear{k: k, W: p.W, gain: p.gain}, make([]int, p.n)
	var first []int                    // the first job of each group of equal ones
	known := make(map[uint64]int, p.n) // looked up, never iterated
	for i := range p.n {
		h := math.Float64bits(p.s[i])
		for _, v := range p.a[i*k : (i+1)*k] {
			h = (h ^ math.Float64bits(v)) * 0x9e3779b97f4a7c15
			h ^= h >> 32
		}
		if at, ok := known[h]; ok && equal(first[at], i) {
			of[i] = at
			small.count[at]++
			continue
		}
		known[h], of[i] = small.n, small.n
		first = append(first, i)
		small.n++
		small.count = append(small.count, 1)
	}
	if small.n == p.n {
		return p, of
	}
	for _, i := range first {
		small.a, small.c, small.open = append(small.a, p.a[i*k:(i+1)*k]...), append(small.c, p.c[i*k:(i+1)*k]...),
			append(small.open, p.open[i*k:(i+1)*k]...)
		small.b, small.m, small.s = append(small.b, p.b[i]), append(small.m, p.m[i]), append(small.s, p.s[i])
		small.row = append(small.row, p.row[i])
	}
	return small, of
}

// spreadOut gives every job the shares of its representative.
func spreadOut(x []float64, of []int, k int) []float64 {
	all := make([]float64, 0, len(of)*k)
	for _, z := range of {
		all = append(all, x[z*k:(z+1)*k]...)
	}
	return all
}
