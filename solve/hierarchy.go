package solve

import (
	"fmt"
	"math"
	"slices"
)

// Entities say whose jobs are whose, and how an entity divides among its own.
type Entities struct {
	Of     []int     // each job's entity
	Weight []float64 // of each entity: more than 0
	FIFO   bool      // the first of an entity's jobs that can have more gets it all; else all alike
}

// Hierarchy is water filling over entities: their levels rise together, each by its
// weight, which its jobs have in equal parts, or which the first of them has; who can
// have no more stays where it is, and leaves its part to the others of its entity. It
// returns the jobs' rates, to 1e-4, with the shares. Source: Gavel (OSDI'20), section
// 4.3. It takes a program for every job or so.
func (s *Shares) Hierarchy(rate []float64, who *Entities) (level, x []float64, err error) {
	if err := s.check("rate", rate); err != nil {
		return nil, nil, err
	}
	if err := who.check(len(s.GPUs)); err != nil {
		return nil, nil, err
	}
	n := len(s.GPUs)
	one, final, floor := slices.Repeat([]float64{1}, n), make([]bool, n), make([]float64, n)
	p := &Packing{Shares: *s, Jobs: one, Speed: rate}
	for {
		weight, open := who.weigh(final)
		if !open {
			return p.Rates(x, nil), x, nil
		}
		from := slices.Clone(floor) // the level is counted from -1, so that it is well above 0 where there is little to gain: errors are relative to it
		q := newPacked(p, one, nil, weight)
		for i := range n {
			if q.columns[i] == 0 {
				return nil, nil, fmt.Errorf("solve: job %d has a rate on no type that has GPUs: %w", i, ErrInfeasible)
			}
			from[i] -= weight[i] * q.unit
		}
		q = newPacked(p, one, from, weight)
		y, ok := q.run()
		if !ok {
			return nil, nil, errStuck
		}
		who.settle(q, weight, floor, final)
		x, _ = q.tidy(y)
	}
}

func (w *Entities) check(jobs int) error {
	if len(w.Of) != jobs {
		return fmt.Errorf("solve: entities of %d jobs for %d", len(w.Of), jobs)
	}
	for i, e := range w.Of {
		if e < 0 || e >= len(w.Weight) {
			return fmt.Errorf("solve: job %d is of entity %d of %d", i, e, len(w.Weight))
		}
	}
	for e, v := range w.Weight {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("solve: entity %d has weight %g; more than 0 is possible", e, v)
		}
	}
	return nil
}

// weigh divides the entities' weights among their jobs that can have more, and reports
// whether there are any.
func (w *Entities) weigh(final []bool) (weight []float64, open bool) {
	weight = make([]float64, len(final))
	parts := make([]float64, len(w.Weight))
	for i, e := range w.Of {
		if !final[i] && (!w.FIFO || parts[e] == 0) {
			parts[e]++
			weight[i] = w.Weight[e]
		}
	}
	for i, e := range w.Of {
		if weight[i] > 0 {
			weight[i], open = weight[i]/parts[e], true
		}
	}
	return weight, open
}

// settle has jobs keep what they have, and finds those that cannot have more: in the
// centre of the optimal set they, and only they, have multipliers.
func (w *Entities) settle(q *packed, weight, floor []float64, final []bool) {
	most, jobs := 0.0, 0.0
	for i, v := range weight {
		if v > 0 {
			most, jobs = max(most, v*q.y[q.at[i]]), jobs+1
		}
	}
	for i, v := range weight {
		if v > 0 {
			final[i] = v*q.y[q.at[i]] >= min(most, 1e-3/jobs)
			floor[i] = (floor[i] + v*max(0, q.t-1)*q.unit) * (1 - 1e-5)
		}
	}
}
