package solve

import "math"

// linear is a linear program of the kind that shares of GPUs lead to:
//
//	max  sum_ij c_ij x_ij + gain t
//	s.t. sum_j a_ij x_ij - b_i t >= m_i   for jobs with row[i]
//	     sum_j x_ij <= 1,  sum_i s_i x_ij <= W_j,  x >= 0,  t free
//
// over jobs i and GPU types j. Job i stands for count[i] equal ones. Matrices
// are stored by job. An x_ij with open[i*k+j] false is 0.
type linear struct {
	n, k  int
	a, c  []float64
	b, m  []float64
	s     []float64
	row   []bool
	open  []bool
	count []float64
	W     []float64
	gain  float64
}

// interior is the state of a primal-dual interior-point method (Mehrotra's
// predictor and corrector) on a linear. Only the rows may be violated on the way.
//
// What a step changes of a job is known once dh and dt are: of the job two equations
// are left, for the multipliers of its row and its time, which are solved by hand. So a
// step goes through the jobs a few times, at O(types) each, and at O(types^2) where it
// adds up the equations of the types and of t, H dh - v dt = P and v.dh + tau dt = rhs.
//
// Near the optimum w = x/l is very large or very small, and differences of sums over
// w lose all digits. So a job's coefficients are taken relative to their mean by w: then
// what its equations are divided by is a sum of positive terms.
type interior struct {
	*linear
	cells         []cell
	parts         []part
	free, h       []float64 // slack of the types, and multiplier
	dfree, dh     []float64
	H, v, P       []float64 // the equations of the types, and of t
	w, p          []float64 // of the job at hand: x/l, and times its coefficients relative to their mean
	tau, rhs      float64
	t, dt, rt     float64
	size          float64 // number of inequalities
	unit          float64 // what multipliers are like
	value         float64 // of the objective
	gap           float64 // the sum of slack times multiplier
	missed, wrong float64 // by how much the rows are missed, and the equations of the multipliers
	primal, dual  float64 // how far the step can go
	slope, bend   float64 // what it changes the gap by: first order in the slacks, and second
}

// cell is a job's share of a type: x and its multiplier l. Where the job cannot have
// one both are 0.
type cell struct {
	x, l, dx, dl float64
	a, c         float64
	miss         float64 // what l is short of by the multipliers of row, time and type
	inverse      float64 // 1/l, or 0
}

// part is what else there is of a job.
type part struct {
	s, b, m, count float64
	e, f, de, df   float64 // slack and multiplier of its row; 1 and 0 where there is none
	r, g, dr, dg   float64 // ... of its time
	te, tr         float64 // what slack times multiplier is to change by
	re             float64 // what the row is missed by
	mean           float64 // of its coefficients, by w
	alpha          float64 // f/e
	ff, fg, gg     float64 // the inverse of its two equations; the first two per alpha
	df0, dg0       float64 // what they say if dh and dt are 0; the second relative to the mean
}

// How exact a solution is: the gap between it and the bound of its multipliers,
// relative to its value. The arithmetic's own errors show far below. Beyond that only the
// shares that are all but 0 change, which decide between jobs that are equal otherwise: in
// Gavel's world, at 5.6 jobs an hour, mean JCT is 29.17 h with 1e-7, 29.06 with 5e-7, 28.99
// with 1e-6, and was published as 28.96.
const (
	tolerance = 5e-7
	maxSteps  = 200
)

// centring is the least part of the gap that a step keeps: more leads to a point
// nearer to the centre, in more steps.
const centring = 0.05

// newInterior is a point inside of all inequalities; rows may be violated.
func newInterior(p *linear) *interior {
	n, k := p.n, p.k
	q := &interior{linear: p, cells: make([]cell, n*k), parts: make([]part, n), H: make([]float64, k*k)}
	for _, v := range []*[]float64{&q.free, &q.h, &q.dfree, &q.dh, &q.v, &q.P, &q.w, &q.p} {
		*v = make([]float64, k)
	}
	q.start()
	return q
}

// start sets the first point: everybody gets half of an equal share of the time.
func (q *interior) start() {
	k, want, jobs := q.k, make([]float64, q.k), 0.0
	for i := range q.n {
		jobs += q.count[i]
		for j := range k {
			if q.open[i*k+j] {
				want[j] += q.count[i] * q.s[i]
			}
		}
	}
	copy(q.free, q.W)
	sum, many := 0.0, 0.0
	for i := range q.n {
		o, cells := q.job(i)
		*o = part{s: q.s[i], b: q.b[i], m: q.m[i], count: q.count[i], r: 1, e: 1}
		for j := range cells {
			c, ij := &cells[j], i*k+j
			if !q.open[ij] {
				continue
			}
			c.x, c.a, c.c = 0.5*min(1/float64(k), q.W[j]/want[j]), q.a[ij], q.c[ij]
			o.r -= c.x
			q.free[j] -= o.count * o.s * c.x
			sum, many = sum+o.count*(c.c*jobs+c.a*q.gain), many+o.count
		}
	}
	q.startRows()
	q.startMultipliers(jobs, sum/many)
}

// startRows chooses t and the slacks of the rows.
func (q *interior) startRows() {
	first := true
	for i := range q.parts {
		o, cells := q.job(i)
		for j := range cells {
			o.re += cells[j].a * cells[j].x
		}
		if q.row[i] && o.b > 0 {
			if t := (0.5*o.re - o.m) / o.b; first || t < q.t {
				q.t, first = t, false
			}
		}
	}
	for i := range q.parts {
		if o := &q.parts[i]; q.row[i] {
			ax := o.re
			o.e = max(ax-o.b*q.t-o.m, 0.1*ax)
			o.re = ax - o.b*q.t - o.m - o.e
		}
	}
}

// startMultipliers sets them to what the time of so many jobs is worth, with such a
// mean coefficient.
func (q *interior) startMultipliers(jobs, mean float64) {
	if q.unit = mean / jobs; !(mean > 0) {
		q.unit = 1 / jobs
	}
	for i := range q.parts {
		o, cells := q.job(i)
		o.g, q.size = q.unit, q.size+o.count
		if q.row[i] {
			q.size += o.count
			if o.f = q.unit; q.gain > 0 {
				o.f = 1 / jobs
			}
		}
		for j := range cells {
			if cells[j].x > 0 {
				cells[j].l, q.size = q.unit, q.size+o.count
			}
		}
	}
	for j := range q.h {
		q.h[j] = q.unit
		q.size++
	}
}

// job is a job's part, and its cells.
func (q *interior) job(i int) (*part, []cell) {
	return &q.parts[i], q.cells[i*q.k : (i+1)*q.k]
}

func dot(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// factor takes the step, so far, computes by how much the equations are missed at the
// point, and prepares them: H, v and tau are what is left of them after the jobs have
// been eliminated.
func (q *interior) factor(primal, dual float64) {
	q.t += primal * q.dt
	clear(q.H)
	clear(q.v)
	q.value, q.rt, q.tau, q.gap, q.missed, q.wrong = q.gain*q.t, -q.gain, 0, 0, 0, 0
	for j := range q.h {
		q.free[j] += primal * q.dfree[j]
		q.h[j] += dual * q.dh[j]
		q.gap += q.free[j] * q.h[j]
	}
	for i := range q.parts {
		o, cells := q.job(i)
		q.move(o, cells, primal, dual)
		q.eliminate(o, cells)
	}
	q.wrong = max(q.wrong, math.Abs(q.rt))
	for j := range q.h {
		q.H[j*q.k+j] += q.free[j] / q.h[j]
		if q.gain > 0 {
			for m := range j + 1 {
				q.H[j*q.k+m] += q.v[j] * q.v[m] / q.tau
			}
		}
	}
	q.cholesky()
}

// move takes a job's part of the step.
func (q *interior) move(o *part, cells []cell, primal, dual float64) {
	o.r += primal * o.dr
	o.e += primal * o.de
	o.g += dual * o.dg
	o.f += dual * o.df
	o.re *= 1 - primal
	xl, cx := o.r*o.g+o.e*o.f, 0.0
	h, wrong := q.h[:len(cells)], q.wrong
	for j := range cells {
		c := &cells[j]
		if c.x == 0 {
			continue
		}
		c.x += primal * c.dx
		c.l += dual * c.dl
		c.inverse = 1 / c.l
		c.miss = o.g + o.s*h[j] - c.c - c.l - o.f*c.a
		if miss := math.Abs(c.miss); miss > wrong {
			wrong = miss
		}
		xl += c.x * c.l
		cx += c.x * c.c
	}
	q.value += o.count * cx
	q.wrong = wrong
	if o.f > 0 {
		q.rt += o.count * o.b * o.f
		q.missed = max(q.missed, math.Abs(o.re)/(o.e+math.Abs(o.b*q.t)+math.Abs(o.m)))
	}
	q.gap += o.count * xl
}

// eliminate solves a job's two equations, and adds what is left of it to the others.
func (q *interior) eliminate(o *part, cells []cell) {
	all, first, second := 0.0, 0.0, 0.0
	for j := range cells {
		c := &cells[j]
		w := c.x * c.inverse
		all += w
		first += w * c.a
	}
	o.mean = first / all
	ws, ps := q.w[:len(cells)], q.p[:len(cells)]
	for j := range cells {
		c := &cells[j]
		w, d := c.x*c.inverse, c.a-o.mean
		ws[j], ps[j] = w, w*d
		second += w * d * d
	}
	o.alpha = o.f / o.e
	rho, row := o.r/o.g, o.alpha*second+1
	tilt := rho * o.mean
	one := 1 / (row*(all+rho) + o.alpha*o.mean*tilt*all)
	o.ff, o.fg, o.gg = (all+rho)*one, tilt*one, (row+o.alpha*o.mean*tilt)*one

	ff, fg, gg := o.alpha*o.ff, o.alpha*o.fg, o.gg
	cs, cb := o.count*o.s*o.s, o.count*o.s*o.b
	q.tau += o.count * o.b * o.b * ff
	v := q.v[:len(cells)]
	for j, w := range ws {
		byP, byW := ff*ps[j]+fg*w, fg*ps[j]+gg*w
		v[j] += cb * byP
		byP, byW = cs*byP, cs*byW
		H := q.H[j*len(ws) : j*len(ws)+j+1]
		p, w2 := ps[:len(H)], ws[:len(H)]
		for m := range H {
			H[m] -= byP*p[m] + byW*w2[m]
		}
		H[j] += cs * w
	}
}

// cholesky replaces H by its triangular factor.
func (q *interior) cholesky() {
	k, H := q.k, q.H
	for j := range k {
		for m := range j + 1 {
			sum := H[j*k+m]
			for z := range m {
				sum -= H[j*k+z] * H[m*k+z]
			}
			if m < j {
				H[j*k+m] = sum / H[m*k+m]
			} else {
				if sum <= 1e-14*H[j*k+j] { // lost in the arithmetic: nothing moves that way
					sum = 1e300
				}
				H[j*k+j] = math.Sqrt(sum)
			}
		}
	}
}

// backsolve solves H y = y.
func (q *interior) backsolve(y []float64) {
	k, H := q.k, q.H
	for j := range k {
		for z := range j {
			y[j] -= H[j*k+z] * y[z]
		}
		y[j] /= H[j*k+j]
	}
	for j := k - 1; j >= 0; j-- {
		for z := j + 1; z < k; z++ {
			y[j] -= H[z*k+j] * y[z]
		}
		y[j] /= H[j*k+j]
	}
}

// direction solves for a step after which slack times multiplier is mu, to first
// order; with second, what the last direction says of the second order is taken into
// account.
func (q *interior) direction(mu, second float64) {
	for j, h := range q.h {
		q.P[j] = (mu - q.free[j]*h - second*q.dfree[j]*q.dh[j]) / h
	}
	q.rhs = -q.rt
	for i := range q.parts {
		o, cells := q.job(i)
		q.gather(o, cells, mu, second)
	}
	copy(q.dh, q.P)
	q.dt = 0
	if q.gain > 0 {
		for j, v := range q.v {
			q.dh[j] += v * q.rhs / q.tau
		}
	}
	q.backsolve(q.dh)
	if q.gain > 0 {
		q.dt = (q.rhs - dot(q.v, q.dh)) / q.tau
	}
	q.primal, q.dual, q.slope, q.bend = 1, 1, 0, 0
	clear(q.dfree)
	for i := range q.parts {
		o, cells := q.job(i)
		q.spread(o, cells, mu, second)
	}
	for j, d := range q.dfree {
		q.far(q.free[j], d, q.h[j], q.dh[j])
		q.slope += d * q.h[j]
		q.bend += d * q.dh[j]
	}
	q.primal, q.dual = 1/q.primal, 1/q.dual
}

// gather computes a job's right sides, and what is left of them for the types and t.
func (q *interior) gather(o *part, cells []cell, mu, second float64) {
	o.tr = mu - o.r*o.g - second*o.dr*o.dg
	time := o.tr / o.g
	sum, row, first := 0.0, 0.0, q.p[:len(cells)]
	for j := range cells {
		c := &cells[j]
		d := (mu-second*c.dx*c.dl)*c.inverse - c.x*(1+c.inverse*c.miss)
		first[j] = d
		sum += d
		row += d * (c.a - o.mean)
	}
	row = o.alpha * (o.mean*time - row - o.re)
	if o.f > 0 {
		o.te = mu - o.e*o.f - second*o.de*o.df
		row += o.te / o.e
	}
	sum += time
	o.df0, o.dg0 = o.ff*row-o.alpha*o.fg*sum, o.gg*sum-o.fg*row
	q.rhs -= o.count * o.b * o.df0
	cs, P := o.count*o.s, q.P[:len(cells)]
	for j := range cells {
		c := &cells[j]
		P[j] += cs * (first[j] + c.x*c.inverse*((c.a-o.mean)*o.df0-o.dg0))
	}
}

// spread computes a job's part of the step from those of the types and t.
func (q *interior) spread(o *part, cells []cell, mu, second float64) {
	dh, dfree := q.dh[:len(cells)], q.dfree[:len(cells)]
	byTime, byRow := 0.0, 0.0
	for j := range cells {
		c := &cells[j]
		d := c.x * c.inverse * dh[j]
		byTime += d
		byRow += d * (c.a - o.mean)
	}
	byTime, byRow = o.s*byTime, o.s*byRow+o.b*q.dt
	df := o.df0 + o.alpha*(o.ff*byRow+o.fg*byTime)
	dg := o.dg0 - o.gg*byTime - o.alpha*o.fg*byRow
	cs, slope, bend := o.count*o.s, 0.0, 0.0
	primal, dual := q.primal, q.dual
	for j := range cells {
		c := &cells[j]
		if c.x == 0 {
			continue
		}
		t := mu - c.x*c.l - second*c.dx*c.dl
		c.dx = (t + c.x*((c.a-o.mean)*df-dg-o.s*dh[j]-c.miss)) * c.inverse
		c.dl = (t - c.l*c.dx) / c.x
		dfree[j] -= cs * c.dx
		slope += c.dx * c.l
		bend += c.dx * c.dl
		if -c.dx > primal*c.x {
			primal = -c.dx / c.x
		}
		if -c.dl > dual*c.l {
			dual = -c.dl / c.l
		}
	}
	q.primal, q.dual = primal, dual
	o.df, o.dg = df, dg+o.mean*df
	o.dr = (o.tr - o.r*o.dg) / o.g
	slope += o.dr * o.g
	bend += o.dr * o.dg
	q.far(o.r, o.dr, o.g, o.dg)
	if o.f > 0 {
		o.de = (o.te - o.e*df) / o.f
		slope += o.de * o.f
		bend += o.de * df
		q.far(o.e, o.de, o.f, df)
	}
	q.slope += o.count * slope
	q.bend += o.count * bend
}

// far notes how far a step can go before a slack or its multiplier is 0.
func (q *interior) far(x, dx, l, dl float64) {
	if -dx > q.primal*x {
		q.primal = -dx / x
	}
	if -dl > q.dual*l {
		q.dual = -dl / l
	}
}

// run goes to the optimum and reports whether it got there. Steps stay near the
// central path, so that where there are many optima the point is near the
// analytic centre of their set.
func (q *interior) run() (steps int, ok bool) {
	recentre, primal, dual := 1e-2, 0.0, 0.0
	for steps = range maxSteps {
		q.factor(primal, dual)
		gap, scale := q.gap, math.Abs(q.value)
		near := gap < 10*tolerance*scale && q.missed < 10*tolerance && q.wrong < 1e-6*q.unit
		if near && gap < tolerance*scale || math.IsNaN(gap) {
			return steps, near
		}
		if mu := gap / q.size; gap < recentre*scale {
			recentre /= 1e2
			q.direction(mu, 0)
		} else {
			q.direction(0, 0)
			after := gap + q.primal*q.slope - q.dual*(gap+q.slope) + q.primal*q.dual*q.bend
			sigma := after / gap
			q.direction(max(sigma*sigma*sigma, centring)*mu, 1)
		}
		if near && q.primal < 0.9 || q.primal < 1e-9 && q.dual < 1e-9 {
			return steps, near // what is left is lost in the arithmetic
		}
		primal, dual = 0.99*q.primal, 0.99*q.dual
	}
	return steps, false
}

// tidy returns the shares, without the last digits that would be too much.
func (q *interior) tidy() []float64 {
	k, full, all := q.k, make([]float64, q.k), make([]float64, len(q.cells))
	for i := range q.parts {
		o, cells := q.job(i)
		x, sum := all[i*k:(i+1)*k], 0.0
		for j := range cells {
			x[j] = cells[j].x
			sum += x[j]
		}
		for j := range x {
			x[j] /= max(1, sum)
			full[j] += o.count * o.s * x[j]
		}
	}
	for ij := range all {
		all[ij] /= max(1, full[ij%k]/q.W[ij%k])
	}
	return all
}
