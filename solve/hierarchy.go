package solve

import (
	"fmt"
	"math"
	"slices"
)

// Entities assigns jobs to entities, and says how an entity divides among its own.
type Entities struct {
	Of     []int     // each job's entity, a leaf
	Weight []float64 // of each entity: more than 0
	Parent []int     // each entity's parent, earlier in the list; -1: none
	FIFO   []bool    // an entity's first job that can still rise gets everything; otherwise its jobs rise alike
}

// Hierarchy is water filling over entities: their levels rise together by weight; an entity divides
// its level among its parts by weight, and among its jobs equally or to the first. A job that can
// rise no further stays, and leaves its part to the others of its entity, which leaves it to its
// parent's others. It returns the jobs' rates, to 1e-4, with the shares. Source: Gavel (OSDI'20),
// section 4.3. It solves about one program per job.
func (s *Shares) Hierarchy(rate []float64, entities *Entities) (level, x []float64, err error) {
	if err := s.check("rate", rate); err != nil {
		return nil, nil, err
	}
	one := slices.Repeat([]float64{1}, len(s.GPUs))
	if err := entities.check(one); err != nil {
		return nil, nil, err
	}
	p := s.program(func(ij int) bool { return rate[ij] > 0 })
	unit, err := s.unit(rate, p)
	if err != nil {
		return nil, nil, err
	}
	for i := range p.n {
		for j := range p.k {
			p.a[i*p.k+j] = rate[i*p.k+j] / unit
		}
	}
	p.gain = 1
	final, floor := make([]bool, p.n), make([]float64, p.n)
	for {
		weight, open := entities.weigh(one, final)
		if !open {
			break
		}
		q := p.raise(floor, weight)
		if q == nil && x == nil {
			return nil, nil, errStuck
		}
		if q == nil {
			stay(weight, final)
			continue
		}
		settle(weight, floor, final, q.t-1, 1e-6, func(i int) float64 { return q.parts[i].f })
		x = q.tidy()
	}
	for i := range p.n {
		level = append(level, dot(rate[i*p.k:(i+1)*p.k], x[i*p.k:(i+1)*p.k]))
	}
	return level, x, nil
}

// raise solves the program that raises all jobs from their floors by their weights. Floors that
// leave the method too little room are lowered, first by a hundred-thousandth; nil: that did not
// help.
func (p *linear) raise(floor, weight []float64) *interior {
	for slack := 0.0; slack < 1e-2; slack = max(1e-5, 10*slack) {
		for i := range floor {
			floor[i] *= 1 - slack
			// The level counts from -1: it stays well above 0 where there is little to gain, since
			// errors are relative to it.
			p.row[i], p.b[i], p.m[i] = weight[i] > 0 || floor[i] > 0, weight[i], floor[i]-weight[i]
		}
		q := newInterior(p)
		if _, ok := q.run(); ok {
			return q
		}
	}
	return nil
}

// Hierarchy is Shares.Hierarchy over classes; all jobs of a class belong to one entity, and a FIFO
// entity has classes of one job. Rates are speeds times the class's factor.
func (p *Packing) Hierarchy(factor []float64, entities *Entities) (level, alone, together []float64, err error) {
	if err := p.check(factor); err != nil {
		return nil, nil, nil, err
	}
	if err := entities.check(p.Jobs); err != nil {
		return nil, nil, nil, err
	}
	n := len(p.GPUs)
	final, floor := make([]bool, n), make([]float64, n)
	for {
		weight, open := entities.weigh(p.Jobs, final)
		if !open {
			level = p.Rates(alone, together)
			for i := range level {
				level[i] *= factor[i]
			}
			return level, alone, together, nil
		}
		q, y, err := p.raise(factor, floor, weight, alone == nil)
		if err != nil {
			return nil, nil, nil, err
		}
		if q == nil {
			stay(weight, final)
			continue
		}
		settle(weight, floor, final, (q.t-1)*q.unit, 1e-5, func(i int) float64 { return q.y[q.at[i]] })
		alone, together = q.tidy(y)
	}
}

// raise solves the program that raises all classes from their floors by their weights. Floors that
// leave the method too little room are lowered, first by a ten-thousandth; nil: that did not help,
// which is an error for the first program.
func (p *Packing) raise(factor, floor, weight []float64, first bool) (q *packed, y []float64, err error) {
	q = newPacked(p, factor, nil, weight)
	for i, columns := range q.columns {
		if columns == 0 {
			return nil, nil, fmt.Errorf("solve: class %d has a speed on no type that has GPUs: %w", i, ErrInfeasible)
		}
	}
	unit := q.unit
	for slack := 0.0; slack < 1e-1; slack = max(1e-4, 10*slack) {
		// The level counts from -1: it stays well above 0 where there is little to gain, since
		// errors are relative to it.
		from := make([]float64, len(floor))
		for i := range floor {
			floor[i] *= 1 - slack
			from[i] = floor[i] - weight[i]*unit
		}
		q = newPacked(p, factor, from, weight)
		if y, ok := q.run(); ok {
			return q, y, nil
		}
		if first {
			return nil, nil, errStuck
		}
	}
	return nil, nil, nil
}

// WaterFill is lexicographic max-min over classes, see Shares.WaterFill.
func (p *Packing) WaterFill(factor []float64) (level, alone, together []float64, err error) {
	entities := &Entities{Weight: p.Jobs, Parent: slices.Repeat([]int{-1}, len(p.Jobs)),
		FIFO: make([]bool, len(p.Jobs))}
	for i := range p.Jobs {
		entities.Of = append(entities.Of, i)
	}
	return p.Hierarchy(factor, entities)
}

// check validates the entities for these classes.
func (w *Entities) check(jobs []float64) error {
	if len(w.Of) != len(jobs) || len(w.Parent) != len(w.Weight) || len(w.FIFO) != len(w.Weight) {
		return fmt.Errorf("solve: entities of %d jobs for %d; %d weights, %d parents, %d orders", len(w.Of), len(jobs),
			len(w.Weight), len(w.Parent), len(w.FIFO))
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

// weigh divides the entities' weights among their jobs that can still rise, and reports whether
// there are any.
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

// settle makes jobs keep what they have, less a small part, after all have risen by up times their
// weights, and finds the jobs that can rise no further: in the centre of the optimal set exactly
// those have positive multipliers.
func settle(weight, floor []float64, final []bool, up, part float64, multiplier func(i int) float64) {
	most, jobs := 0.0, 0.0
	for i, v := range weight {
		if v > 0 {
			most, jobs = max(most, v*multiplier(i)), jobs+1
		}
	}
	for i, v := range weight {
		if v > 0 {
			final[i] = v*multiplier(i) >= min(most, 1e-3/jobs)
			floor[i] = (floor[i] + v*max(0, up)) * (1 - part)
		}
	}
}

// stay makes the jobs final that were to rise: the method finds no room for them.
func stay(weight []float64, final []bool) {
	for i, v := range weight {
		final[i] = final[i] || v > 0
	}
}
