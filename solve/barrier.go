package solve

import "math"

// barrier is a primal-dual interior-point method (Mehrotra's predictor-corrector) for max c x +
// gain t, A x + g t = b, x >= 0, where every row has a slack and every column few entries. Its
// normal equations, A D A' with D = x/z, are solved by a Cholesky factorization within the rows'
// envelopes: entries before a row's first nonzero are never touched.
type barrier struct {
	rows    int
	start   []int // first entry of each column
	row     []int
	by      []float64
	c       []float64 // per column; 0 for columns beyond its length
	gain    float64
	b, free []float64 // right-hand sides, and the column of t
	x, z    []float64 // per column: the point, and the multiplier of x >= 0
	dx, dz  []float64
	rd, rc  []float64
	y, dy   []float64 // per row
	rp, q   []float64
	Ng      []float64 // solution of the normal equations for the column of t
	first   []int     // first column of each row's envelope
	N       [][]float64
	t, dt   float64
	rg      float64
}

func newBarrier(rows int) *barrier {
	e := &barrier{rows: rows, start: []int{0}}
	for _, v := range []*[]float64{&e.b, &e.free, &e.y, &e.dy, &e.rp, &e.q, &e.Ng} {
		*v = make([]float64, rows)
	}
	return e
}

// add appends a column with initial value x.
func (e *barrier) add(x float64, rows []int, by []float64) {
	e.x = append(e.x, x)
	e.row, e.by = append(e.row, rows...), append(e.by, by...)
	e.start = append(e.start, len(e.row))
}

// sums returns A x.
func (e *barrier) sums() []float64 {
	sum := make([]float64, e.rows)
	for c, x := range e.x {
		for i := e.start[c]; i < e.start[c+1]; i++ {
			sum[e.row[i]] += e.by[i] * x
		}
	}
	return sum
}

// begin sets the first multipliers, positive or negative by row, and lays out the normal equations.
func (e *barrier) begin(positive []bool) {
	n := len(e.x)
	for _, v := range []*[]float64{&e.z, &e.dx, &e.dz, &e.rd, &e.rc} {
		*v = make([]float64, n)
	}
	unit, above := 0.0, 0.0
	for _, up := range positive {
		if up {
			above++
		}
	}
	for _, v := range e.c {
		unit += v / float64(len(e.c))
	}
	unit += e.gain / max(1, above)
	for row, up := range positive {
		if e.y[row] = -unit; up {
			e.y[row] = unit
		}
	}
	for c := range e.x {
		e.z[c] = max(unit, -e.column(c, e.y))
	}
	e.first, e.N = make([]int, e.rows), make([][]float64, e.rows)
	for row := range e.first {
		e.first[row] = row
	}
	for c := range e.x {
		list := e.row[e.start[c]:e.start[c+1]]
		least := e.rows
		for _, row := range list {
			least = min(least, row)
		}
		for _, row := range list {
			e.first[row] = min(e.first[row], least)
		}
	}
	for row := range e.N {
		e.N[row] = make([]float64, row-e.first[row]+1)
	}
}

// column returns the product of a column and a vector over the rows.
func (e *barrier) column(c int, y []float64) (sum float64) {
	for i := e.start[c]; i < e.start[c+1]; i++ {
		sum += e.by[i] * y[e.row[i]]
	}
	return sum
}

// residuals computes the residuals of the equations, and the sum of x z.
func (e *barrier) residuals() (gap, primal, dual float64) {
	for row, s := range e.sums() {
		e.rp[row] = e.b[row] - e.free[row]*e.t - s
	}
	for c, x := range e.x {
		gap += x * e.z[c]
		e.rd[c] = -e.column(c, e.y) - e.z[c]
		if c < len(e.c) {
			e.rd[c] -= e.c[c]
		}
		dual = max(dual, math.Abs(e.rd[c]))
	}
	for row, r := range e.rp {
		primal = max(primal, math.Abs(r)/(1+math.Abs(e.b[row])))
	}
	e.rg = -e.gain - dot(e.free, e.y)
	return gap, primal, max(dual, math.Abs(e.rg))
}

// factor factorizes the normal equations.
func (e *barrier) factor() {
	for _, r := range e.N {
		clear(r)
	}
	for c, x := range e.x {
		d := x / e.z[c]
		for i := e.start[c]; i < e.start[c+1]; i++ {
			row, v := e.row[i], d*e.by[i]
			line, first := e.N[row], e.first[row]
			for k := e.start[c]; k < e.start[c+1]; k++ {
				if e.row[k] <= row {
					line[e.row[k]-first] += v * e.by[k]
				}
			}
		}
	}
	for i, line := range e.N {
		from := e.first[i]
		for j := from; j < i; j++ {
			other, lower := e.N[j], max(from, e.first[j])
			sum := line[j-from] - dot(line[lower-from:j-from], other[lower-e.first[j]:j-e.first[j]])
			line[j-from] = sum / other[j-e.first[j]]
		}
		last, pivot := i-from, line[i-from]
		// Smaller pivots are rounding errors.
		line[last] = math.Sqrt(max(pivot-dot(line[:last], line[:last]), 1e-14*pivot))
	}
	copy(e.Ng, e.free)
	e.backsolve(e.Ng)
}

// backsolve solves the factorized equations for a right-hand side.
func (e *barrier) backsolve(y []float64) {
	for i, line := range e.N {
		last := len(line) - 1
		y[i] = (y[i] - dot(line[:last], y[e.first[i]:i])) / line[last]
	}
	for i := e.rows - 1; i >= 0; i-- {
		line := e.N[i]
		last := len(line) - 1
		y[i] /= line[last]
		for k, v := range line[:last] {
			y[e.first[i]+k] -= v * y[i]
		}
	}
}

// direction solves for a step that changes x z by rc, to first order.
func (e *barrier) direction() {
	copy(e.q, e.rp)
	for c, x := range e.x {
		v := (e.rc[c] - x*e.rd[c]) / e.z[c]
		for i := e.start[c]; i < e.start[c+1]; i++ {
			e.q[e.row[i]] -= e.by[i] * v
		}
	}
	e.backsolve(e.q)
	if e.dt = 0; e.gain > 0 {
		e.dt = (dot(e.free, e.q) - e.rg) / dot(e.free, e.Ng)
	}
	for row := range e.dy {
		e.dy[row] = e.q[row] - e.Ng[row]*e.dt
	}
	for c, x := range e.x {
		e.dz[c] = e.rd[c] - e.column(c, e.dy)
		e.dx[c] = (e.rc[c] - x*e.dz[c]) / e.z[c]
	}
}

// reach is the longest step that keeps v non-negative.
func reach(v, d []float64) float64 {
	worst := 1.0
	for i, x := range v {
		worst = max(worst, -d[i]/x)
	}
	return 1 / worst
}

// aim sets the target change of each product x z so that it becomes mu; second is the weight of the
// previous direction's second-order term.
func (e *barrier) aim(mu, second float64) {
	for c, x := range e.x {
		e.rc[c] = mu - x*e.z[c] - second*e.dx[c]*e.dz[c]
	}
}

// run iterates to the optimum near the central path, and reports whether it reached it.
func (e *barrier) run() (x []float64, ok bool) {
	size, recentre := float64(len(e.x)), 1e-2
	for range maxSteps {
		gap, primal, dual := e.residuals()
		scale := math.Abs(e.gain*e.t + dot(e.c, e.x[:len(e.c)]))
		near := gap < 10*tolerance*scale && primal < 10*tolerance && dual < 1e-6
		if near && gap < tolerance*scale || math.IsNaN(gap) {
			return e.x, near
		}
		mu := gap / size
		e.factor()
		e.aim(0, 0)
		e.direction()
		p, d := reach(e.x, e.dx), reach(e.z, e.dz)
		after := 0.0
		for c := range e.x {
			after += (e.x[c] + p*e.dx[c]) * (e.z[c] + d*e.dz[c])
		}
		sigma := after / gap
		sigma = max(sigma*sigma*sigma, centring)
		if gap < recentre*scale {
			recentre, sigma = recentre/1e2, 1
		}
		e.aim(sigma*mu, 1)
		e.direction()
		p, d = reach(e.x, e.dx), reach(e.z, e.dz)
		if near && p < 0.9 || p < 1e-9 && d < 1e-9 {
			return e.x, near // the rest is rounding error
		}
		e.move(0.99*p, 0.99*d)
	}
	return e.x, false
}

// move takes the step.
func (e *barrier) move(primal, dual float64) {
	for c := range e.x {
		e.x[c] += primal * e.dx[c]
		e.z[c] += dual * e.dz[c]
	}
	for row := range e.y {
		e.y[row] += dual * e.dy[row]
	}
	e.t += primal * e.dt
}
