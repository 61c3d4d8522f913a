package serving

import (
	"cmp"
	"slices"
)

// mostTries bounds how many ways the search for plans on fewer GPUs tries, mostWays how many ways to carry one
// service it considers.
const mostTries, mostWays = 200_000, 20_000

// fewer is the second phase: branch and bound for a way to carry all services on at most that many GPUs. It
// takes the services one by one, those with the fewest ways first. A failed prefix is remembered by the
// instances that its services take together: the rest depends on nothing else.
type fewer struct {
	p      *planner
	gpus   int
	order  []int      // services
	ways   [][]choice // by service, the cheapest first
	rest   []int      // the fewest compute slices of the services from here on in the order
	failed map[fewerState]bool
	found  []int // the way of each service
	left   int   // remaining tries
	cut    bool  // the search was incomplete
}

// fewerState is the instances that the first services take.
type fewerState struct {
	services int
	counts
}

// improve looks for plans on fewer GPUs than the present one, one GPU at a time, and adopts what it finds. It
// returns how many GPUs every plan needs, as far as that is known. A plan can only get better.
func (p *planner) improve(headroom float64) (least int) {
	for k := range p.services {
		least += p.least[k]
	}
	least = (least + p.m.Compute - 1) / p.m.Compute
	for left := mostTries; ; {
		now := p.gpus(p.total())
		if now <= least {
			return now
		}
		f := p.searching(now-1, headroom, left)
		if !f.try(0, counts{}, 0) {
			if f.cut {
				return least
			}
			return now
		}
		left = f.left
		for k, w := range f.found {
			p.choose(k, &f.ways[k][w])
		}
	}
}

// choose has a service carried in the given way, which is added to its choices if it is not among them.
func (p *planner) choose(k int, c *choice) {
	at := slices.IndexFunc(p.choices[k], func(o choice) bool { return o.counts == c.counts })
	if at < 0 {
		at = len(p.choices[k])
		p.choices[k] = append(p.choices[k], *c)
	}
	p.at[k] = at
}

// searching returns a search that has not begun.
func (p *planner) searching(gpus int, headroom float64, tries int) *fewer {
	f := &fewer{p: p, gpus: gpus, failed: map[fewerState]bool{}, found: make([]int, len(p.services)), left: tries}
	idle := gpus * p.m.Compute // compute slices to spare beyond the least
	for k := range p.services {
		idle -= p.least[k]
		f.order = append(f.order, k)
	}
	for k := range p.services {
		list := p.ways(k, p.services[k].Rate*headroom, p.least[k]+idle, mostWays)
		f.cut = f.cut || len(list) >= mostWays
		f.ways = append(f.ways, list)
	}
	slices.SortStableFunc(f.order, func(a, b int) int { return cmp.Compare(len(f.ways[a]), len(f.ways[b])) })
	f.rest = make([]int, len(f.order)+1)
	for i := len(f.order) - 1; i >= 0; i-- {
		f.rest[i] = f.rest[i+1] + p.least[f.order[i]]
	}
	return f
}

// try finds ways for the services from i on in the order, given the instances already taken, with that many
// compute slices left.
func (f *fewer) try(i int, taken counts, compute int) bool {
	if f.p.gpus(taken) > f.gpus {
		return false
	}
	if i == len(f.order) {
		return true
	}
	state := fewerState{i, taken}
	if f.failed[state] {
		return false
	}
	k := f.order[i]
	for w := range f.ways[k] {
		c := &f.ways[k][w]
		if compute+c.compute+f.rest[i+1] > f.gpus*f.p.m.Compute {
			break // the following ones are too large as well
		}
		if f.left--; f.left < 0 {
			f.cut = true
			return false
		}
		if f.found[k] = w; f.try(i+1, taken.add(&c.counts, 1), compute+c.compute) {
			return true
		}
	}
	f.failed[state] = true
	return false
}
