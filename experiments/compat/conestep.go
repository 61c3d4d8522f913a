package compat

import (
	"math"

	"github.com/muster-gpu/muster/solve"
)

// coneScale is the Nesterov-Todd scaling of a cone by its eigenvectors (1, d), (1, -d) and their
// orthogonal complement, and the eigenvalues: eta times ratio, eta over ratio, and eta.
type coneScale struct {
	eta, ratio float64
	d          [2]float64 // of length 1
}

// apply multiplies by eta times ratio along (1, d), by eta over ratio along (1, -d), and by eta
// across. to may be v.
func (c *coneScale) apply(eta, ratio float64, v, to []float64) {
	along := c.d[0]*v[1] + c.d[1]*v[2]
	up, down, across := eta*ratio*(v[0]+along)/2, eta/ratio*(v[0]-along)/2, eta*(c.d[0]*v[2]-c.d[1]*v[1])
	to[0], to[1], to[2] = up+down, (up-down)*c.d[0]-across*c.d[1], (up-down)*c.d[1]+across*c.d[0]
}

// conePart is a job's part of a system: the triangle R of its scaled rows = QR, Q' times the
// value's column, and the response of its variables to the value and to the capacity multipliers.
type conePart struct {
	r     [coneVars][coneVars]float64
	value [coneVars]float64
	side  [1 + coneModels][coneVars]float64
}

// times is G x.
func (p *coneProgram) times(x, to []float64) {
	t, k, bound := x[len(x)-1], p.models, p.models+1
	room := to[len(p.g)*p.lines : p.rows]
	clear(room)
	for i := range p.g {
		b, own, out := &p.g[i], x[i*p.vars:(i+1)*p.vars], to[i*p.lines:(i+1)*p.lines]
		sum, most := 0.0, b.row[bound][p.vars]*t
		for c := range k {
			out[c] = b.row[c][c] * own[c]
			sum += b.row[k][c] * own[c]
			room[c] += b.use[c] * own[c]
		}
		for c, v := range own {
			most += b.row[bound][c] * v
		}
		out[k], out[bound] = sum, most
		if p.cones > 0 {
			c0, c1 := 0.0, 0.0
			for c, v := range own {
				c0 += b.row[p.lines][c] * v
				c1 += b.row[p.lines+1][c] * v
			}
			cone := to[p.rows+3*i : p.rows+3*i+3]
			cone[0], cone[1], cone[2] = c0, c1, 0
		}
	}
}

// across is G' z.
func (p *coneProgram) across(z, to []float64) {
	t, k, bound := 0.0, p.models, p.models+1
	room := z[len(p.g)*p.lines : p.rows]
	for i := range p.g {
		b, own, out := &p.g[i], z[i*p.lines:(i+1)*p.lines], to[i*p.vars:(i+1)*p.vars]
		for c := range out {
			out[c] = b.row[bound][c] * own[bound]
		}
		for c := range k {
			out[c] += b.use[c]*room[c] + b.row[c][c]*own[c] + b.row[k][c]*own[k]
		}
		t += b.row[bound][p.vars] * own[bound]
		if p.cones > 0 {
			cone := z[p.rows+3*i : p.rows+3*i+3]
			for c := range out {
				out[c] += b.row[p.lines][c]*cone[0] + b.row[p.lines+1][c]*cone[1]
			}
		}
	}
	to[len(to)-1] = t
}

// rescale computes the scalings of the present point; false: it is outside the cones.
func (p *coneProgram) rescale() bool {
	for i := range p.rows {
		p.w2[i] = over(p.s[i], p.z[i])
	}
	for n := range p.scales {
		i := p.rows + 3*n
		s, z := p.s[i:i+3], p.z[i:i+3]
		s2, z2 := s[0]*s[0]-s[1]*s[1]-s[2]*s[2], z[0]*z[0]-z[1]*z[1]-z[2]*z[2]
		if s2 <= 0 || z2 <= 0 {
			return false
		}
		sn, zn, c := math.Sqrt(s2), math.Sqrt(z2), &p.scales[n]
		c.eta = math.Sqrt(over(sn, zn))
		gamma := 2 * math.Sqrt(0.5*(1+dot(s, z)/(sn*zn)))
		c.d = [2]float64{(s[1]/sn - z[1]/zn) / gamma, (s[2]/sn - z[2]/zn) / gamma}
		long := math.Hypot(c.d[0], c.d[1])
		c.ratio = (s[0]/sn+z[0]/zn)/gamma + long
		if long == 0 {
			c.d, long = [2]float64{1, 0}, 1
		}
		c.d[0] /= long
		c.d[1] /= long
	}
	p.scaled(p.z, p.lambda)
	return true
}

// scaled is W v. to may be v.
func (p *coneProgram) scaled(v, to []float64) {
	for i, w2 := range p.w2[:p.rows] {
		to[i] = math.Sqrt(w2) * v[i]
	}
	for n := range p.scales {
		c, i := &p.scales[n], p.rows+3*n
		c.apply(c.eta, c.ratio, v[i:i+3], to[i:i+3])
	}
}

// unscaled2 is W^-2 v. to may be v.
func (p *coneProgram) unscaled2(v, to []float64) {
	for i, w2 := range p.w2[:p.rows] {
		to[i] = v[i] / max(w2, coneTiny*coneTiny)
	}
	for n := range p.scales {
		c, i := &p.scales[n], p.rows+3*n
		c.apply(1/c.eta, 1/c.ratio, v[i:i+3], to[i:i+3])
		c.apply(1/c.eta, 1/c.ratio, to[i:i+3], to[i:i+3])
	}
}

// system solves (0, G'; G, -W^2) (dx; dz) = (bx; bz) with iterative refinement.
func (p *coneProgram) system(bx, bz, dx, dz []float64) {
	p.normal(bx, bz, dx, dz)
	size, before := 1+math.Sqrt(dot(bx, bx)+dot(bz, bz)), math.Inf(1)
	for range coneRefine {
		p.across(dz, p.ox)
		for i, v := range bx {
			p.ox[i] = v - p.ox[i]
		}
		p.times(dx, p.oz)
		p.scaled(dz, p.fz)
		p.scaled(p.fz, p.fz)
		for i, v := range bz {
			p.oz[i] = v - p.oz[i] + p.fz[i]
		}
		off := math.Sqrt(dot(p.ox, p.ox) + dot(p.oz, p.oz))
		if off > before { // the last correction made it worse
			plus(dx, -1, p.cx)
			plus(dz, -1, p.cz)
			return
		}
		if off < coneAccurate*size || before < coneMends*off {
			return
		}
		before = off
		p.normal(p.ox, p.oz, p.cx, p.cz)
		plus(dx, 1, p.cx)
		plus(dz, 1, p.cz)
	}
}

// factor prepares the systems of the present scalings: a QR factorization of each job's rows,
// divided by their scalings; the value and the capacity multipliers remain in a small system of
// their own.
func (p *coneProgram) factor() {
	p.schur = [1 + coneModels][1 + coneModels]float64{}
	rows := p.lines
	if p.cones > 0 {
		rows += 3
	}
	for i := range p.g {
		b, part := &p.g[i], &p.parts[i]
		m := p.unscaledRows(i)
		part.reflect(&m, rows, p.vars)
		part.side[0] = part.value
		part.backward(part.side[0][:p.vars])
		for r := p.vars; r < rows; r++ {
			p.schur[0][0] += m[r][p.vars] * m[r][p.vars]
		}
		for k := range p.models {
			side := &part.side[1+k]
			*side = [coneVars]float64{}
			side[k] = b.use[k]
			part.forward(side[:p.vars])
			for c := range p.vars {
				p.schur[0][1+k] -= part.value[c] * side[c]
			}
			part.backward(side[:p.vars])
		}
		for k := range p.models {
			for l := range p.models {
				p.schur[1+k][1+l] -= b.use[k] * part.side[1+l][k]
			}
		}
	}
	for k := range p.models {
		p.schur[1+k][0] = p.schur[0][1+k]
		p.schur[1+k][1+k] -= p.w2[len(p.g)*p.lines+k]
	}
}

// unscaledRows are a job's rows divided by their scalings, in the eigenbasis for the cone.
func (p *coneProgram) unscaledRows(i int) (m [coneRows][coneVars + 1]float64) {
	b := &p.g[i]
	for r := range p.lines {
		w := 1 / math.Sqrt(max(p.w2[i*p.lines+r], coneTiny*coneTiny))
		for c, v := range b.row[r] {
			m[r][c] = w * v
		}
	}
	if p.cones == 0 {
		return m
	}
	s, g0, g1 := &p.scales[i], &b.row[p.lines], &b.row[p.lines+1] // the third row is 0
	m0, m1, m2 := &m[p.lines], &m[p.lines+1], &m[p.lines+2]
	for c := range m0 {
		m0[c] = (g0[c] + s.d[0]*g1[c]) / (math.Sqrt2 * s.eta * s.ratio)
		m1[c] = (g0[c] - s.d[0]*g1[c]) * s.ratio / (math.Sqrt2 * s.eta)
		m2[c] = -s.d[1] * g1[c] / s.eta
	}
	return m
}

// reflect triangularizes the first columns by Householder reflections, which it also applies to the
// next column.
func (p *conePart) reflect(m *[coneRows][coneVars + 1]float64, rows, cols int) {
	for c := range cols {
		size := 0.0
		for r := c; r < rows; r++ {
			size += m[r][c] * m[r][c]
		}
		size = math.Sqrt(size)
		if m[c][c] > 0 {
			size = -size
		}
		head := m[c][c] - size // the reflection vector is this followed by the rest of the column
		for d := c + 1; d <= cols; d++ {
			sum := head * m[c][d]
			for r := c + 1; r < rows; r++ {
				sum += m[r][c] * m[r][d]
			}
			sum /= size * head
			m[c][d] += sum * head
			for r := c + 1; r < rows; r++ {
				m[r][d] += sum * m[r][c]
			}
		}
		p.r[c][c] = size
		for d := c + 1; d < cols; d++ {
			p.r[c][d] = m[c][d]
		}
		p.value[c] = m[c][cols]
	}
}

// forward solves R' y = v, backward R y = v, in place.
func (p *conePart) forward(v []float64) {
	for i := range v {
		for k := range i {
			v[i] -= p.r[k][i] * v[k]
		}
		v[i] /= p.r[i][i]
	}
}

func (p *conePart) backward(v []float64) {
	for i := len(v) - 1; i >= 0; i-- {
		for k := i + 1; k < len(v); k++ {
			v[i] -= p.r[i][k] * v[k]
		}
		v[i] /= p.r[i][i]
	}
}

// normal solves a system once, without refinement.
func (p *coneProgram) normal(bx, bz, dx, dz []float64) {
	last, room := len(dx)-1, len(p.g)*p.lines
	p.unscaled2(bz, p.fz)
	clear(p.fz[room:p.rows]) // the capacity rows keep their multipliers
	p.across(p.fz, dx)
	plus(dx, 1, bx)
	var right [1 + coneModels]float64
	right[0] = dx[last]
	copy(right[1:], bz[room:p.rows])
	for i := range p.g {
		own, part, b := dx[i*p.vars:(i+1)*p.vars], &p.parts[i], &p.g[i]
		part.forward(own)
		for c, v := range own {
			right[0] -= part.value[c] * v
		}
		part.backward(own)
		for k := range p.models {
			right[1+k] -= b.use[k] * own[k]
		}
	}
	system, shared := p.schur, right[:1+p.models]
	rows := make([][]float64, len(shared))
	for r := range rows {
		rows[r] = system[r][:len(shared)]
	}
	solve.Eliminate(rows, shared)
	dx[last] = shared[0]
	for i := range p.g {
		own, part := dx[i*p.vars:(i+1)*p.vars], &p.parts[i]
		for s := range 1 + p.models {
			for c := range own {
				own[c] -= part.side[s][c] * shared[s]
			}
		}
	}
	p.times(dx, dz)
	plus(dz, -1, bz)
	p.unscaled2(dz, dz)
	copy(dz[room:p.rows], shared[1:])
}

// step predicts, centres and corrects, and goes as far as the cones allow; it returns the step
// length.
func (p *coneProgram) step() float64 {
	last := len(p.x) - 1
	clear(p.ex)
	p.ex[last] = -p.cost
	p.system(p.ex, p.h, p.ax, p.az)
	for i, v := range p.rz {
		p.ez[i] = p.s[i] - v
	}
	p.system(p.rx, p.ez, p.bx, p.bz)
	below := p.kappa/p.tau - p.cost*p.ax[last] - dot(p.h, p.az)
	dtau := (p.rt - p.kappa + p.cost*p.bx[last] + dot(p.h, p.bz)) / below
	plus(p.bz, dtau, p.az)
	p.scaled(p.bz, p.wdz)
	for i, v := range p.wdz {
		p.dsw[i] = -v - p.lambda[i]
	}
	dkappa := -p.kappa - p.kappa/p.tau*dtau
	sigma := 1 - p.reach(dtau, dkappa)
	sigma = min(1, max(coneSigmaMin, sigma*sigma*sigma))

	p.correct(sigma)
	for i, v := range p.rx {
		p.ex[i] = (1 - sigma) * v
	}
	p.system(p.ex, p.ez, p.bx, p.bz)
	both := p.kappa*p.tau + dkappa*dtau - sigma*p.state.mu
	dtau = ((1-sigma)*p.rt - both/p.tau + p.cost*p.bx[last] + dot(p.h, p.bz)) / below
	plus(p.bx, dtau, p.ax)
	plus(p.bz, dtau, p.az)
	p.scaled(p.bz, p.wdz)
	for i, v := range p.wdz {
		p.dsw[i] = -(p.dsw[i] + v)
	}
	dkappa = -(both + p.kappa*dtau) / p.tau
	step := p.reach(dtau, dkappa) * coneBack
	p.scaled(p.dsw, p.dsw)
	plus(p.x, step, p.bx)
	plus(p.z, step, p.bz)
	plus(p.s, step, p.dsw)
	p.kappa += step * dkappa
	p.tau += step * dtau
	return step
}

// correct computes the corrector's right-hand side in ez; dsw becomes its quotient by lambda.
func (p *coneProgram) correct(sigma float64) {
	l, s, z, aim := p.lambda, p.dsw, p.wdz, sigma*p.state.mu
	for i := range p.rows {
		s[i] = over(l[i]*l[i]+s[i]*z[i]-aim, l[i])
	}
	for i := p.rows; i < len(s); i += 3 {
		d0 := l[i]*l[i] + l[i+1]*l[i+1] + l[i+2]*l[i+2] + s[i]*z[i] + s[i+1]*z[i+1] + s[i+2]*z[i+2] - aim
		d1 := 2*l[i]*l[i+1] + s[i]*z[i+1] + z[i]*s[i+1]
		d2 := 2*l[i]*l[i+2] + s[i]*z[i+2] + z[i]*s[i+2]
		rho, zeta := l[i]*l[i]-l[i+1]*l[i+1]-l[i+2]*l[i+2], l[i+1]*d1+l[i+2]*d2
		f := over(over(zeta, l[i])-d0, rho)
		s[i], s[i+1], s[i+2] = over(l[i]*d0-zeta, rho), f*l[i+1]+over(d1, l[i]), f*l[i+2]+over(d2, l[i])
	}
	p.scaled(s, p.ez)
	plus(p.ez, sigma-1, p.rz)
}

// reach is the longest step along the direction within the cones, in scaled space.
func (p *coneProgram) reach(dtau, dkappa float64) float64 {
	shrink := max(0, -dtau/p.tau, -dkappa/p.kappa) // the largest relative rate of decrease
	for i, l := range p.lambda[:p.rows] {
		shrink = max(shrink, -p.dsw[i]/l, -p.wdz[i]/l)
	}
	for i := p.rows; i < len(p.lambda); i += 3 {
		l := p.lambda[i : i+3]
		size2 := l[0]*l[0] - l[1]*l[1] - l[2]*l[2]
		if size2 <= 0 {
			continue
		}
		size := math.Sqrt(size2)
		b0, b1, b2 := l[0]/size, l[1]/size, l[2]/size
		for _, d := range [...][]float64{p.dsw[i : i+3], p.wdz[i : i+3]} {
			along := b0*d[0] - b1*d[1] - b2*d[2]
			f := (along + d[0]) / (b0 + 1)
			shrink = max(shrink, (math.Hypot(d[1]-f*b1, d[2]-f*b2)-along)/size)
		}
	}
	return max(coneStepMin, min(coneStepMax, 1/max(shrink, coneTiny)))
}
