package compat

import (
	"math"
	"slices"
)

// What a job in Pollux' simulator learns while it runs (sections 4 and 11): a model of its step
// times from the observed ones, its gradient statistics, and from both the batch size with the best
// goodput.

// polluxSeen is an observed step: its seconds, and those without synchronisation.
type polluxSeen struct {
	nodes, gpus, local int
	step, compute      float64
}

// The parameters of the model, in seconds; the last is an exponent.
const (
	computeBase = iota // in pairs: the a and b of the published text
	computeSlope
	nodesBase
	nodesSlope
	nodeBase
	nodeSlope
	overlap
	polluxParams
)

// polluxModel is the time of a step: computing takes a + b*local, synchronisation a + b*(GPUs-2),
// with other parameters on one node than on several; their overlap is given by an exponent.
type polluxModel [polluxParams]float64

const polluxLeast = 1e-8 // value of parameters that are not fitted, in seconds

// polluxLearner is what a job has learned.
type polluxLearner struct {
	rows          []polluxSeen
	model         polluxModel
	sqr, variance float64
	speeds        []int64 // by GPUs, with current knowledge; 0: not computed yet
}

// see records a step, and refits the model if it is of a new kind.
func (l *polluxLearner) see(s polluxSeen, sqr, variance float64) {
	if sqr != l.sqr || variance != l.variance {
		l.sqr, l.variance, l.speeds = sqr, variance, nil
	}
	if slices.ContainsFunc(l.rows, func(r polluxSeen) bool {
		return r.nodes == s.nodes && r.gpus == s.gpus && r.local == s.local
	}) {
		return
	}
	l.rows, l.speeds = append(l.rows, s), nil
	l.model = fitPollux(l.rows)
}

// sync is the seconds of a step's synchronisation, and the parameters used.
func (m *polluxModel) sync(nodes, gpus int) (seconds, more float64, base int) {
	more = max(float64(gpus-2), polluxLeast)
	switch {
	case nodes > 1:
		base = nodesBase
	case gpus > 1:
		base = nodeBase
	default:
		return polluxLeast + polluxLeast*more, more, -1
	}
	return m[base] + m[base+1]*more, more, base
}

// step is the seconds of a step, and those of computing.
func (m *polluxModel) step(nodes, gpus, local int) (step, compute float64) {
	compute = m[computeBase] + m[computeSlope]*float64(local)
	sync, _, _ := m.sync(nodes, gpus)
	g := m[overlap]
	return math.Pow(math.Pow(compute, g)+math.Pow(sync, g), 1/g), compute
}

// gainOf is the progress of a step with a batch scale times the first size.
func gainOf(sqr, variance, scale float64) float64 {
	if d := variance/scale + sqr; d > 0 {
		return (variance + sqr) / d
	}
	return 1
}

// best is the goodput with the best of fifty batch sizes, and how that batch is split.
func (l *polluxLearner) best(a *polluxApp, nodes, gpus int) (goodput float64, atomic, more int) {
	const sizes = 50
	up := func(x float64) int { return int(math.Ceil(x - 1e-8)) }
	lo, hi := float64(max(a.first, a.leastLocal*gpus)), float64(a.max)
	last := 0 // samples per GPU and step
	for i := range sizes {
		local := lo * math.Pow(hi/lo, float64(i)/(sizes-1)) / float64(gpus)
		accumulate := up(local/float64(a.mostLocal)) - 1
		if gpus == 1 && local > float64(a.first)+1e-8 {
			accumulate = max(accumulate, 1)
		}
		each := up(local / float64(accumulate+1))
		if each < a.leastLocal || each > a.mostLocal {
			continue
		}
		if each*(accumulate+1) == last {
			continue // same size as before
		}
		last = each * (accumulate + 1)
		batch := float64(gpus * last)
		step, compute := l.model.step(nodes, gpus, each)
		scale := batch / float64(a.first)
		if g := batch / (float64(accumulate)*compute + step) * gainOf(l.sqr, l.variance, scale) / scale; g > goodput {
			goodput, atomic, more = g, each, accumulate
		}
	}
	return goodput, atomic, more
}

// speed is the goodput with a number of GPUs on as few nodes as possible, in ppm of that with one;
// proportional to the GPUs while nothing is known.
func (l *polluxLearner) speed(a *polluxApp, gpus int) int64 {
	if len(l.rows) == 0 {
		return int64(gpus) * 1_000_000
	}
	if l.speeds == nil {
		l.speeds = make([]int64, polluxNodes*polluxPerNode+1)
	}
	if l.speeds[gpus] == 0 {
		one, _, _ := l.best(a, 1, 1)
		g, _, _ := l.best(a, (gpus+polluxPerNode-1)/polluxPerNode, gpus)
		l.speeds[gpus] = max(1, int64(math.Round(g/one*1e6)))
	}
	return l.speeds[gpus]
}

// tune chooses the batch size of a job that has GPUs, and its split.
func (j *polluxJob) tune() {
	gpus, batch := len(j.where), j.batch
	if batch == 0 && len(j.learnt.rows) > 0 {
		_, j.atomic, j.more = j.learnt.best(j.app, len(j.shape), gpus)
		j.atomic = min(j.atomic, j.app.max/(gpus*(j.more+1)))
		return
	}
	if batch == 0 {
		batch = max(j.app.first, j.app.leastLocal*gpus)
	}
	j.atomic, j.more = j.app.split(batch, gpus, gpus == 1 && batch > j.app.first)
}

// fitPollux fits the model to the observations, by the root mean squares of the relative errors of
// computing and of whole steps; unobserved configurations are assumed to be fast, but other nodes
// not faster than the job's own.
func fitPollux(rows []polluxSeen) polluxModel {
	p := polluxFit{rows: rows}
	x := [polluxParams]float64{math.Log(0.1), math.Log(0.01), math.Log(0.1), math.Log(0.01), math.Log(0.1),
		math.Log(0.01), 1.001}
	fix := func(to float64, params ...int) {
		for _, i := range params {
			x[i], p.fixed[i] = math.Log(to), true
		}
	}
	several, one, many, sum := false, false, false, 0.0
	for _, r := range rows {
		several, one, many = several || r.nodes > 1, one || r.nodes == 1 && r.gpus > 1, many || r.gpus > 2
		sum += r.compute
	}
	if !slices.ContainsFunc(rows, func(r polluxSeen) bool { return r.local != rows[0].local }) {
		fix(sum/float64(len(rows))/2, computeBase)
	}
	if !several {
		fix(polluxLeast, nodesBase, nodesSlope)
	}
	if !one {
		fix(polluxLeast, nodeBase, nodeSlope)
	}
	if !many {
		fix(polluxLeast, nodesSlope, nodeSlope)
	}
	x = p.minimise(x)
	m := polluxModel{overlap: x[overlap]}
	for i := range overlap {
		m[i] = math.Exp(x[i])
	}
	if !several {
		m[nodesBase], m[nodesSlope] = max(m[nodesBase], 1.1*m[nodeBase]), max(m[nodesSlope], 1.1*m[nodeSlope])
	}
	return m
}

type polluxFit struct {
	rows  []polluxSeen
	fixed [polluxParams]bool
}

// loss is the objective and its gradient, in the logarithms of the parameters.
func (p *polluxFit) loss(x *[polluxParams]float64) (loss float64, grad [polluxParams]float64) {
	var m polluxModel
	for i := range overlap {
		m[i] = math.Exp(x[i])
	}
	g := x[overlap]
	m[overlap] = g
	var sums [2]float64
	var grads [2][polluxParams]float64
	for i := range p.rows {
		r := &p.rows[i]
		c := m[computeBase] + m[computeSlope]*float64(r.local)
		shares := [2]float64{m[computeBase] / c, m[computeSlope] * float64(r.local) / c}
		n, more, base := m.sync(r.nodes, r.gpus)
		lc, ln := math.Log(c), math.Log(n)
		top := max(lc, ln)
		wc, wn := math.Exp(g*(lc-top)), math.Exp(g*(ln-top))
		lt := top + math.Log(wc+wn)/g
		wc, wn = wc/(wc+wn), wn/(wc+wn)
		off := [2]float64{lc - math.Log(r.compute), lt - math.Log(r.step)}
		for k, d := range off {
			sums[k] += d * d
		}
		for k, share := range shares {
			grads[0][k] += off[0] * share
			grads[1][k] += off[1] * wc * share
		}
		if base >= 0 {
			grads[1][base] += off[1] * wn * m[base] / n
			grads[1][base+1] += off[1] * wn * m[base+1] * more / n
		}
		grads[1][overlap] += off[1] * (wc*lc + wn*ln - lt) / g
	}
	for k := range sums {
		rms := math.Sqrt(sums[k] / float64(len(p.rows)))
		loss += rms
		for i := range grad {
			grad[i] += grads[k][i] / float64(len(p.rows)) / max(rms, 1e-12)
		}
	}
	loss += 1e-3 * (g - 1) * (g - 1)
	grad[overlap] += 2e-3 * (g - 1)
	for _, base := range []int{nodesBase, nodeBase} {
		q := m[base+1] / m[base]
		loss += 1e-2 * q * q
		grad[base+1] += 2e-2 * q * q
		grad[base] -= 2e-2 * q * q
	}
	return loss, grad
}

// bounded clamps parameters to their bounds.
func (p *polluxFit) bounded(x, from *[polluxParams]float64) {
	for i := range x {
		switch {
		case p.fixed[i]:
			x[i] = from[i]
		case i == overlap:
			x[i] = min(max(x[i], 1), 10)
		default:
			x[i] = min(max(x[i], math.Log(polluxLeast)), 20)
		}
	}
}

// stuck reports whether a parameter does not move: it is fixed, or at a bound beyond which the loss
// falls.
func (p *polluxFit) stuck(i int, x, grad *[polluxParams]float64) bool {
	lo, hi := math.Log(polluxLeast), 20.0
	if i == overlap {
		lo, hi = 1, 10
	}
	return p.fixed[i] || x[i] <= lo && grad[i] > 0 || x[i] >= hi && grad[i] < 0
}

// minimise is BFGS within bounds.
func (p *polluxFit) minimise(x [polluxParams]float64) [polluxParams]float64 {
	var h [polluxParams][polluxParams]float64
	reset := func() {
		h = [polluxParams][polluxParams]float64{}
		for i := range h {
			h[i][i] = 1
		}
	}
	reset()
	fresh := true
	f, g := p.loss(&x)
	for range 2000 {
		d, slope := p.direction(&x, &g, &h)
		if slope > -1e-14 {
			if fresh {
				break
			}
			reset()
			fresh = true
			continue
		}
		to, low, grad, ok := p.search(&x, f, &g, &d)
		if !ok || f-low < 1e-13 {
			if ok {
				x, f, g = to, low, grad
			}
			if fresh {
				break
			}
			reset()
			fresh = true
			continue
		}
		update(&h, &x, &to, &g, &grad)
		x, f, g, fresh = to, low, grad, false
	}
	return x
}

// direction is the search direction, and the slope along it.
func (p *polluxFit) direction(x, g *[polluxParams]float64,
	h *[polluxParams][polluxParams]float64) (d [polluxParams]float64, slope float64) {
	for i := range d {
		if p.stuck(i, x, g) {
			continue
		}
		for k := range d {
			if !p.stuck(k, x, g) {
				d[i] -= h[i][k] * g[k]
			}
		}
	}
	longest := 0.0
	for i := range d {
		longest = max(longest, math.Abs(d[i]))
	}
	for i := range d {
		if longest > 2 {
			d[i] *= 2 / longest
		}
		slope += d[i] * g[i]
	}
	return d, slope
}

// search backtracks along a direction until the loss falls.
func (p *polluxFit) search(x *[polluxParams]float64, f float64, g, d *[polluxParams]float64) (to [polluxParams]float64,
	low float64, grad [polluxParams]float64, ok bool) {
	for t := 1.0; t > 1e-9; t /= 2 {
		want := 0.0
		for i := range to {
			to[i] = x[i] + t*d[i]
		}
		p.bounded(&to, x)
		for i := range to {
			want += g[i] * (to[i] - x[i])
		}
		if low, grad = p.loss(&to); low <= f+1e-4*want && low < f {
			return to, low, grad, true
		}
	}
	return to, low, grad, false
}

// update updates the inverse Hessian from a step.
func update(h *[polluxParams][polluxParams]float64, x, to, g, grad *[polluxParams]float64) {
	var s, y, hy [polluxParams]float64
	sy, yhy := 0.0, 0.0
	for i := range s {
		s[i], y[i] = to[i]-x[i], grad[i]-g[i]
		sy += s[i] * y[i]
	}
	if sy < 1e-12 {
		return
	}
	for i := range hy {
		for k := range y {
			hy[i] += h[i][k] * y[k]
		}
		yhy += y[i] * hy[i]
	}
	for i := range h {
		for k := range h {
			h[i][k] += (1+yhy/sy)*s[i]*s[k]/sy - (hy[i]*s[k]+s[i]*hy[k])/sy
		}
	}
}
