package serving

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// mostSizes is how many sizes of instance a GPU model has.
const mostSizes = 8

// counts is the number of instances of each size.
type counts [mostSizes]int

func (c *counts) add(o *counts, sign int) (sum counts) {
	for i := range c {
		sum[i] = c[i] + sign*o[i]
	}
	return sum
}

// choice is a way to carry a service.
type choice struct {
	counts
	compute  int // slices
	memory   int
	capacity float64
}

const (
	spare       = 3   // compute slices beyond the least that a choice may use
	mostChoices = 400 // per service
	mostPairs   = 40  // choices of two services that are tried together
)

// planner is a plan in the making.
type planner struct {
	m        *cluster.GPUModel
	services []Service
	sizes    []size
	layouts  []layout
	known    map[counts]int // fewest GPUs; looked up only
	least    []int          // by service, the fewest compute slices that carry it
	choices  [][]choice     // by service, the cheapest first
	at       []int          // the choice of each service
}

// layout is a way to divide a GPU to which nothing can be added.
type layout struct {
	counts
	instances []cluster.Instance
}

// Make plans services on GPUs of a model: first on as few as it finds by exchanging choices, then by a bounded
// search for fewer; then, on the same number, so that the services with the least to spare get more. It fails if
// a service meets its latency on no instance. headroom is the factor on its rate that each service must at least
// carry; 1 is none.
func Make(m *cluster.GPUModel, services []Service, headroom float64) (*Plan, error) {
	p, least, err := prepare(m, services, headroom)
	if err != nil {
		return nil, err
	}
	p.spread()
	plan := p.lay()
	plan.Least = least
	return plan, nil
}

// prepare chooses how to carry services on as few GPUs as it finds, and returns how many every plan needs.
func prepare(m *cluster.GPUModel, services []Service, headroom float64) (p *planner, least int, err error) {
	p = &planner{m: m, services: services, sizes: sizes(m, services), known: map[counts]int{},
		at: make([]int, len(services))}
	if len(p.sizes) == 0 || len(p.sizes) > mostSizes {
		return nil, 0, fmt.Errorf("%s has no MIG instances", m.Name)
	}
	p.findLayouts()
	for k := range services {
		if err := services[k].check(); err != nil {
			return nil, 0, err
		}
		list := p.waysFor(k, headroom)
		if len(list) == 0 && !slices.ContainsFunc(services[k].Points, func(p Point) bool { return p.Compute > 0 }) {
			return nil, 0, fmt.Errorf("service %s: it was measured by per cent of a GPU, not on MIG instances",
				services[k].Name)
		}
		if len(list) == 0 {
			return nil, 0, fmt.Errorf("service %s: no measured batch takes half of %v or less on any instance of a %s",
				services[k].Name, services[k].Latency, m.Name)
		}
		p.choices = append(p.choices, list)
	}
	p.fewest()
	return p, p.improve(headroom), nil
}

// findLayouts lists the full layouts that differ in more than where instances begin.
func (p *planner) findLayouts() {
	var profiles []*cluster.SliceProfile
	for i := range p.sizes {
		profiles = append(profiles, p.sizes[i].profile)
	}
	for _, full := range p.m.FullLayouts(profiles) {
		l := layout{instances: full}
		for _, in := range full {
			l.counts[p.sizeOf(in.Profile)]++
		}
		if !slices.ContainsFunc(p.layouts, func(o layout) bool { return o.counts == l.counts }) {
			p.layouts = append(p.layouts, l)
		}
	}
}

func (p *planner) sizeOf(profile string) int {
	return slices.IndexFunc(p.sizes, func(s size) bool { return s.profile.Name == profile })
}

// waysFor lists the ways to carry a service that have no instance too many and take hardly more compute slices
// than the least; the cheapest first.
func (p *planner) waysFor(k int, headroom float64) (list []choice) {
	need := p.services[k].Rate * headroom
	least := p.leastCompute(k, need)
	if least < 0 {
		return nil
	}
	p.least = append(p.least, least)
	list = p.ways(k, need, least+spare, 50*mostChoices)
	return list[:min(len(list), mostChoices)]
}

// ways lists at most this many ways to carry a rate of a service that have no instance too many, on up to that
// many compute slices, the cheapest first.
func (p *planner) ways(k int, need float64, compute, most int) (list []choice) {
	var grow func(from int, c choice)
	grow = func(from int, c choice) {
		if c.capacity >= need {
			list = append(list, c)
			return // another instance would be one too many
		}
		for i := from; i < len(p.sizes) && len(list) < most; i++ {
			best, profile := &p.sizes[i].best[k], p.sizes[i].profile
			if best.Batch == 0 || c.compute+profile.Compute > compute {
				continue
			}
			d := c
			d.counts[i]++
			d.compute, d.memory, d.capacity = d.compute+profile.Compute, d.memory+profile.Slots,
				d.capacity+best.Capacity()
			grow(i, d)
		}
	}
	grow(0, choice{})
	slices.SortStableFunc(list, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.compute, b.compute), cmp.Compare(a.memory, b.memory),
			cmp.Compare(b.capacity, a.capacity))
	})
	return list
}

// leastCompute is the fewest compute slices that carry a rate of a service; -1: none do.
func (p *planner) leastCompute(k int, need float64) int {
	most := []float64{0} // by compute slices
	if !slices.ContainsFunc(p.sizes, func(s size) bool { return s.best[k].Batch > 0 }) {
		return -1
	}
	for c := 1; ; c++ {
		best := most[c-1]
		for i := range p.sizes {
			if g := p.sizes[i].profile.Compute; g <= c && p.sizes[i].best[k].Batch > 0 {
				best = max(best, most[c-g]+p.sizes[i].best[k].Capacity())
			}
		}
		if most = append(most, best); best >= need {
			return c
		}
	}
}

// gpus is the fewest GPUs that carry these instances. The largest of them is on a GPU of some layout; the same
// holds for what that GPU leaves.
func (p *planner) gpus(c counts) int {
	n, ok := p.known[c]
	if ok {
		return n
	}
	if l := p.first(c); l >= 0 {
		n = 1 + p.gpus(p.without(c, l))
	}
	p.known[c] = n
	return n
}

// first is the layout of a first GPU after which the rest needs the fewest; -1: there is nothing to lay out.
func (p *planner) first(c counts) int {
	largest := slices.IndexFunc(c[:], func(n int) bool { return n > 0 })
	if largest < 0 {
		return -1
	}
	best, fewest := -1, 0
	for l := range p.layouts {
		if p.layouts[l].counts[largest] == 0 {
			continue
		}
		if n := p.gpus(p.without(c, l)); best < 0 || n < fewest {
			best, fewest = l, n
		}
	}
	return best
}

// without is what is left after a GPU has taken what its layout has room for.
func (p *planner) without(c counts, l int) counts {
	for i, n := range p.layouts[l].counts {
		c[i] -= min(c[i], n)
	}
	return c
}

// total is the instances of all services.
func (p *planner) total() (sum counts) {
	for k := range p.services {
		sum = sum.add(&p.choices[k][p.at[k]].counts, 1)
	}
	return sum
}

// fewest changes choices, of one service or of two, as long as that saves a GPU.
func (p *planner) fewest() {
	for again := true; again; {
		again = false
		sum := p.total()
		now := p.gpus(sum)
		for k := range p.services {
			rest := sum.add(&p.choices[k][p.at[k]].counts, -1)
			for c := range p.choices[k] {
				if p.gpus(rest.add(&p.choices[k][c].counts, 1)) < now {
					p.at[k], again = c, true
					break
				}
			}
			if again {
				break
			}
		}
		again = again || p.fewestByTwo(sum, now)
	}
}

func (p *planner) fewestByTwo(sum counts, now int) bool {
	for j := range p.services {
		for k := range j {
			rest := sum.add(&p.choices[j][p.at[j]].counts, -1)
			rest = rest.add(&p.choices[k][p.at[k]].counts, -1)
			for a := range min(mostPairs, len(p.choices[j])) {
				with := rest.add(&p.choices[j][a].counts, 1)
				for b := range min(mostPairs, len(p.choices[k])) {
					if p.gpus(with.add(&p.choices[k][b].counts, 1)) < now {
						p.at[j], p.at[k] = a, b
						return true
					}
				}
			}
		}
	}
	return false
}

// spread gives what the GPUs have left to the services with the least to spare, as long as any of them gains.
func (p *planner) spread() {
	fixed := make([]bool, len(p.services))
	now := p.gpus(p.total())
	for {
		least := -1
		for k := range p.services {
			if !fixed[k] && (least < 0 || p.room(k, p.at[k]) < p.room(least, p.at[least])) {
				least = k
			}
		}
		if least < 0 {
			return
		}
		sum := p.total()
		rest := sum.add(&p.choices[least][p.at[least]].counts, -1)
		best := -1
		for c := range p.choices[least] {
			if p.room(least, c) > p.room(least, p.at[least]) && (best < 0 || p.room(least, c) > p.room(least, best)) &&
				p.gpus(rest.add(&p.choices[least][c].counts, 1)) <= now {
				best = c
			}
		}
		if best < 0 {
			fixed[least] = true
			continue
		}
		p.at[least] = best
	}
}

// room is the factor on its rate that a service can carry with a choice.
func (p *planner) room(k, c int) float64 { return p.choices[k][c].capacity / p.services[k].Rate }

// lay puts the instances on GPUs: of each size in the order of the services.
func (p *planner) lay() *Plan {
	plan := &Plan{Capacity: make([]float64, len(p.services))}
	left := make([]counts, len(p.services))
	for k := range p.services {
		c := &p.choices[k][p.at[k]]
		left[k], plan.Capacity[k] = c.counts, c.capacity
	}
	for c := p.total(); c != (counts{}); plan.GPUs++ {
		l := p.first(c)
		for _, in := range p.layouts[l].instances {
			i := p.sizeOf(in.Profile)
			k := slices.IndexFunc(left, func(n counts) bool { return n[i] > 0 })
			if k < 0 {
				continue // idle
			}
			left[k][i]--
			plan.Instances = append(plan.Instances,
				Instance{Service: k, GPU: plan.GPUs, Instance: in, Point: p.sizes[i].best[k]})
		}
		c = p.without(c, l)
	}
	return plan
}
