package solve

import (
	"fmt"
	"math"
	"slices"
)

// Packing is Shares where two jobs may use the same GPUs at the same time. Jobs with equal speeds,
// alone and next to every other job, form a class: they have equal shares, so the program grows
// with the number of classes, not of jobs.
type Packing struct {
	Shares           // of a job of each class
	Jobs   []float64 // in each class
	Speed  []float64 // of a job alone, by class and type; 0: it cannot run there
	Pairs  []Pair
}

// Pair is two jobs on the same GPUs: of two classes with equal numbers of GPUs, or of one class.
type Pair struct {
	A, B  int
	Speed [2][]float64 // of A's job and of B's, by type; 0 of either: they cannot run together there
}

// column is GPUs of a type for one job alone, or for a pair.
type column struct {
	kind    int
	class   [2]int
	members int        // number of different classes: 1 or 2
	rate    [2]float64 // contribution of one such job or pair to the rate of every job of the class
	time    [2]float64 // ... and to its time
}

// MaxMin maximises the smallest of the jobs' rates and, among all solutions, takes one that
// maximises the sum of the rates, to 1e-5 of the level: a job's rate is its class's factor times
// its speed, summed over the parts of its time on each type, alone and with each partner. alone is
// the mean number of a class's jobs that run alone on a type at a time, by class and type; together
// the mean number of a pair, by pair and type. ErrInfeasible: a class can run on no type.
func (p *Packing) MaxMin(factor []float64) (level float64, alone, together []float64, err error) {
	level, alone, together, err = p.maxMin(factor)
	if err == nil {
		alone, together = p.spend(factor, level, alone, together)
	}
	return level, alone, together, err
}

// maxMin is MaxMin without maximising the sum.
func (p *Packing) maxMin(factor []float64) (level float64, alone, together []float64, err error) {
	if err := p.check(factor); err != nil {
		return 0, nil, nil, err
	}
	q := newPacked(p, factor, nil, slices.Repeat([]float64{1}, len(factor)))
	for i := range p.Jobs {
		if q.columns[i] == 0 {
			return 0, nil, nil, fmt.Errorf("solve: class %d has a speed on no type that has GPUs: %w", i, ErrInfeasible)
		}
	}
	x, ok := q.run()
	if !ok {
		return 0, nil, nil, errStuck
	}
	alone, together = q.tidy(x)
	level = math.Inf(1)
	for i, v := range p.Rates(alone, together) {
		level = min(level, v*factor[i])
	}
	return level, alone, together, nil
}

// spend uses what max-min leaves open to maximise the sum of rates. Where that program is too thin
// for the method, the shares stay as they are.
func (p *Packing) spend(factor []float64, level float64, alone, together []float64) (a, t []float64) {
	// Slightly relaxed, so that the feasible set has an interior.
	floor := slices.Repeat([]float64{level * (1 - 1e-5)}, len(factor))
	q := newPacked(p, factor, floor, nil)
	if x, ok := q.run(); ok {
		return q.tidy(x)
	}
	return alone, together
}

// check validates the input.
func (p *Packing) check(factor []float64) error {
	if err := p.Shares.check("speed", p.Speed); err != nil {
		return err
	}
	if len(p.Jobs) != len(p.GPUs) || len(factor) != len(p.GPUs) {
		return fmt.Errorf("solve: jobs of %d classes and factors of %d for %d", len(p.Jobs), len(factor), len(p.GPUs))
	}
	for i, n := range p.Jobs {
		if !(n >= 1) || !(factor[i] > 0) || math.IsInf(n+factor[i], 0) {
			return fmt.Errorf("solve: class %d has %g jobs and the factor %g; want 1 or more, and more than 0", i, n,
				factor[i])
		}
	}
	for i := range p.Pairs {
		u := &p.Pairs[i]
		if u.A < 0 || u.B < 0 || max(u.A, u.B) >= len(p.GPUs) || p.GPUs[u.A] != p.GPUs[u.B] {
			return fmt.Errorf("solve: pair %d is of classes %d and %d; want two, of %d, that take equally many GPUs", i,
				u.A, u.B, len(p.GPUs))
		}
		for _, list := range u.Speed {
			if len(list) != len(p.Capacity) {
				return fmt.Errorf("solve: pair %d has %d speeds for %d types", i, len(list), len(p.Capacity))
			}
			for _, v := range list {
				if !(v >= 0) || math.IsInf(v, 0) {
					return fmt.Errorf("solve: pair %d has speed %g; 0 or more are possible", i, v)
				}
			}
		}
	}
	return nil
}

// packed is a Packing's program in the form that the method takes:
//
//	max c x + gain t  s.t.  A x + g t = b, x >= 0
//
// x are the columns, then the slacks of rate, time and type. A rate row is sum rate x - weight t -
// slack = floor (without weights the sum of all rates is maximised), a time row sum time x + slack
// = 1, a type's row sum s x + slack = W. Rows are ordered so that the triangular factor of the
// equations stays sparse: first the classes that are in no pair.
type packed struct {
	*Packing
	cols    []column
	of      []int // number of a column's pair, or -1-class
	columns []int // of each class alone
	at      []int // a class's first row: its rate, then its time
	rows    int
	price   []float64 // of each type, or nil
	unit    float64   // of rates in the equations
	*barrier
}

// newPacked is the program with floors and weights of the classes' rates; nil: 0.
func newPacked(p *Packing, factor, floor, weight []float64) *packed {
	return p.program(factor, floor, weight, nil)
}

// program is newPacked with a price of each type, by which rates are divided when there are no
// weights; nil: 1.
func (p *Packing) program(factor, floor, weight, price []float64) *packed {
	n, k := len(p.GPUs), len(p.Capacity)
	q := &packed{Packing: p, price: price, columns: make([]int, n), at: make([]int, n), rows: 2*n + k}
	paired := make([]bool, n)
	for i := range n {
		for j := range k {
			if v := p.Speed[i*k+j] * factor[i]; v > 0 && p.Capacity[j] > 0 {
				q.columns[i]++
				q.of = append(q.of, -1-i)
				q.cols = append(q.cols,
					column{kind: j, class: [2]int{i, i}, members: 1, rate: [2]float64{v / p.Jobs[i]},
						time: [2]float64{1 / p.Jobs[i]}})
			}
		}
	}
	for u := range p.Pairs {
		a, b := p.Pairs[u].A, p.Pairs[u].B
		for j := range k {
			va, vb := p.Pairs[u].Speed[0][j]*factor[a], p.Pairs[u].Speed[1][j]*factor[b]
			if va == 0 || vb == 0 || p.Capacity[j] == 0 || a == b && p.Jobs[a] < 2 {
				continue
			}
			c := column{kind: j, class: [2]int{a, b}, members: 2, rate: [2]float64{va / p.Jobs[a], vb / p.Jobs[b]},
				time: [2]float64{1 / p.Jobs[a], 1 / p.Jobs[b]}}
			if a == b {
				c.members, c.rate[0], c.time[0] = 1, (va+vb)/p.Jobs[a], 2/p.Jobs[a]
			}
			paired[a], paired[b] = true, true
			q.cols, q.of = append(q.cols, c), append(q.of, u)
		}
	}
	next := 0
	for _, want := range []bool{false, true} {
		for i := range n {
			if paired[i] == want {
				q.at[i], next = next, next+2
			}
		}
	}
	q.barrier = q.equations(floor, weight)
	return q
}

// equations are the program's, with a first point. Rates are in units of the smallest one at that
// point.
func (q *packed) equations(floor, weight []float64) *barrier {
	types, e := q.rows-len(q.Capacity), newBarrier(q.rows)
	start, unit := q.inside()
	for i := range q.cols {
		c := &q.cols[i]
		var at []int
		var by []float64
		sum := 0.0
		for m, class := range c.class[:c.members] {
			at, by = append(at, q.at[class], q.at[class]+1), append(by, c.rate[m]/unit, c.time[m])
			sum += c.rate[m] / unit * q.Jobs[class]
		}
		e.add(start[i], append(at, types+c.kind), append(by, q.GPUs[c.class[0]]))
		if q.price != nil {
			sum /= q.price[c.kind]
		}
		if weight == nil {
			e.c = append(e.c, sum)
		}
	}
	rated := make([]bool, q.rows)
	for i, at := range q.at {
		rated[at], e.b[at+1] = true, 1
		if floor != nil {
			e.b[at] = floor[i] / unit
		}
		if weight != nil {
			e.free[at] = -weight[i]
		}
	}
	for j, w := range q.Capacity {
		e.b[types+j] = max(w, 1) // a type without GPUs is used by no column: any number will do
	}
	if weight != nil {
		e.gain, e.t = 1, 0.5
	}
	q.unit = unit
	for row, sum := range e.sums() {
		slack, by := e.b[row]-e.free[row]*e.t-sum, 1.0
		if rated[row] {
			slack, by = -slack, -1
		}
		e.add(max(slack, 1e-3), []int{row}, []float64{by})
	}
	e.begin(rated)
	return e
}

// inside is a point that uses half of all time and at most half of all GPUs, and the smallest rate
// there.
func (q *packed) inside() (start []float64, unit float64) {
	used, share, rate := make([]float64, len(q.Capacity)), make([]float64, len(q.GPUs)), make([]float64, len(q.GPUs))
	for i := range q.cols {
		for _, class := range q.cols[i].class[:q.cols[i].members] {
			share[class]++
		}
	}
	for i := range q.cols {
		c, x := &q.cols[i], math.Inf(1)
		for m, class := range c.class[:c.members] {
			x = min(x, 0.5/(share[class]*c.time[m]))
		}
		start = append(start, x)
		used[c.kind] += x * q.GPUs[c.class[0]]
	}
	for i := range q.cols {
		c := &q.cols[i]
		start[i] *= min(1, 0.5*q.Capacity[c.kind]/used[c.kind])
		for m, class := range c.class[:c.members] {
			rate[class] += start[i] * c.rate[m]
		}
	}
	unit = math.Inf(1)
	for _, v := range rate {
		if v > 0 {
			unit = min(unit, v)
		}
	}
	return start, unit
}

// tidy scales the shares so that rounding does not exceed a limit, and sorts them by class and
// pair.
func (q *packed) tidy(x []float64) (alone, together []float64) {
	k := len(q.Capacity)
	alone, together = make([]float64, len(q.GPUs)*k), make([]float64, len(q.Pairs)*k)
	time, full := make([]float64, len(q.GPUs)), make([]float64, k)
	for i := range q.cols {
		c := &q.cols[i]
		for m, class := range c.class[:c.members] {
			time[class] += x[i] * c.time[m]
		}
	}
	for i := range q.cols {
		c := &q.cols[i]
		most := 1.0
		for _, class := range c.class[:c.members] {
			most = max(most, time[class])
		}
		x[i] /= most
		full[c.kind] += x[i] * q.GPUs[c.class[0]]
	}
	for i := range q.cols {
		c := &q.cols[i]
		v := x[i] / max(1, full[c.kind]/q.Capacity[c.kind])
		if u := q.of[i]; u >= 0 {
			together[u*k+c.kind] = v
		} else {
			alone[(-1-u)*k+c.kind] = v
		}
	}
	return alone, together
}

// Rates are the speeds of a job of each class, summed over its time.
func (p *Packing) Rates(alone, together []float64) []float64 {
	k, rate := len(p.Capacity), make([]float64, len(p.GPUs))
	for i := range p.GPUs {
		rate[i] += dot(alone[i*k:(i+1)*k], p.Speed[i*k:(i+1)*k]) / p.Jobs[i]
	}
	for u := range p.Pairs {
		for m, class := range [2]int{p.Pairs[u].A, p.Pairs[u].B} {
			rate[class] += dot(together[u*k:(u+1)*k], p.Pairs[u].Speed[m]) / p.Jobs[class]
		}
	}
	return rate
}

// Most maximises the sum of all jobs' speeds, each divided by the price of its type. A job of a
// class is at least as fast as least says (0: any). ErrInfeasible: that is impossible. It is exact
// to 1e-5.
func (p *Packing) Most(price, least []float64) (alone, together []float64, err error) {
	n := len(p.GPUs)
	one, floor := slices.Repeat([]float64{1}, n), make([]float64, n)
	if err := p.check(one); err != nil {
		return nil, nil, err
	}
	high, low := 0.0, math.Inf(1)
	for _, v := range price {
		high, low = max(high, v), min(low, v)
	}
	if len(price) != len(p.Capacity) || len(least) != n || !(low > 0) || math.IsInf(high, 0) {
		return nil, nil, fmt.Errorf(
			"solve: %d prices for %d types, %d least speeds for %d classes; want as many, prices above 0", len(price),
			len(p.Capacity), len(least), n)
	}
	level, err := p.reach(least)
	if err != nil {
		return nil, nil, err
	}
	for i, v := range least {
		floor[i] = v * min(1, level) * (1 - 2e-6) // slightly relaxed, so that the feasible set has an interior
	}
	q := p.program(one, floor, nil, price)
	x, ok := q.run()
	if !ok {
		return nil, nil, errStuck
	}
	alone, together = q.tidy(x)
	return alone, together, nil
}

// reach is the largest factor by which all classes with a minimum speed can exceed it;
// ErrInfeasible if it is below 1.
func (p *Packing) reach(least []float64) (level float64, err error) {
	factor, weight := slices.Repeat([]float64{1}, len(least)), make([]float64, len(least))
	asked := false
	for i, v := range least {
		if v > 0 {
			factor[i], weight[i], asked = 1/v, 1, true
		}
	}
	if !asked {
		return 1, nil
	}
	q := newPacked(p, factor, nil, weight)
	for i, w := range weight {
		if w > 0 && q.columns[i] == 0 {
			return 0, ErrInfeasible
		}
	}
	x, ok := q.run()
	if !ok {
		return 0, errStuck
	}
	level = math.Inf(1)
	for i, v := range p.Rates(q.tidy(x)) {
		if weight[i] > 0 {
			level = min(level, v*factor[i])
		}
	}
	if level < 1-1e-6 {
		return 0, ErrInfeasible
	}
	return level, nil
}

// Makespan minimises the time in which all jobs end if shares stay as they are: left is the work of
// a job of each class.
func (p *Packing) Makespan(left []float64) (span float64, alone, together []float64, err error) {
	factor := make([]float64, len(left))
	for i, n := range left {
		factor[i] = 1 / n
	}
	level, alone, together, err := p.MaxMin(factor)
	return 1 / level, alone, together, err
}

// FinishTime is Shares.FinishTime over classes.
func (p *Packing) FinishTime(left, age, own []float64) (rho float64, alone, together []float64, err error) {
	n, k := len(p.GPUs), len(p.Capacity)
	factor := make([]float64, n)
	if len(left) != n || len(age) != n || len(own) != n {
		return 0, nil, nil, fmt.Errorf("solve: work, age and time alone of %d, %d and %d classes for %d", len(left),
			len(age), len(own), n)
	}
	for i := range factor {
		factor[i] = 1 / left[i]
	}
	if err := p.check(factor); err != nil {
		return 0, nil, nil, err
	}
	each := Shares{Capacity: p.Capacity}
	for i, g := range p.GPUs {
		each.GPUs = append(each.GPUs, g*p.Jobs[i])
	}
	alone, together = each.Isolated(), make([]float64, len(p.Pairs)*k)
	for ij := range alone {
		alone[ij] *= p.Jobs[ij/k]
	}
	worst := func() (rho float64) {
		for i, z := range p.Rates(alone, together) {
			rho = max(rho, (age[i]+left[i]/max(z, 1e-300))/own[i])
		}
		return rho
	}
	rho = worst()
	for range 200 {
		for i := range factor {
			factor[i] = (rho*own[i] - age[i]) / left[i]
		}
		_, a, b, err := p.maxMin(factor)
		if err != nil {
			return 0, nil, nil, err
		}
		a, b, alone, together = alone, together, a, b
		next := worst()
		if next >= rho*(1-1e-7) {
			if next > rho {
				alone, together, next = a, b, rho
			}
			alone, together = p.spend(factor, 1, alone, together)
			return next, alone, together, nil
		}
		rho = next
	}
	return 0, nil, nil, errStuck
}
