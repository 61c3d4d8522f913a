package perf

import "github.com/muster-gpu/muster/solve"

// Use is what jobs of a model use of a GPU of their own, in ppm of its capacity: computing (SM
// utilisation) and memory bandwidth.
type Use struct{ Compute, Memory int64 }

// leastUse is the part of a resource below which a job does not compete for it.
const leastUse = 0.05

func (u Use) parts() [2]float64 {
	return [2]float64{float64(u.Compute) / Million, float64(u.Memory) / Million}
}

// features is the number of terms of the linear model.
const features = 5

// Linear is a linear model of the interference of two jobs on a GPU: weights for the computing and
// the memory bandwidth that each uses, and a constant.
//
// Source: gpulet (ATC'22), interference model, with SM utilisation in place of L2 utilisation,
// which drivers do not report.
type Linear [features]float64

// terms are the factors of the weights for a job and its partner, with shares of the GPU; use
// scales with the share.
func terms(own, beside Use, share, besideShare float64) [features]float64 {
	a, b := own.parts(), beside.parts()
	return [features]float64{share * a[0], besideShare * b[0], share * a[1], besideShare * b[1], 1}
}

// At is the model's value for a job and its partner, with shares between 0 and 1.
func (l Linear) At(own, beside Use, share, besideShare float64) (v float64) {
	for k, x := range terms(own, beside, share, besideShare) {
		v += float64(l[k] * x)
	}
	return v
}

// Roofline is the factor by which a job with use own slows down next to others: if all together
// exceed a resource's capacity and the job uses it, it gets its proportional part (gpulet, ATC'22).
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

// linearFit is the model fitted to known pairs: the weights, and for each job model what it loses
// beyond them, and what it makes others lose.
type linearFit struct {
	weights     Linear
	own, beside []float64
	uses        []Use // of each job model, or the mean over all
}

// ridge keeps the terms of job models with few known pairs small; sweeps is the number of
// alternating rounds of the fit.
const ridge, sweeps = 0.5, 40

// fitLinear fits the remaining speed of a job by alternating least squares: the weights of all,
// then each job model's own terms. Fitting the slowdown instead, as gpulet does, gives larger
// errors on Gavel's pairs: a few pairs that almost stop would dominate.
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

// spread refits the terms of single job models to the residuals.
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

// usesOrMean is each job model's use; where it is unknown, the mean over the others.
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

// solveFew solves a x = b for symmetric positive semidefinite a; components that are not determined
// are kept small.
func solveFew(a [features][features]float64, b [features]float64) Linear {
	rows := make([][]float64, features)
	for k := range features {
		a[k][k] += 1e-6
		rows[k] = a[k][:]
	}
	solve.Eliminate(rows, b[:])
	return b
}
