package compat

import (
	"fmt"
	"slices"
)

// DistTarget is what a request should get: milliseconds to its first token, and for each one after it.
type DistTarget struct{ TTFT, TPOT float64 }

// DistFigures are the figures of a run: per cent of the requests within each target and within both, 90th percentiles,
// means, and when the last request was done.
type DistFigures struct {
	TTFT, TPOT, Both   float64
	P90TTFT, P90TPOT   float64
	MeanTTFT, MeanTPOT float64
	End                float64
}

// Figures computes the figures of a run.
func (t DistTarget) Figures(list []DistTimes) DistFigures {
	var f DistFigures
	n := float64(len(list))
	var met [3]int
	first, next := make([]float64, len(list)), make([]float64, len(list))
	for i, q := range list {
		if q.TTFT <= t.TTFT {
			met[0]++
		}
		if q.TPOT <= t.TPOT {
			met[1]++
		}
		if q.TTFT <= t.TTFT && q.TPOT <= t.TPOT {
			met[2]++
		}
		f.MeanTTFT += q.TTFT
		f.MeanTPOT += q.TPOT
		f.End = max(f.End, q.Exit)
		first[i], next[i] = q.TTFT, q.TPOT
	}
	f.TTFT, f.TPOT, f.Both = 100*float64(met[0])/n, 100*float64(met[1])/n, 100*float64(met[2])/n
	f.MeanTTFT /= n
	f.MeanTPOT /= n
	f.P90TTFT, f.P90TPOT = distP90(first), distP90(next)
	return f
}

// distP90 sorts numbers and returns their 90th percentile, between the two nearest ranks.
func distP90(v []float64) float64 {
	slices.Sort(v)
	at := 0.9 * float64(len(v)-1)
	i := int(at)
	if i+1 == len(v) {
		return v[i]
	}
	return v[i] + (v[i+1]-v[i])*(at-float64(i))
}

// Rates of the search, in requests per second and GPU: it halves what is between the bounds until that is small.
const (
	distMostRate = 5
	distGap      = 0.25
)

// Sustained is the highest rate per GPU that was found to be sustained: the 90th percentiles, each by itself, are below
// the targets.
func (t DistTarget) Sustained(gpus int, run func(rate float64) ([]DistTimes, error)) (float64, error) {
	lo, hi := 0.0, float64(distMostRate)
	for hi-lo > distGap {
		rate := (lo + hi) / 2
		times, err := run(rate * float64(gpus))
		if err != nil {
			return 0, err
		}
		if f := t.Figures(times); f.P90TTFT < t.TTFT && f.P90TPOT < t.TPOT {
			lo = rate
		} else {
			hi = rate
		}
	}
	return lo, nil
}

// DistCluster is the GPUs of a search. With Fast links between nodes an instance may be spread over nodes at will;
// without, nodes hold the same stages of both instances, and a pipeline crosses them.
type DistCluster struct {
	Nodes, PerNode int
	Fast           bool
}

// DistCandidate is a layout that was tried. Its pipelines are Cross times as long as in Layout.
type DistCandidate struct {
	Cross    int
	Layout   DistLayout
	GPUs     int
	Measured bool    // there are measurements of it
	Rate     float64 // per GPU that it sustains
}

func (c DistCandidate) String() string {
	if c.Cross > 1 {
		return fmt.Sprintf("%v on each of %d nodes", c.Layout, c.Cross)
	}
	return c.Layout.String()
}

// distShapes are what tensor and pipeline parallelism must divide.
var distShapes = map[string]struct{ heads, layers int }{"opt-13b": {40, 40}, "opt-66b": {72, 64}}

func divisors(n, most int) (list []int) {
	for i := 1; i <= min(n, most); i++ {
		if n%i == 0 {
			list = append(list, i)
		}
	}
	return list
}

// Layouts lists the layouts of a search in its order.
func (c DistCluster) Layouts(model string, together bool) (list []DistCandidate) {
	shape, all := distShapes[model], c.Nodes*c.PerNode
	within, cross := c.PerNode, c.Nodes
	if c.Fast || together {
		within, cross = all, 1
	}
	tps, pps := divisors(shape.heads, within), divisors(shape.layers, within)
	if together {
		for _, tp := range tps {
			for _, pp := range pps {
				if tp*pp <= all {
					list = append(list, DistCandidate{Cross: 1, GPUs: tp * pp,
						Layout: DistLayout{Together: true, Prefill: DistParallel{tp, pp}}})
				}
			}
		}
		return list
	}
	for _, x := range divisors(shape.layers, cross) {
		for _, tpp := range tps {
			for _, ppp := range pps {
				for _, tpd := range tps {
					for _, ppd := range pps {
						l := DistLayout{Prefill: DistParallel{tpp, ppp}, Decode: DistParallel{tpd, ppd}}
						if l.GPUs() <= within && x*l.GPUs() <= all && shape.layers%(x*ppp) == 0 &&
							shape.layers%(x*ppd) == 0 {
							list = append(list, DistCandidate{Cross: x, Layout: l, GPUs: x * l.GPUs()})
						}
					}
				}
			}
		}
	}
	return list
}

// Search finds the rate that each layout sustains.
func (d *DistServe) Search(c DistCluster, model string, together bool, load []DistRequest, t DistTarget) (
	[]DistCandidate, error) {
	list := c.Layouts(model, together)
	for i := range list {
		l := list[i].Layout
		l.Prefill.PP *= list[i].Cross
		l.Decode.PP *= list[i].Cross
		var m *DistMachine
		if m, list[i].Measured = d.Machine(model, l); !list[i].Measured {
			continue
		}
		rate, err := t.Sustained(l.GPUs(), func(rate float64) ([]DistTimes, error) {
			return m.Run(load, DistArrivals(load, rate))
		})
		if err != nil {
			return nil, err
		}
		list[i].Rate = rate
	}
	return list, nil
}

// DistBest is the candidate with the highest rate per GPU, of equal ones the first with the fewest GPUs; -1: none was
// measured.
func DistBest(list []DistCandidate) int {
	best := -1
	for i := range list {
		c := &list[i]
		if c.Measured && (best < 0 || c.Rate > list[best].Rate ||
			c.Rate == list[best].Rate && c.GPUs < list[best].GPUs) {
			best = i
		}
	}
	return best
}
