package compat

import "slices"

// gavelGandiva divides all GPUs equally among jobs or, if there are more jobs than GPUs, among jobs
// and pairs: pairs are drawn at random, and stay while they get more done together than one alone,
// even if there are GPUs for all in the meantime.
func gavelGandiva(g *gavelRules) {
	asked := 0
	for _, e := range g.entries {
		e.x = [3]float64{}
		asked += e.jobs[0].gpus
	}
	shared := map[*gavelJob]bool{}
	for _, e := range g.pairs {
		e.x = [3]float64{}
		if e.shares = e.shares && g.gains(e); e.shares {
			shared[e.jobs[0]], shared[e.jobs[1]] = true, true
		}
	}
	if asked <= len(gavelModels)*gavelGPUs {
		g.divide(g.entries)
		return
	}
	var open []*gavelJob
	for _, e := range g.entries {
		if !shared[e.jobs[0]] {
			open = append(open, e.jobs[0])
		}
	}
	for range len(open) {
		if len(open) < 2 {
			break
		}
		i, k := g.two(len(open))
		a, b := open[min(i, k)], open[max(i, k)]
		if a.gpus == b.gpus {
			g.keep(g.pair(a, b)).shares = true
			shared[a], shared[b] = true, true
			open = slices.DeleteFunc(open, func(j *gavelJob) bool { return j == a || j == b })
		}
	}
	var sharing []*gavelEntry
	for _, e := range g.entries {
		if !shared[e.jobs[0]] {
			sharing = append(sharing, e)
		}
	}
	for _, e := range g.pairs {
		if e.shares {
			sharing = append(sharing, e)
		}
	}
	g.divide(sharing)
}

// divide gives all entries equal parts of the GPUs.
func (g *gavelRules) divide(sharing []*gavelEntry) {
	for _, e := range sharing {
		part := gavelGPUs / float64(len(sharing)) / float64(e.jobs[0].gpus)
		for k := range e.x {
			e.x[k] = part / max(1, part+part+part)
		}
	}
}

// gains reports whether a pair gets more done than one job alone, over all models.
func (g *gavelRules) gains(e *gavelEntry) bool {
	sum := 0.0
	for k := range gavelModels {
		if g.stalls(e, k) {
			return false
		}
		a, b := g.rate(e, k)
		sum += a / e.jobs[0].rate[k]
		sum += b / e.jobs[1].rate[k]
	}
	return sum >= 1
}

// two draws two different indices of n like CPython's random.sample: up to 21 from a shrinking
// list, beyond that by repeated draws until they differ.
func (g *gavelRules) two(n int) (i, k int) {
	i = g.chance.below(n)
	if n <= 21 {
		if k = g.chance.below(n - 1); k == i {
			k = n - 1 // the last one has moved there
		}
		return i, k
	}
	for k = g.chance.below(n); k == i; k = g.chance.below(n) {
	}
	return i, k
}
