package perf

import "github.com/muster-gpu/muster/solve"

// Use is what jobs of a model use of a GPU that they have to themselves, in ppm of what
// there is: of its computing (SM utilisation), and of its memory's bandwidth.
type Use struct{ Compute, Memory int64 }

// leastUse is the part of a resource below which a job does not wait for it.
const leastUse = 0.05

func (u Use) parts() [2]float64 {
	return [2]float64{float64(u.Compute) / Million, float64(u.Memory) / Million}
}

// features is how many terms the linear model has.
const features = 5

// Linear is a linear model of what one job does to another on a GPU: weights of what
// each of the two uses of its computing and of its memory, and a constant.
//
// Source: gpulet (ATC'22), its interference model, with SM utilisation where that has L2
// utilisation, which drivers do not tell.
type Linear [features]float64

// terms are what the weights multiply, of a job with a share of the GPU beside another
// with one; what each uses is in proportion to its share.
func terms(own, beside Use, share, besideShare float64) [features]float64 {
	a, b := own.parts(), beside.parts()
	return [features]float64{share * a[0], besideShare * b[0], share * a[1], besideShare * b[1], 1}
}

// At is the model's value for a job beside another, with shares between 0 and 1.
func (l Linear) At(own, beside Use, share, besideShare float64) (v float64) {
	for k, x := range terms(own, beside, share, besideShare) {
		v += float64(l[k] * x)
	}
	return v
}

// Roofline is by how much a job that uses own is slower beside others: where all together
// use more of a resource than there is, and it uses any, it gets its part of what there is
// (gpulet, ATC'22).
func Roofline(own Use, others ...Use) float64 {
	slower, mine := 1.0, own.parts()
	for r, v := range mine {
		if v <= leastUse {
			continue
		}
		for _, o := range others {
			v += o.parts()[r]
		}
		slower = max(slower, v)
	}
	return slower
}

// linearFit is the model fitted to known pairs: the weights, and for each job model what
// it loses more than they say, and what it has others lose.
type linearFit struct {
	weights     Linear
	own, beside []float64
	uses        []Use // of each job model, or the mean of all
}

// ridge is what keeps the terms of single job models small that few pairs speak for; sweeps
// is how often each part of the fit is made anew from the others.
const ridge, sweeps = 0.5, 40

// fitLinear fits what is left of a job's speed by least squares, in turns: the weights for
// all, then what each job model adds to them. Fitted to the slowdown instead, as gpulet
// does, it is further off the speeds of Gavel's pairs: few pairs that hardly go on at all
// would decide.
func fitLinear(d *pairData) *linearFit {
	f := &linearFit{own: make([]float64, len(d.names)), beside: make([]float64, len(d.names))}
	f.uses = d.usesOrMean()
	x := make([][features]float64, len(d.list))
	for i, p := range d.list {
		x[i] = terms(f.uses[p.i], f.uses[p.k], 1, 1)
	}
	off := func(i int) float64 {
		p, v := &d.list[i], 0.0
		for k := range x[i] {
			v += float64(f.weights[k] * x[i][k])
		}
		return p.v - v - f.own[p.i] - f.beside[p.k]
	}
	var a [features][features]float64
	for i := range d.list {
		for k := range features {
			for l := range features {
				a[k][l] += float64(x[i][k] * x[i][l])
			}
		}
	}
	for range sweeps {
		var b [features]float64
		for i := range d.list {
			p := &d.list[i]
			y := p.v - f.own[p.i] - f.beside[p.k]
			for k := range features {
				b[k] += float64(x[i][k] * y)
			}
		}
		f.weights = solveFew(a, b)
		d.spread(f.own, func(p *pairEntry) int { return p.i }, off)
		d.spread(f.beside, func(p *pairEntry) int { return p.k }, off)
	}
	return f
}

// spread makes the terms of single job models anew from what is still off.
func (d *pairData) spread(to []float64, of func(*pairEntry) int, off func(i int) float64) {
	sum, n := make([]float64, len(to)), make([]float64, len(to))
	for i := range d.list {
		m := of(&d.list[i])
		sum[m] += off(i) + to[m]
		n[m]++
	}
	for m := range to {
		to[m] = sum[m] / (n[m] + ridge)
	}
}

// usesOrMean is what each job model uses; where nobody says, what all others do on average.
func (d *pairData) usesOrMean() []Use {
	var sum Use
	n := int64(0)
	for m, u := range d.use {
		if d.used[m] {
			sum.Compute, sum.Memory, n = sum.Compute+u.Compute, sum.Memory+u.Memory, n+1
		}
	}
	list := make([]Use, len(d.use))
	for m, u := range d.use {
		switch {
		case d.used[m]:
			list[m] = u
		case n > 0:
			list[m] = Use{sum.Compute / n, sum.Memory / n}
		}
	}
	return list
}

// solveFew solves a x = b where a is symmetric and not negative; what
// cannot be told apart is kept small.
func solveFew(a [features][features]float64, b [features]float64) Linear {
	rows := make([][]float64, features)
	for k := range features {
		a[k][k] += 1e-6
		rows[k] = a[k][:]
	}
	solve.Eliminate(rows, b[:])
	return b
}
