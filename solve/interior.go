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

// interior is the state of a primal-dual interior-point method (Mehrotra's predictor-corrector) on
// a linear. Only the rows may be violated on the way.
//
// A step's effect on a job follows from dh and dt: two equations remain per job, for the
// multipliers of its row and its time, which are solved in closed form. So a step passes over the
// jobs three times, at O(types) each, and at O(types^2) where it adds up the equations of the types
// and of t, H dh - v dt = P and v.dh + tau dt = rhs. Their right-hand sides are linear in mu, the
// target of slack times multiplier, so they are accumulated in parts before mu is known.
//
// Near the optimum w = x/l is very large or very small, and differences of sums over w lose all
// digits. So a job's coefficients are taken relative to their w-weighted mean: then the divisors in
// its equations are sums of positive terms.
type interior struct {
	*linear
	cells         []cell
	parts         []part
	kinds         []kind
	terms         []term      // for a block of jobs
	H             [][]float64 // matrix of the types and of t: the lower triangle
	y             []float64   // the solution
	tau           float64
	rhs           [3]float64
	t, dt, rt     float64
	size          float64 // number of inequalities
	unit          float64 // typical size of multipliers
	value         float64 // of the objective
	gap           float64 // the sum of slack times multiplier
	missed, wrong float64 // residuals of the rows, and of the dual equations
	primal, dual  float64 // longest primal and dual steps
	slope, bend   float64 // first- and second-order change of the gap along the predictor
}

// The parts of a right-hand side: the direction to 0, the coefficient of mu, and the second-order
// term of the predictor.
const (
	toZero = iota
	perMu
	secondOrder
)

// cell is a job's share of a type: x and its multiplier l. Both are 0 where the job cannot use the
// type.
type cell struct {
	x, l, dx, dl float64 // between the two directions of a step, dx holds dx times dl of the first
	a, c         float64
	miss         float64 // residual of l against the multipliers of row, time and type
	inverse      float64 // 1/l, or 0
}

// term is a cell's contribution to sums.
type term struct {
	w, p float64 // x/l, and that times the coefficient relative to the mean
	d    float64 // contribution to a right-hand side
}

// kind is a GPU type.
type kind struct {
	free, h   float64 // slack, and multiplier
	dfree, dh float64 // between the two directions of a step, dfree is used like cell.dx
	v         float64
	P         [3]float64
}

// part is the remaining state of a job.
type part struct {
	s, b, m, count float64
	e, f, de, df   float64 // slack and multiplier of its row; 1 and 0 without a row; de like cell.dx
	r, g, dr, dg   float64 // ... of its time
	byE, byF, byG  float64 // 1/e and 1/f, 0 without a row; 1/g
	re             float64 // residual of the row
	all, mean      float64 // sum of w; w-weighted mean of the coefficients
	alpha          float64 // f/e
	ff, fg, gg     float64 // the inverse of its two equations; the first two divided by alpha
	own            [3]own
}

// own is the solution of a job's two equations for the multipliers of its row and its time if dh
// and dt are 0; the second relative to the mean.
type own struct{ df, dg float64 }

// The precision of a solution is the gap between it and the bound given by its multipliers,
// relative to its value. Rounding errors are far smaller. Beyond that only shares close to 0
// change, which decide between otherwise equal jobs: in Gavel's world, at 5.6 jobs an hour, mean
// JCT is 29.17 h with 1e-7, 29.06 with 5e-7, 28.99 with 1e-6, and was published as 28.96.
const (
	tolerance = 5e-7
	maxSteps  = 200
)

// centring is the smallest part of the gap that a step keeps: a larger one leads closer to the
// analytic centre, in more steps.
const centring = 0.05

// block is the number of jobs per pass. The work for one job is a long dependency chain;
// interleaving several jobs keeps the processor busy.
const block = 4

// newInterior returns a point that strictly satisfies all inequalities; rows may be violated.
func newInterior(p *linear) *interior {
	n, k := p.n, p.k
	q := &interior{linear: p, cells: make([]cell, n*k), parts: make([]part, n), kinds: make([]kind, k),
		y: make([]float64, k), terms: make([]term, block*k)}
	for j := range k {
		q.H = append(q.H, make([]float64, j+1))
	}
	q.start()
	return q
}

// start sets the first point: every job gets half of an equal share of the time.
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
	for j := range q.kinds {
		q.kinds[j].free = q.W[j]
	}
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
			q.kinds[j].free -= o.count * o.s * c.x
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

// startMultipliers sets the multipliers from the value of the jobs' time, given the number of jobs
// and their mean coefficient.
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
	for j := range q.kinds {
		q.kinds[j].h = q.unit
		q.size++
	}
}

// job returns a job's part and its cells.
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

// factor takes the step, computes the residuals at the new point, and prepares the reduced
// equations: H, v and tau after the jobs have been eliminated, and their right-hand sides P and
// rhs, without the second order.
func (q *interior) factor(primal, dual float64) {
	q.t += primal * q.dt
	for _, line := range q.H {
		clear(line)
	}
	q.value, q.rt, q.tau, q.gap, q.missed, q.wrong = q.gain*q.t, -q.gain, 0, 0, 0, 0
	q.rhs = [3]float64{}
	for j := range q.kinds {
		z := &q.kinds[j]
		z.free += primal * z.dfree
		z.h += dual * z.dh
		q.gap += z.free * z.h
		z.v, z.P = 0, [3]float64{-z.free, 1 / z.h}
	}
	for from := 0; from < q.n; from += block {
		to := min(from+block, q.n)
		for i := from; i < to; i++ {
			q.move(i, i-from, primal, dual)
		}
		for i := from; i < to; i++ {
			q.eliminate(i, i-from)
		}
		for i := from; i < to; i++ {
			q.add(i, i-from)
		}
	}
	q.rhs[toZero] -= q.rt
	q.wrong = max(q.wrong, math.Abs(q.rt))
	for j, line := range q.H {
		z := &q.kinds[j]
		line[j] += z.free / z.h
		if q.gain > 0 {
			for m := range line {
				line[m] += z.v * q.kinds[m].v / q.tau
			}
		}
	}
	q.cholesky()
}

// move takes a job's part of the step, and computes w.
func (q *interior) move(i, at int, primal, dual float64) {
	o, cells := q.job(i)
	terms := q.terms[at*q.k:][:len(cells)]
	all, first := 0.0, 0.0
	o.r += primal * o.dr
	o.e += primal * o.de
	o.g += dual * o.dg
	o.f += dual * o.df
	o.re *= 1 - primal
	xl, cx := o.r*o.g+o.e*o.f, 0.0
	kinds, wrong := q.kinds[:len(cells)], q.wrong
	for j := range cells {
		c, z, u := &cells[j], &kinds[j], &terms[j]
		if c.x == 0 {
			u.w = 0
			continue
		}
		x, l := c.x+primal*c.dx, c.l+dual*c.dl
		inverse := 1 / l
		miss := o.g + o.s*z.h - c.c - l - o.f*c.a
		c.x, c.l, c.inverse, c.miss = x, l, inverse, miss
		if miss = math.Abs(miss); miss > wrong {
			wrong = miss
		}
		xl += x * l
		cx += x * c.c
		w := x * inverse
		u.w = w
		all += w
		first += w * c.a
	}
	q.value += o.count * cx
	q.wrong = wrong
	o.byG = 1 / o.g
	if o.f > 0 {
		o.byE, o.byF = 1/o.e, 1/o.f
		q.rt += o.count * o.b * o.f
		if whole := o.e + math.Abs(o.b*q.t) + math.Abs(o.m); math.Abs(o.re) > q.missed*whole {
			q.missed = math.Abs(o.re) / whole
		}
	}
	q.gap += o.count * xl
	o.all, o.mean = all, first/all
}

// eliminate inverts a job's two equations.
func (q *interior) eliminate(i, at int) {
	o, cells := q.job(i)
	terms, mean, all := q.terms[at*q.k:][:len(cells)], o.mean, o.all
	second, sum, row, sumMu, rowMu := 0.0, -o.r, 0.0, o.byG, 0.0
	for j := range cells {
		c, u := &cells[j], &terms[j]
		a := c.a - mean
		p, d := u.w*a, -c.x-u.w*c.miss
		u.p, u.d = p, d
		second += p * a
		sum += d
		row += d * a
		sumMu += c.inverse
		rowMu += c.inverse * a
	}
	o.alpha = o.f * o.byE
	rho, along := o.r*o.byG, o.alpha*second+1
	tilt := rho * o.mean
	one := 1 / (along*(all+rho) + o.alpha*o.mean*tilt*all)
	o.ff, o.fg, o.gg = (all+rho)*one, tilt*one, (along+o.alpha*o.mean*tilt)*one
	zero := o.solve(o.alpha*(-o.mean*o.r-row-o.re)-o.f, sum)
	mu := o.solve(o.alpha*(o.mean*o.byG-rowMu)+o.byE, sumMu)
	o.own[toZero], o.own[perMu] = zero, mu
	cb := o.count * o.b
	q.rhs[toZero] -= cb * zero.df
	q.rhs[perMu] -= cb * mu.df

}

// add adds a job's reduced contribution to the equations of the types and of t.
func (q *interior) add(i, at int) {
	o, cells := q.job(i)
	terms, kinds := q.terms[at*q.k:][:len(cells)], q.kinds[:len(cells)]
	zero, mu := o.own[toZero], o.own[perMu]
	ff, fg, gg := o.alpha*o.ff, o.alpha*o.fg, o.gg
	cb := o.count * o.b
	cs, csb := o.count*o.s, cb*o.s
	css := cs * o.s
	q.tau += cb * o.b * ff
	for j := range cells {
		z, u := &kinds[j], &terms[j]
		p, w := u.p, u.w
		z.P[toZero] += cs * (u.d + p*zero.df - w*zero.dg)
		z.P[perMu] += cs * (cells[j].inverse + p*mu.df - w*mu.dg)
		byP, byW := ff*p+fg*w, fg*p+gg*w
		z.v += csb * byP
		byP *= css
		byW *= css
		line := q.H[j]
		all := terms[:len(line)]
		for m := range line {
			line[m] -= byP*all[m].p + byW*all[m].w
		}
		line[j] += css * w
	}
}

// solve solves a job's two equations for the given right-hand sides if dh and dt are 0.
func (o *part) solve(row, sum float64) own {
	return own{o.ff*row - o.alpha*o.fg*sum, o.gg*sum - o.fg*row}
}

// given computes the change of a job's row and time multipliers, the second relative to the mean,
// from dh, dt and the solution of its own equations.
func (q *interior) given(o *part, cells []cell, own own) {
	kinds, mean := q.kinds[:len(cells)], o.mean
	byTime, byRow := 0.0, 0.0
	for j := range cells {
		c := &cells[j]
		d := c.x * c.inverse * kinds[j].dh
		byTime += d
		byRow += d * (c.a - mean)
	}
	byTime, byRow = o.s*byTime, o.s*byRow+o.b*q.dt
	o.df = own.df + o.alpha*(o.ff*byRow+o.fg*byTime)
	o.dg = own.dg - o.gg*byTime - o.alpha*o.fg*byRow
}

// cholesky replaces H by its triangular factor.
func (q *interior) cholesky() {
	for j, line := range q.H {
		for m, sum := range line {
			for z := range m {
				sum -= line[z] * q.H[m][z]
			}
			if m < j {
				line[m] = sum / q.H[m][m]
			} else {
				if sum <= 1e-14*line[j] { // rounding error: no movement in that direction
					sum = 1e300
				}
				line[j] = math.Sqrt(sum)
			}
		}
	}
}

// backsolve solves H y = y.
func (q *interior) backsolve() {
	y := q.y
	for j, line := range q.H {
		for z := range j {
			y[j] -= line[z] * y[z]
		}
		y[j] /= line[j]
	}
	for j := q.k - 1; j >= 0; j-- {
		for z := j + 1; z < q.k; z++ {
			y[j] -= q.H[z][j] * y[z]
		}
		y[j] /= q.H[j][j]
	}
}

// common solves for the change of the types' multipliers and of t that makes slack times multiplier
// mu, to first order; second is the weight of the predictor's second-order term.
func (q *interior) common(mu, second float64) {
	rhs := q.rhs[toZero] + mu*q.rhs[perMu] + second*q.rhs[secondOrder]
	for j := range q.kinds {
		z := &q.kinds[j]
		q.y[j] = z.P[toZero] + mu*z.P[perMu] + second*z.P[secondOrder]
		if q.gain > 0 {
			q.y[j] += z.v * rhs / q.tau
		}
	}
	q.backsolve()
	for j, y := range q.y {
		q.kinds[j].dh = y
		rhs -= q.kinds[j].v * y
	}
	q.dt = 0
	if q.gain > 0 {
		q.dt = rhs / q.tau
	}
	q.primal, q.dual = 1, 1
}

// predict finds the longest step to 0, its effect on the gap, and its second-order contribution to
// the equations. Where x l is to become 0, dx/x is -1 - dl/l.
func (q *interior) predict() {
	q.common(0, 0)
	q.slope, q.bend, q.rhs[secondOrder] = 0, 0, 0
	for j := range q.kinds {
		z := &q.kinds[j]
		z.dfree = q.toZero(z.free*z.h, z.dh/z.h, 1)
		z.P[secondOrder] = -z.dfree / z.h
	}
	for from := 0; from < q.n; from += block {
		to := min(from+block, q.n)
		for i := from; i < to; i++ {
			o, cells := q.job(i)
			q.given(o, cells, o.own[toZero])
		}
		for i := from; i < to; i++ {
			q.foresee(i, i-from)
		}
		for i := from; i < to; i++ {
			q.addSecond(i, i-from)
		}
	}
	q.primal, q.dual = 1/q.primal, 1/q.dual
}

// toZero accounts for the predictor's step of one slack and its multiplier, of count equal jobs:
// product is slack times multiplier, which is to become 0, and grows the relative change of the
// multiplier. It returns the second-order term, the product of both changes.
func (q *interior) toZero(product, grows, count float64) float64 {
	if 1+grows > q.primal {
		q.primal = 1 + grows
	}
	if -grows > q.dual {
		q.dual = -grows
	}
	first := -product * (1 + grows)
	q.slope += count * first
	q.bend += count * first * grows
	return first * grows
}

// foresee is a job's part of predict.
func (q *interior) foresee(i, at int) {
	o, cells := q.job(i)
	df, dg := o.df, o.dg
	kinds, mean, s := q.kinds[:len(cells)], o.mean, o.s
	terms := q.terms[at*q.k:][:len(cells)]
	least, most := 1-q.primal, q.dual // over all jobs so far: rarely exceeded, so it costs little
	slope, bend, sum, row := 0.0, 0.0, 0.0, 0.0
	for j := range cells {
		c, z := &cells[j], &kinds[j]
		a := c.a - mean
		falls := (a*df - dg - s*z.dh - c.miss) * c.inverse // -dl/l
		if falls < least {
			least = falls
		}
		if falls > most {
			most = falls
		}
		first := c.x * c.l * (falls - 1)
		both := -first * falls
		slope += first
		bend += both
		d := -both * c.inverse
		c.dx, terms[j].d = both, d
		sum += d
		row += d * a
	}
	q.primal, q.dual = 1-least, most
	q.slope += o.count * slope
	q.bend += o.count * bend
	o.dr = q.toZero(o.r*o.g, (dg+o.mean*df)*o.byG, o.count)
	o.de = q.toZero(o.e*o.f, df*o.byF, o.count)
	time := -o.dr * o.byG
	add := o.solve(o.alpha*(o.mean*time-row)-o.de*o.byE, sum+time)
	o.own[secondOrder] = add
	q.rhs[secondOrder] -= o.count * o.b * add.df
}

// addSecond adds a job's second-order contribution to the equations.
func (q *interior) addSecond(i, at int) {
	o, cells := q.job(i)
	add := o.own[secondOrder]
	cs := o.count * o.s
	mean := o.mean
	terms, kinds := q.terms[at*q.k:][:len(cells)], q.kinds[:len(cells)]
	for j := range cells {
		c, z := &cells[j], &kinds[j]
		z.P[secondOrder] += cs * (terms[j].d + c.x*c.inverse*((c.a-mean)*add.df-add.dg))
	}
}

// direction solves for the step itself, see common. Without the second order predict need not have
// been called.
func (q *interior) direction(mu, second float64) {
	q.common(mu, second)
	for j := range q.kinds {
		z := &q.kinds[j]
		if z.dfree = 0; -z.dh > q.dual*z.h {
			q.dual = -z.dh / z.h
		}
	}
	for from := 0; from < q.n; from += block {
		to := min(from+block, q.n)
		for i := from; i < to; i++ {
			o, cells := q.job(i)
			zero, perMu, add := &o.own[toZero], &o.own[perMu], &o.own[secondOrder]
			q.given(o, cells, own{zero.df + mu*perMu.df + second*add.df, zero.dg + mu*perMu.dg + second*add.dg})
		}
		for i := from; i < to; i++ {
			o, cells := q.job(i)
			q.spread(o, cells, mu, second)
		}
	}
	for j := range q.kinds {
		if z := &q.kinds[j]; -z.dfree > q.primal*z.free {
			q.primal = -z.dfree / z.free
		}
	}
	q.primal, q.dual = 1/q.primal, 1/q.dual
}

// spread computes a job's part of the step from those of the types and t.
func (q *interior) spread(o *part, cells []cell, mu, second float64) {
	df, dg := o.df, o.dg
	kinds, mean, s, cs := q.kinds[:len(cells)], o.mean, o.s, o.count*o.s
	primal, dual := q.primal, q.dual
	for j := range cells {
		c, z := &cells[j], &kinds[j]
		if c.x == 0 {
			continue
		}
		falls := (c.a-mean)*df - dg - s*z.dh - c.miss // -dl
		dx := (mu - c.x*c.l - second*c.dx + c.x*falls) * c.inverse
		c.dx, c.dl = dx, -falls
		z.dfree -= cs * dx
		if -dx > primal*c.x {
			primal = -dx / c.x
		}
		if falls > dual*c.l {
			dual = falls / c.l
		}
	}
	q.primal, q.dual = primal, dual
	o.df, o.dg = df, dg+o.mean*df
	o.dr = (mu - o.r*o.g - second*o.dr - o.r*o.dg) * o.byG
	q.far(o.r, o.dr, o.g, o.dg)
	if o.f > 0 {
		o.de = (mu - o.e*o.f - second*o.de - o.e*df) * o.byF
		q.far(o.e, o.de, o.f, df)
	}
}

// far updates the longest step for one slack and its multiplier.
func (q *interior) far(x, dx, l, dl float64) {
	if -dx > q.primal*x {
		q.primal = -dx / x
	}
	if -dl > q.dual*l {
		q.dual = -dl / l
	}
}

// run iterates to the optimum and reports whether it reached it. Steps stay near the central path,
// so that among many optima the point is near the analytic centre of their set.
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
			q.predict()
			after := gap + q.primal*q.slope - q.dual*(gap+q.slope) + q.primal*q.dual*q.bend
			sigma := after / gap
			q.direction(max(sigma*sigma*sigma, centring)*mu, 1)
		}
		if near && q.primal < 0.9 || q.primal < 1e-9 && q.dual < 1e-9 {
			return steps, near // the rest is rounding error
		}
		primal, dual = 0.99*q.primal, 0.99*q.dual
	}
	return steps, false
}

// tidy returns the shares, scaled so that rounding does not exceed a limit.
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
