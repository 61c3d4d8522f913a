package solve

import (
	"fmt"
	"math"
	"slices"
)

// Proportional is each job's GPU time of every type if all jobs have an equal part of the cluster
// all the time: W_j / sum W.
func (s *Shares) Proportional() []float64 {
	total := 0.0
	for _, w := range s.Capacity {
		total += w
	}
	part := make([]float64, len(s.Capacity))
	for j, w := range s.Capacity {
		part[j] = w / max(total, 1e-300)
	}
	return part
}

// Isolated is each job's GPU time if every one of n jobs has an n-th of each type to itself: W_j /
// (n s_i), at most all of its time.
func (s *Shares) Isolated() []float64 {
	k, n := len(s.Capacity), float64(len(s.GPUs))
	x := make([]float64, 0, len(s.GPUs)*k)
	for _, g := range s.GPUs {
		sum := 0.0
		for _, w := range s.Capacity {
			x = append(x, w/(n*g))
			sum += w / (n * g)
		}
		for j := len(x) - k; j < len(x); j++ {
			x[j] /= max(1, sum)
		}
	}
	return x
}

// Makespan minimises the time in which all jobs end if shares stay as they are: left is work, speed
// is work per time; each job has some of both.
func (s *Shares) Makespan(speed, left []float64) (span float64, x []float64, err error) {
	rate, err := s.perJob(speed, left, func(i int) float64 { return 1 / left[i] })
	if err != nil {
		return 0, nil, err
	}
	level, x, err := s.MaxMin(rate)
	return 1 / level, x, err
}

// perJob multiplies each job's speeds by a factor of its own.
func (s *Shares) perJob(speed, left []float64, by func(i int) float64) ([]float64, error) {
	if err := s.check("speed", speed); err != nil {
		return nil, err
	}
	k, rate := len(s.Capacity), make([]float64, len(speed))
	if len(left) != len(s.GPUs) {
		return nil, fmt.Errorf("solve: work of %d jobs for %d", len(left), len(s.GPUs))
	}
	for i, n := range left {
		if !(n > 0) || math.IsInf(n, 0) {
			return nil, fmt.Errorf("solve: job %d has %g work left; more than 0 is possible", i, n)
		}
		f := by(i)
		for j := range k {
			rate[i*k+j] = speed[i*k+j] * f
		}
	}
	return rate, nil
}

// FinishTime minimises the largest finish-time fairness, rho_i = (age_i + left_i/z_i) / alone_i
// with z_i = sum_j speed_ij x_ij: the time from submission to end if shares stay as they are,
// relative to that on a cluster of the job's own. Shares reach a given rho if a max-min program has
// a value of at least 1; its solution has a better rho, and the iteration converges to the optimum,
// to 1e-7.
func (s *Shares) FinishTime(speed, left, age, alone []float64) (rho float64, x []float64, err error) {
	x, k := s.Isolated(), len(s.Capacity)
	worst := func() (rho float64) {
		for i := range left {
			z := dot(speed[i*k:(i+1)*k], x[i*k:(i+1)*k])
			rho = max(rho, (age[i]+left[i]/max(z, 1e-300))/alone[i])
		}
		return rho
	}
	if _, err := s.perJob(speed, left, func(int) float64 { return 1 }); err != nil {
		return 0, nil, err
	}
	for i := range left {
		if !(alone[i] > 0) || !(age[i] >= 0) {
			return 0, nil, fmt.Errorf(
				"solve: job %d has age %g and would take %g alone; want 0 or more, and more than 0", i, age[i],
				alone[i])
		}
	}
	rho = worst()
	for range 200 {
		rate, _ := s.perJob(speed, left, func(i int) float64 { return (rho*alone[i] - age[i]) / left[i] })
		_, y, err := s.MaxMin(rate)
		if err != nil {
			return 0, nil, err
		}
		before := x
		x = y
		next := worst()
		if next >= rho*(1-1e-7) {
			if next > rho {
				x, next = before, rho
			}
			return next, x, nil
		}
		rho = next
	}
	return 0, nil, errStuck
}

// Most maximises sum_ij value_ij x_ij. If least is not nil, sum_j speed_ij x_ij is at least least_i
// (0: any). ErrInfeasible: no shares satisfy that.
func (s *Shares) Most(value, speed, least []float64) (total float64, x []float64, err error) {
	if err := s.check("value", value); err != nil {
		return 0, nil, err
	}
	p := s.program(func(ij int) bool {
		return value[ij] > 0 || least != nil && least[ij/len(s.Capacity)] > 0 && speed[ij] > 0
	})
	high := 0.0
	for _, v := range value {
		high = max(high, v)
	}
	if high == 0 {
		return 0, make([]float64, len(value)), nil
	}
	for ij, v := range value {
		p.c[ij] = v / high
	}
	if least != nil {
		if err := s.floors(p, speed, least); err != nil {
			return 0, nil, err
		}
	}
	q := newInterior(p)
	if _, ok := q.run(); !ok {
		return 0, nil, errStuck
	}
	x = q.tidy()
	return dot(value, x), x, nil
}

// floors adds the rows of Most, scaled by the required speeds.
func (s *Shares) floors(p *linear, speed, least []float64) error {
	if err := s.check("speed", speed); err != nil {
		return err
	}
	k := p.k
	some := &Shares{Capacity: s.Capacity}
	var rate []float64
	for i, m := range least {
		if m <= 0 {
			continue
		}
		p.row[i] = true
		some.GPUs = append(some.GPUs, s.GPUs[i])
		for j := range k {
			p.a[i*k+j] = speed[i*k+j] / m
			rate = append(rate, p.a[i*k+j])
		}
	}
	if rate == nil {
		return nil
	}
	level, _, err := some.MaxMin(rate)
	if err != nil {
		return err
	}
	if level < 1-1e-6 {
		return ErrInfeasible
	}
	for i := range p.m {
		if p.row[i] { // slightly relaxed, so that the feasible set has an interior
			p.m[i] = min(1, level) * (1 - 1e-7)
		}
	}
	return nil
}

// WaterFill is lexicographic max-min: it maximises the smallest rate_i/weight_i, then the smallest
// of those that can still rise, and so on. It returns the jobs' rates, to 1e-5, with the shares;
// each job is an entity of a hierarchy.
func (s *Shares) WaterFill(rate, weight []float64) (level, x []float64, err error) {
	entities := &Entities{Weight: weight, Parent: slices.Repeat([]int{-1}, len(weight)),
		FIFO: make([]bool, len(weight))}
	for i := range weight {
		entities.Of = append(entities.Of, i)
	}
	return s.Hierarchy(rate, entities)
}
