package solve

import (
	"fmt"
	"math"
	"slices"
)

// Entities say whose jobs are whose, and how an entity divides among its own.
type Entities struct {
	Of     []int     // each job's entity, one without parts
	Weight []float64 // of each entity: more than 0
	Parent []int     // the entity, earlier in the list, that each is part of; -1: of none
	FIFO   []bool    // the first of an entity's jobs that can have more gets it all; else all alike
}

// Hierarchy is water filling over entities: their levels rise together, each by its
// weight, which its parts have by theirs, and its jobs in equal parts, or the first of
// them; who can have no more stays where it is, and leaves its part to the others of its
// entity, and these to those of the entity above. It returns the jobs' rates, to 1e-4, with the shares. Source: Gavel (OSDI'20), section
// 4.3. It takes a program for every job or so.
func (s *Shares) Hierarchy(rate []float64, who *Entities) (level, x []float64, err error) {
	if err := s.check("rate", rate); err != nil {
		return nil, nil, err
	}
	one := slices.Repeat([]float64{1}, len(s.GPUs))
	p := &Packing{Shares: *s, Jobs: one, Speed: rate}
	level, x, _, err = p.Hierarchy(one, who)
	return level, x, err
}

// Hierarchy is Shares.Hierarchy over classes, whose jobs are all of one entity; one that
// goes by order has classes of one job. Rates are speeds times the class's factor.
func (p *Packing) Hierarchy(factor []float64, who *Entities) (level, alone, together []float64, err error) {
	if err := p.check(factor); err != nil {
		return nil, nil, nil, err
	}
	if err := who.check(p.Jobs); err != nil {
		return nil, nil, nil, err
	}
	n := len(p.GPUs)
	final, floor := make([]bool, n), make([]float64, n)
	for {
		weight, open := who.weigh(p.Jobs, final)
		if !open {
			level = p.Rates(alone, together)
			for i := range level {
				level[i] *= factor[i]
			}
			return level, alone, together, nil
		}
		from := slices.Clone(floor) // the level is counted from -1, so that it is well above 0 where there is little to gain: errors are relative to it
		q := newPacked(p, factor, nil, weight)
		for i := range n {
			if q.columns[i] == 0 {
				return nil, nil, nil, fmt.Errorf("solve: class %d has a speed on no type that has GPUs: %w", i, ErrInfeasible)
			}
			from[i] -= weight[i] * q.unit
		}
		q = newPacked(p, factor, from, weight)
		y, ok := q.run()
		if !ok {
			return nil, nil, nil, errStuck
		}
		who.settle(q, weight, floor, final)
		alone, together = q.tidy(y)
	}
}

// WaterFill is max-min to the end, as Shares.WaterFill, over classes.
func (p *Packing) WaterFill(factor []float64) (level, alone, together []float64, err error) {
	who := &Entities{Weight: p.Jobs, Parent: slices.Repeat([]int{-1}, len(p.Jobs)), FIFO: make([]bool, len(p.Jobs))}
	for i := range p.Jobs {
		who.Of = append(who.Of, i)
	}
	return p.Hierarchy(factor, who)
}

// check refuses entities that are not those of classes of so many jobs.
func (w *Entities) check(jobs []float64) error {
	if len(w.Of) != len(jobs) || len(w.Parent) != len(w.Weight) || len(w.FIFO) != len(w.Weight) {
		return fmt.Errorf("solve: entities of %d jobs for %d; %d weights, %d parents, %d orders", len(w.Of), len(jobs), len(w.Weight), len(w.Parent), len(w.FIFO))
	}
	parts := make([]bool, len(w.Weight))
	for e, v := range w.Weight {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("solve: entity %d has weight %g; more than 0 is possible", e, v)
		}
		if w.Parent[e] < -1 || w.Parent[e] >= e {
			return fmt.Errorf("solve: entity %d is part of %d; want an earlier one, or -1", e, w.Parent[e])
		}
		if w.Parent[e] >= 0 {
			parts[w.Parent[e]] = true
		}
	}
	for i, e := range w.Of {
		if e < 0 || e >= len(w.Weight) || parts[e] {
			return fmt.Errorf("solve: job %d is of entity %d of %d; want one without parts", i, e, len(w.Weight))
		}
		if w.FIFO[e] && jobs[i] > 1 {
			return fmt.Errorf("solve: class %d has %g jobs; in an entity that goes by order each is one", i, jobs[i])
		}
	}
	return nil
}

// weigh divides the entities' weights among their jobs that can have more, and reports
// whether there are any.
func (w *Entities) weigh(jobs []float64, final []bool) (weight []float64, open bool) {
	weight = make([]float64, len(final))
	many, below, part := make([]float64, len(w.Weight)), make([]float64, len(w.Weight)), make([]float64, len(w.Weight))
	for i, e := range w.Of {
		if !final[i] && (!w.FIFO[e] || many[e] == 0) {
			many[e] += jobs[i]
			weight[i], open = 1, true
		}
	}
	for e := len(many) - 1; e >= 0; e-- {
		if above := w.Parent[e]; above >= 0 && many[e]+below[e] > 0 {
			below[above] += w.Weight[e]
		}
	}
	for e, above := range w.Parent {
		if part[e] = w.Weight[e]; above >= 0 {
			part[e] *= part[above] / max(below[above], 1e-300)
		}
	}
	for i, e := range w.Of {
		if weight[i] > 0 {
			weight[i] = part[e] / many[e]
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
