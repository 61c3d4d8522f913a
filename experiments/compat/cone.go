package compat

import "math"

// The simulators of Gavel and Muri divide GPUs by a program that a solver for cone programs solves.
// Where many divisions are optimal, the solver's path selects one: their figures are those of one
// particular solver. This is its method, a primal-dual interior-point method on the homogeneous
// self-dual embedding of
//
//	minimise c.x  subject to  G x + s = h,  s in a product of half lines and cones
//	(s0 >= |(s1, s2)|),
//
// with Nesterov-Todd scalings, Mehrotra's predictor-corrector, three rounds of Ruiz equilibration
// and the constants of ECOS 2 (Domahidi, Chu, Boyd: ECOS, an SOCP solver for embedded systems, ECC
// 2013). ECOS solves general sparse systems; here they have the structure of these programs: each
// job has variables and rows of its own, and shares one variable, the value, and the capacity rows
// with the others.

const (
	coneModels = 3              // maximum number of GPU models
	coneVars   = coneModels + 1 // per job: its time on each model, and the inverse of its speed
	coneLines  = coneModels + 2 // half lines per job: times >= 0, their sum, the bound of the value
	coneRows   = coneLines + 3  // ... and its cone

	coneTolerance = 1e-8 // for residuals, and for the gap, absolute or relative
	coneRough     = 1e-4 // ... for residuals, and
	coneRoughGap  = 5e-5 // ... for the gap, when progress stops
	coneSteps     = 100
	coneBack      = 0.99 // part of the way to the boundary
	coneStepMin   = 1e-6
	coneStepMax   = 0.999
	coneSigmaMin  = 1e-4
	coneWorse     = 500   // growth of the residuals at which progress has stopped
	coneTiny      = 1e-13 // smallest divisor
	coneRuiz      = 3
	coneRefine    = 9     // maximum rounds of iterative refinement
	coneAccurate  = 1e-14 // ... or until this accuracy
	coneMends     = 6     // ... or until the improvement is below this factor
)

// coneJob is a job of a program: the value is at least limit.(its variables) + offset.
type coneJob struct {
	limit  [coneVars]float64 // by its time on each model, and by the inverse of its speed
	offset float64
	speed  [coneModels]float64 // on each model, if its inverse matters
	gpus   float64
}

// coneProgram is a program with the state of its solution. Variables are ordered by job, followed
// by the value; rows are the jobs' half lines, the capacities, and the jobs' cones.
type coneProgram struct {
	models, vars, lines int // of each job
	cones               int // number of cones: one per job, or none
	rows                int // total number of half lines

	g     []coneBlock
	h     []float64
	cost  float64 // of the value: all other costs are zero
	byCol []float64
	sizeH float64
	sizeC float64

	x, s, z    []float64
	tau, kappa float64
	state      coneState
	rx, rz     []float64 // residuals
	rt         float64
	best       conePoint

	w2     []float64 // squared scalings of half lines
	scales []coneScale
	lambda []float64
	parts  []conePart
	schur  [1 + coneModels][1 + coneModels]float64

	ax, az, bx, bz []float64 // directions: for the constants, and for the step
	ex, ez         []float64 // right-hand sides
	ox, oz, cx, cz []float64 // residual of a system's solution, and its correction
	fz             []float64
	wdz, dsw       []float64 // scaled directions of z and s
}

// coneBlock is a job's part of G: its rows by its variables and the value (the last column), and
// what its time on each model takes of the capacity.
type coneBlock struct {
	row [coneRows][coneVars + 1]float64
	use [coneModels]float64
}

// conePoint is a solution that may be restored.
type conePoint struct {
	x          []float64
	tau, kappa float64
	state      coneState
}

// coneState measures a solution.
type coneState struct {
	gap, mu, ratio float64 // ratio is kappa over tau
	relative       float64 // relative gap; NaN if the costs have the wrong sign
	primal, dual   float64 // residuals
	noPrimal       float64 // residual of a proof of infeasibility; NaN: none
	good           bool    // the costs have the sign of a solution
}

// newConeProgram is the program that minimizes the value with at most room GPUs of each model in
// use at a time; cones: inverses of speeds matter.
func newConeProgram(jobs []coneJob, room []float64, cones bool) *coneProgram {
	k := len(room)
	p := &coneProgram{models: k, vars: k, lines: k + 2, rows: len(jobs)*(k+2) + k, g: make([]coneBlock, len(jobs)),
		parts: make([]conePart, len(jobs))}
	if cones {
		p.vars, p.cones = k+1, len(jobs)
	}
	n, m := len(jobs)*p.vars+1, p.rows+3*p.cones
	p.scales = make([]coneScale, p.cones)
	for _, v := range []*[]float64{&p.byCol, &p.x, &p.rx, &p.ax, &p.bx, &p.ex, &p.ox, &p.cx, &p.best.x} {
		*v = make([]float64, n)
	}
	for _, v := range []*[]float64{&p.h, &p.s, &p.z, &p.rz, &p.w2, &p.lambda, &p.az, &p.bz, &p.ez, &p.oz, &p.cz, &p.fz,
		&p.wdz, &p.dsw} {
		*v = make([]float64, m)
	}
	copy(p.h[len(jobs)*p.lines:], room)
	for i, j := range jobs {
		b, bound := &p.g[i], k+1
		for c := range k {
			b.row[c][c], b.row[k][c], b.use[c] = -1, 1, j.gpus
		}
		for c := range p.vars {
			b.row[bound][c] = j.limit[c]
		}
		b.row[bound][p.vars] = -1
		p.h[i*p.lines+k], p.h[i*p.lines+bound] = 1, -j.offset
		if cones { // speed + u >= |(speed - u, 2)|: u is at least the inverse of the speed
			for c := range k {
				b.row[p.lines][c], b.row[p.lines+1][c] = -j.speed[c], -j.speed[c]
			}
			b.row[p.lines][k], b.row[p.lines+1][k] = -1, 1
			p.h[p.rows+3*i+2] = 2
		}
	}
	p.cost = 1
	return p
}

// equilibrate alternately divides rows and columns by the square roots of their largest entries.
func (p *coneProgram) equilibrate() {
	fill(p.byCol, 1)
	rows, cols := make([]float64, len(p.h)), make([]float64, len(p.x))
	last := len(cols) - 1
	each := func(f func(r, c int, v *float64)) {
		for i := range p.g {
			b := &p.g[i]
			for r := range coneRows {
				row := i*p.lines + r
				if r >= p.lines {
					row = p.rows + 3*i + r - p.lines
				}
				if r >= p.lines+3 || r >= p.lines && p.cones == 0 {
					break
				}
				for c := range p.vars {
					f(row, i*p.vars+c, &b.row[r][c])
				}
				f(row, last, &b.row[r][p.vars])
			}
			for k := range p.models {
				f(len(p.g)*p.lines+k, i*p.vars+k, &b.use[k])
			}
		}
	}
	for range coneRuiz {
		clear(rows)
		clear(cols)
		each(func(r, c int, v *float64) {
			rows[r], cols[c] = max(rows[r], math.Abs(*v)), max(cols[c], math.Abs(*v))
		})
		for i := p.rows; i < len(rows); i += 3 { // the rows of a cone keep their ratio
			fill(rows[i:i+3], rows[i]+rows[i+1]+rows[i+2])
		}
		for _, by := range [][]float64{rows, cols} {
			for i, v := range by {
				if by[i] = math.Sqrt(v); v < 1e-6 {
					by[i] = 1
				}
			}
		}
		each(func(r, c int, v *float64) { *v = *v / rows[r] / cols[c] })
		for i, v := range rows {
			p.h[i] /= v
		}
		for i, v := range cols {
			p.byCol[i] *= v
		}
	}
	p.cost /= p.byCol[last]
}

func fill(v []float64, by float64) {
	for i := range v {
		v[i] = by
	}
}

// plus is a += f b.
func plus(a []float64, f float64, b []float64) {
	for i, v := range b {
		a[i] += f * v
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

func norm(a []float64) float64 { return math.Sqrt(dot(a, a)) }

// over is a/b for positive b, which rounding may have made smaller than coneTiny.
func over(a, b float64) float64 { return a / max(b, coneTiny) }

// solve returns the variables, ordered by job, and the value. ok is false if the solver fails even
// to find an approximate solution.
func (p *coneProgram) solve() (x []float64, ok bool) {
	p.equilibrate()
	p.sizeC, p.sizeH = max(1, math.Abs(p.cost)), max(1, norm(p.h))
	p.begin()
	ok = p.walk()
	for i := range p.x {
		p.x[i] /= p.byCol[i] * p.tau
	}
	return p.x, ok
}

// walk iterates until the solution is good enough or stops improving; then the best solution so far
// counts if it is approximately good enough.
func (p *coneProgram) walk() bool {
	s, before, step := &p.state, math.NaN(), 1.0
	for n := range coneSteps + 1 {
		p.residuals()
		if n > 0 && (s.primal > coneWorse*before || s.gap < 0) {
			return p.settle()
		}
		before = s.primal
		if done, ok := p.done(coneTolerance, coneTolerance); done {
			return ok
		}
		if n > 0 && step == coneStepMin*coneBack || n == coneSteps && !s.better(&p.best.state) {
			return p.settle()
		}
		if n == coneSteps {
			break
		}
		if n == 0 || s.better(&p.best.state) {
			copy(p.best.x, p.x)
			p.best.tau, p.best.kappa, p.best.state = p.tau, p.kappa, p.state
		}
		if !p.rescale() {
			return p.settle()
		}
		p.factor()
		step = p.step()
	}
	_, ok := p.done(coneRough, coneRoughGap)
	return ok
}

// settle restores the best point.
func (p *coneProgram) settle() bool {
	copy(p.x, p.best.x)
	p.tau, p.kappa, p.state = p.best.tau, p.best.kappa, p.best.state
	_, ok := p.done(coneRough, coneRoughGap)
	return ok
}

// done reports whether the iteration is complete, and whether it found a solution or a proof that
// there is none.
func (p *coneProgram) done(tolerance, gap float64) (done, ok bool) {
	s := &p.state
	if s.good && s.primal < tolerance && s.dual < tolerance && (s.gap < gap || s.relative < gap) {
		return true, true
	}
	return s.noPrimal < tolerance, false
}

// better compares two states, as ECOS does.
func (s *coneState) better(o *coneState) bool {
	less := func(a, b float64) bool { return a > 0 && b > 0 && a < b }
	if math.IsNaN(s.noPrimal) || s.ratio <= 1 {
		return less(s.gap, o.gap) && less(s.primal, o.primal) && less(s.dual, o.dual) && less(s.ratio, o.ratio) &&
			less(s.mu, o.mu)
	}
	return less(s.gap, o.gap) && less(s.mu, o.mu) && (math.IsNaN(o.noPrimal) || s.noPrimal > 0 && s.noPrimal < o.primal)
}

// residuals computes the residuals of the solution.
func (p *coneProgram) residuals() {
	last, s := len(p.x)-1, &p.state
	p.across(p.z, p.rx)
	for i := range p.rx {
		p.rx[i] = -p.rx[i]
	}
	sizeGz := norm(p.rx)
	p.rx[last] -= p.cost * p.tau
	p.times(p.x, p.rz)
	plus(p.rz, 1, p.s)
	plus(p.rz, -p.tau, p.h)
	cx, hz := p.cost*p.x[last], dot(p.h, p.z)
	p.rt = p.kappa + cx + hz
	s.gap = dot(p.s, p.z)
	s.mu = (s.gap + p.kappa*p.tau) / (float64(p.rows+p.cones) + 1)
	s.ratio = p.kappa / p.tau
	s.good = cx < 0 || hz <= coneTolerance
	switch s.relative = math.NaN(); {
	case cx < 0:
		s.relative = s.gap * p.tau / -cx
	case hz < 0:
		s.relative = s.gap * p.tau / -hz
	}
	sizeX, sizeS, sizeZ := norm(p.x), norm(p.s), norm(p.z)
	s.primal = norm(p.rz) / max(p.sizeH+sizeX+sizeS, 1) / p.tau
	s.dual = norm(p.rx) / max(p.sizeC+sizeZ, 1) / p.tau
	if s.noPrimal = math.NaN(); hz/max(sizeZ, 1) < -coneTolerance {
		s.noPrimal = sizeGz / max(sizeZ, 1)
	}
}

// begin is Mehrotra's starting point: least squares of the rows, moved into the cones.
func (p *coneProgram) begin() {
	fill(p.w2, 1)
	for i := range p.scales {
		p.scales[i] = coneScale{eta: 1, ratio: 1, d: [2]float64{1, 0}}
	}
	p.factor()
	p.system(p.ex, p.h, p.x, p.az)
	for i, v := range p.az {
		p.s[i] = -v
	}
	p.inside(p.s)
	p.ex[len(p.ex)-1] = -p.cost
	p.system(p.ex, p.ez, p.ax, p.z)
	p.inside(p.z)
	p.tau, p.kappa = 1, 1
}

// inside moves a point along the cones' unit vector until it lies in them.
func (p *coneProgram) inside(v []float64) {
	out := -coneBack
	for _, a := range v[:p.rows] {
		if a <= 0 {
			out = max(out, -a)
		}
	}
	for i := p.rows; i < len(v); i += 3 {
		if a := v[i] - math.Hypot(v[i+1], v[i+2]); a <= 0 {
			out = max(out, -a)
		}
	}
	for i := range p.rows {
		v[i] += 1 + out
	}
	for i := p.rows; i < len(v); i += 3 {
		v[i] += 1 + out
	}
}
