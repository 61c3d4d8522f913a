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
// predictor and corrector) on a linear. Slack and multiplier of each inequality:
// x and l; e and f of the job's row; r and g of its time; c and h of a type.
// Only the rows may be violated on the way.
//
// A step solves, with alpha = f/e, beta = g/r, w = x/l,
//
//	B_i dx_i + s_i dh - b_i alpha_i a_i dt = R_i,  B_i = diag(1/w_i) + alpha a a' + beta 1 1'
//
// for each job, and one equation for each type and for t. Near the optimum w,
// alpha and beta are very large or very small, and the usual formulas for the
// inverse of a diagonal with two rank-one terms lose all digits. Its determinant,
// and what else is needed of it, are sums of positive terms (Cauchy-Binet), and
// are computed as such.
type interior struct {
	*linear
	x, l, dx, dl, tx, R, rx []float64 // per job and type
	w, ya, y1               []float64 // ... and B^-1 a, B^-1 1
	e, f, de, df, te, re    []float64 // per job
	r, g, dr, dg, tr        []float64
	free, h, dfree, dh, tc  []float64 // per type
	H, v, p                 []float64 // the types' equations
	P                       []float64 // terms of a determinant
	t, dt, rt, tau, rhs     float64
	size                    float64 // number of inequalities
	unit                    float64 // what multipliers are like
}

// How exact a solution is: the gap between it and the bound of its multipliers,
// relative to its value. The arithmetic's own errors show far below.
const (
	tolerance = 1e-7
	maxSteps  = 200
)

// newInterior is a point inside of all inequalities; rows may be violated.
func newInterior(p *linear) *interior {
	n, k := p.n, p.k
	per := func(size, lists int) (all [][]float64) {
		block := make([]float64, size*lists)
		for i := range lists {
			all = append(all, block[i*size:(i+1)*size:(i+1)*size])
		}
		return all
	}
	q := &interior{linear: p}
	for i, s := range per(n*k, 10) {
		*[]*[]float64{&q.x, &q.l, &q.dx, &q.dl, &q.tx, &q.R, &q.rx, &q.w, &q.ya, &q.y1}[i] = s
	}
	for i, s := range per(n, 11) {
		*[]*[]float64{&q.e, &q.f, &q.de, &q.df, &q.te, &q.re, &q.r, &q.g, &q.dr, &q.dg, &q.tr}[i] = s
	}
	for i, s := range per(k, 7) {
		*[]*[]float64{&q.free, &q.h, &q.dfree, &q.dh, &q.tc, &q.v, &q.p}[i] = s
	}
	q.H, q.P = make([]float64, k*k), make([]float64, k*k)
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
	for i := range q.n {
		q.r[i] = 1
		for j := range k {
			if !q.open[i*k+j] {
				continue
			}
			x := 0.5 * min(1/float64(k), q.W[j]/want[j])
			q.x[i*k+j] = x
			q.r[i] -= x
			q.free[j] -= q.count[i] * q.s[i] * x
		}
	}
	q.startRows()
	unit := q.price(jobs) / jobs
	q.unit = unit
	for i := range q.n {
		q.g[i], q.size = unit, q.size+q.count[i]
		if q.row[i] {
			q.size += q.count[i]
			if q.f[i] = unit; q.gain > 0 {
				q.f[i] = 1 / jobs
			}
		}
		for j := range k {
			if q.open[i*k+j] {
				q.l[i*k+j], q.size = unit, q.size+q.count[i]
			}
		}
	}
	for j := range k {
		q.h[j] = unit
		q.size++
	}
}

// price is the size of what the time of all of so many jobs is worth: the mean
// coefficient.
func (q *interior) price(jobs float64) float64 {
	sum, n := 0.0, 0.0
	for i := range q.n {
		for j := range q.k {
			if ij := i*q.k + j; q.open[ij] {
				sum, n = sum+q.count[i]*(q.c[ij]*jobs+q.a[ij]*q.gain), n+q.count[i]
			}
		}
	}
	if sum <= 0 {
		return 1
	}
	return sum / n
}

// startRows chooses t and the rows' slacks.
func (q *interior) startRows() {
	k, first := q.k, true
	for i := range q.n {
		if q.row[i] && q.b[i] > 0 {
			if t := (0.5*dot(q.a[i*k:(i+1)*k], q.x[i*k:(i+1)*k]) - q.m[i]) / q.b[i]; first || t < q.t {
				q.t, first = t, false
			}
		}
	}
	for i := range q.n {
		if q.row[i] {
			ax := dot(q.a[i*k:(i+1)*k], q.x[i*k:(i+1)*k])
			q.e[i] = max(ax-q.b[i]*q.t-q.m[i], 0.1*ax)
			q.re[i] = ax - q.b[i]*q.t - q.m[i] - q.e[i]
		}
	}
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// residuals computes by how much the equations are missed, and mu, the mean
// product of slack and multiplier.
func (q *interior) residuals() (mu, primal, dual float64) {
	k := q.k
	q.rt = -q.gain
	for i := range q.n {
		at, xl := i*k, 0.0
		for j := range k {
			ij := at + j
			if x := q.x[ij]; x > 0 {
				rx := q.g[i] + q.s[i]*q.h[j] - q.c[ij] - q.l[ij] - q.f[i]*q.a[ij]
				q.rx[ij] = rx
				dual = max(dual, math.Abs(rx))
				xl += x * q.l[ij]
			}
		}
		xl += q.r[i] * q.g[i]
		if q.row[i] {
			q.rt += q.count[i] * q.b[i] * q.f[i]
			primal = max(primal, math.Abs(q.re[i])/(q.e[i]+math.Abs(q.b[i]*q.t)+math.Abs(q.m[i])))
			xl += q.e[i] * q.f[i]
		}
		mu += q.count[i] * xl
	}
	for j := range k {
		mu += q.free[j] * q.h[j]
	}
	return mu / q.size, primal, max(dual, math.Abs(q.rt))
}

// ratios returns alpha and beta of a job.
func (q *interior) ratios(i int) (alpha, beta float64) {
	if q.row[i] {
		alpha = q.f[i] / q.e[i]
	}
	return alpha, q.g[i] / q.r[i]
}

// factor prepares the equations: H, v and tau are those of the types and of t
// after the jobs have been eliminated.
func (q *interior) factor() {
	k := q.k
	clear(q.H)
	clear(q.v)
	q.tau = 0
	for i := range q.n {
		at := i * k
		x, l, a, w := q.x[at:at+k], q.l[at:at+k], q.a[at:at+k], q.w[at:at+k]
		alpha, beta := q.ratios(i)
		all := 0.0
		for j := range k {
			if w[j] = 0; x[j] > 0 {
				w[j] = x[j] / l[j]
				all += w[j]
			}
		}
		det := q.determinant(w, a, alpha, beta)
		ya, y1, one := q.ya[at:at+k], q.y1[at:at+k], 1/det
		for j := range k {
			da, d1 := 0.0, 0.0
			for m := range k {
				d := w[m] * (a[j] - a[m])
				da += d
				d1 -= d * a[m]
			}
			ya[j], y1[j] = w[j]*(a[j]+beta*da)*one, w[j]*(1+alpha*d1)*one
		}
		q.tau += q.count[i] * q.b[i] * q.b[i] * alpha * (1 + beta*all) * one
		sb := q.count[i] * q.s[i] * q.b[i] * alpha
		for j := range k {
			q.v[j] += sb * ya[j]
		}
		q.inverse(w, a, alpha, beta, q.count[i]*q.s[i]*q.s[i]*one)
	}
	for j := range k {
		q.H[j*k+j] += q.free[j] / q.h[j]
	}
	q.cholesky()
}

// determinant is that of 1 + diag(w) (alpha a a' + beta 1 1'). It leaves its terms
// in P: of one type on the diagonal, of two types below.
func (q *interior) determinant(w, a []float64, alpha, beta float64) float64 {
	k, det, both := q.k, 1.0, alpha*beta
	for j := range k {
		P := q.P[j*k : j*k+j+1]
		wb := both * w[j]
		for m := range j {
			d := a[j] - a[m]
			P[m] = wb * w[m] * d * d
			det += P[m]
		}
		P[j] = w[j] * (alpha*a[j]*a[j] + beta)
		det += P[j]
	}
	return det
}

// inverse adds by times the determinant times B^-1 to H: its entries are
// determinants of fewer types.
func (q *interior) inverse(w, a []float64, alpha, beta, by float64) {
	k, both := q.k, alpha*beta
	for j := range k {
		if w[j] == 0 {
			continue
		}
		H, wj, aj := q.H[j*k:j*k+j+1], by*w[j], a[j]
		for m := range j {
			off := 0.0
			for z := range k {
				off += w[z] * (aj - a[z]) * (a[m] - a[z])
			}
			H[m] -= wj * w[m] * (beta + alpha*aj*a[m] + both*off)
		}
		rest := 1.0
		for m := range k {
			if m == j {
				continue
			}
			P := q.P[m*k : m*k+m+1]
			for z := range P {
				if z != j {
					rest += P[z]
				}
			}
		}
		H[j] += wj * rest
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
				H[j*k+j] = math.Sqrt(max(sum, 1e-300))
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

// direction solves for a step after which slack times multiplier has changed by
// tx, te, tr and tc, to first order.
func (q *interior) direction() {
	q.gather()
	if q.gain > 0 {
		Hv := make([]float64, q.k)
		copy(Hv, q.v)
		q.backsolve(Hv)
		q.backsolve(q.p)
		q.dt = (q.rhs - dot(q.v, q.p)) / (q.tau + dot(q.v, Hv))
		for j := range q.k {
			q.dh[j] = q.p[j] + Hv[j]*q.dt
		}
	} else {
		q.backsolve(q.p)
		copy(q.dh, q.p)
	}
	q.spread()
}

// gather computes the right sides of the jobs, and what is left of them for the
// types and t.
func (q *interior) gather() {
	k := q.k
	for j := range k {
		q.p[j] = q.tc[j] / q.h[j]
	}
	q.rhs = -q.rt
	for i := range q.n {
		at := i * k
		x, a, w, R, tx, rx := q.x[at:at+k], q.a[at:at+k], q.w[at:at+k], q.R[at:at+k], q.tx[at:at+k], q.rx[at:at+k]
		alpha, beta := q.ratios(i)
		row, base := 0.0, -q.tr[i]/q.r[i]
		if q.row[i] {
			row = q.te[i]/q.e[i] - alpha*q.re[i]
			q.rhs -= q.count[i] * q.b[i] * row
		}
		for j := range k {
			if x[j] > 0 {
				R[j] = base - rx[j] + tx[j]/x[j] + a[j]*row
			}
		}
		ax, sum := alpha*dot(q.ya[at:at+k], R), beta*dot(q.y1[at:at+k], R)
		cs := q.count[i] * q.s[i]
		q.rhs += q.count[i] * q.b[i] * ax
		for j := range k {
			q.p[j] += cs * w[j] * (R[j] - a[j]*ax - sum)
		}
	}
}

// spread computes the jobs' parts of the step from those of the types and t.
func (q *interior) spread() {
	k := q.k
	clear(q.dfree)
	for i := range q.n {
		at := i * k
		x, l, a, w, R, tx := q.x[at:at+k], q.l[at:at+k], q.a[at:at+k], q.w[at:at+k], q.R[at:at+k], q.tx[at:at+k]
		dx, dl := q.dx[at:at+k], q.dl[at:at+k]
		alpha, beta := q.ratios(i)
		step := q.b[i] * alpha * q.dt
		for j := range k {
			R[j] += a[j]*step - q.s[i]*q.dh[j]
		}
		ax, sum := dot(q.ya[at:at+k], R), dot(q.y1[at:at+k], R)
		pull, push, cs := alpha*ax, beta*sum, q.count[i]*q.s[i]
		for j := range k {
			dx[j] = w[j] * (R[j] - a[j]*pull - push)
		}
		exact(dx, w, a, alpha, beta, ax, sum)
		for j := range k {
			if x[j] > 0 {
				dl[j] = (tx[j] - l[j]*dx[j]) / x[j]
				q.dfree[j] -= cs * dx[j]
			}
		}
		q.dr[i] = -sum
		q.dg[i] = (q.tr[i] - q.g[i]*q.dr[i]) / q.r[i]
		if q.row[i] {
			q.de[i] = ax - q.b[i]*q.dt + q.re[i]
			q.df[i] = (q.te[i] - q.f[i]*q.de[i]) / q.e[i]
		}
	}
}

// exact has a job's step add up: sum_j dx_j = sum, a.dx = ax. Where w is large, dx
// is the small difference of large terms, but sum and ax are known to the last
// digits; whichever of the two is tight, the one or two types that the job uses
// most follow from it.
func exact(dx, w, a []float64, alpha, beta, ax, sum float64) {
	first, second, most := 0, -1, 0.0
	for j := range w {
		if w[j] > w[first] {
			first = j
		}
	}
	for j := range w {
		d := a[j] - a[first]
		if m := w[j] * d * d; m > most {
			second, most = j, m
		}
		sum -= dx[j]
		ax -= a[j] * dx[j]
	}
	w1, a1 := w[first], a[first]
	byTime, byRow := beta*w1, alpha*a1*a1*w1
	switch {
	case alpha*beta*w1*most > 1+byTime+byRow:
		d := (ax - a1*sum) / (a[second] - a1)
		dx[second] += d
		dx[first] += sum - d
	case byTime >= byRow && byTime > 1:
		dx[first] += sum
	case byRow > 1:
		dx[first] += ax / a1
	}
}

// reach is how far the step can go, at most 1, before a slack or a multiplier
// is 0.
func (q *interior) reach() (primal, dual float64) {
	worst := func(v, d []float64) float64 {
		w := 0.0
		for i, v := range v {
			if d := d[i]; d < 0 && -d > w*v && v > 0 {
				w = -d / v
			}
		}
		return w
	}
	p := max(worst(q.x, q.dx), worst(q.r, q.dr), worst(q.e, q.de), worst(q.free, q.dfree))
	d := max(worst(q.l, q.dl), worst(q.g, q.dg), worst(q.f, q.df), worst(q.h, q.dh))
	return 1 / max(1, p), 1 / max(1, d)
}

// after is mu after a step.
func (q *interior) after(primal, dual float64) float64 {
	mu := 0.0
	for i := range q.n {
		at, sum := i*q.k, 0.0
		for ij := at; ij < at+q.k; ij++ {
			sum += (q.x[ij] + primal*q.dx[ij]) * (q.l[ij] + dual*q.dl[ij])
		}
		sum += (q.r[i] + primal*q.dr[i]) * (q.g[i] + dual*q.dg[i])
		sum += (q.e[i] + primal*q.de[i]) * (q.f[i] + dual*q.df[i])
		mu += q.count[i] * sum
	}
	for j := range q.k {
		mu += (q.free[j] + primal*q.dfree[j]) * (q.h[j] + dual*q.dh[j])
	}
	return mu / q.size
}

// targets sets by how much each product is to change, so that it becomes mu; with
// second, what the last direction says of the products' second order is taken
// into account.
func (q *interior) targets(mu float64, second bool) {
	z := 0.0
	if second {
		z = 1
	}
	set := func(t, v, w, dv, dw []float64) {
		for i := range t {
			t[i] = mu - v[i]*w[i] - z*dv[i]*dw[i]
		}
	}
	set(q.tx, q.x, q.l, q.dx, q.dl)
	set(q.te, q.e, q.f, q.de, q.df)
	set(q.tr, q.r, q.g, q.dr, q.dg)
	set(q.tc, q.free, q.h, q.dfree, q.dh)
}

// move takes the step.
func (q *interior) move(primal, dual float64) {
	add := func(v, d []float64, by float64) {
		for i := range v {
			v[i] += by * d[i]
		}
	}
	add(q.x, q.dx, primal)
	add(q.r, q.dr, primal)
	add(q.e, q.de, primal)
	add(q.free, q.dfree, primal)
	add(q.l, q.dl, dual)
	add(q.g, q.dg, dual)
	add(q.f, q.df, dual)
	add(q.h, q.dh, dual)
	q.t += primal * q.dt
	for i := range q.re {
		q.re[i] *= 1 - primal
	}
}

// value is the objective at the present point.
func (q *interior) value() float64 {
	sum := q.gain * q.t
	for i := range q.n {
		sum += q.count[i] * dot(q.c[i*q.k:(i+1)*q.k], q.x[i*q.k:(i+1)*q.k])
	}
	return sum
}

// run goes to the optimum and reports whether it got there. Steps stay near the
// central path, so that where there are many optima the point is near the
// analytic centre of their set.
func (q *interior) run() (steps int, ok bool) {
	recentre := 1e-2
	for steps = range maxSteps {
		mu, primal, dual := q.residuals()
		scale := math.Abs(q.value())
		gap := mu * q.size
		near := gap < 10*tolerance*scale && primal < 10*tolerance && dual < 1e-6*q.unit
		if near && gap < tolerance*scale || math.IsNaN(mu) {
			return steps, near
		}
		q.factor()
		q.targets(0, false)
		q.direction()
		p, d := q.reach()
		sigma := q.after(p, d) / mu
		sigma = max(sigma*sigma*sigma, centring)
		if gap < recentre*scale {
			recentre, sigma = recentre/1e2, 1
		}
		q.targets(sigma*mu, true)
		q.direction()
		p, d = q.reach()
		if near && p < 0.9 || p < 1e-9 && d < 1e-9 {
			return steps, near // what is left is lost in the arithmetic
		}
		q.move(0.99*p, 0.99*d)
	}
	return steps, false
}

// tidy takes the last digits from the shares that would be too much.
func (q *interior) tidy() {
	k, full := q.k, make([]float64, q.k)
	for i := range q.n {
		x, sum := q.x[i*k:(i+1)*k], 0.0
		for j := range k {
			sum += x[j]
		}
		for j := range k {
			x[j] /= max(1, sum)
			full[j] += q.count[i] * q.s[i] * x[j]
		}
	}
	for ij := range q.x {
		q.x[ij] /= max(1, full[ij%k]/q.W[ij%k])
	}
}

// centring is the least part of mu that a step keeps: more leads to a point
// nearer to the centre, in more steps.
const centring = 0.05
