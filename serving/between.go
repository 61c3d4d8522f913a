package serving

import (
	"slices"
	"time"
)

// mostRounds bounds how often services are planned anew because of whom they are beside.
const mostRounds = 20

// undisturbed plans services so that each can take its rate, in time, beside whom it is:
// who cannot is taken to be as slow as it was there, on less than a whole GPU, and all are
// planned anew. Nobody is slower than the worst that anybody does to it, and on a whole
// GPU nobody is beside it, so that ends.
func (c *carrier) undisturbed() (*SharePlan, error) {
	for round := 1; ; round++ {
		p := c.plan()
		p.Rounds = round
		if c.o.Slower == nil {
			return p, nil
		}
		slower := c.company(p)
		short := c.short(p)
		if len(short) == 0 {
			return p, nil
		}
		for _, k := range short {
			c.slowed[k] = max(c.slowed[k], slower[k])
			if round >= mostRounds {
				c.slowed[k] = max(c.slowed[k], 1e6) // whole GPUs for it
			}
			if err := c.saturate(k); err != nil {
				return nil, err
			}
		}
	}
}

// company notes how much slower gpulets are beside each other, and says how much that is
// at most by service.
func (c *carrier) company(p *SharePlan) (slower []float64) {
	slower = make([]float64, len(c.services))
	for i := range p.Gpulets {
		g := &p.Gpulets[i]
		for j := range p.Gpulets[max(0, i-1):min(len(p.Gpulets), i+2)] { // they are in order of GPUs
			if o := &p.Gpulets[max(0, i-1)+j]; o != g && o.GPU == g.GPU {
				g.Slower = c.beside(g, o)
			}
		}
		for t := range g.Turns {
			k := g.Turns[t].Service
			slower[k] = max(slower[k], g.Slower)
		}
	}
	p.count()
	return slower
}

// beside is how many times as long a gpulet's batches take beside another's: as the worst
// pair of their services. Nobody is counted on to be quicker.
func (c *carrier) beside(g, o *Gpulet) float64 {
	factor := 1.0
	for i := range g.Turns {
		for j := range o.Turns {
			own, other := c.services[g.Turns[i].Service].use(g.Turns[i].Batch), c.services[o.Turns[j].Service].use(o.Turns[j].Batch)
			factor = max(factor, c.o.Slower(own, other, float64(g.Percent)/100, float64(o.Percent)/100))
		}
	}
	return factor
}

// short are the services that cannot take what they should, beside whom they are.
func (c *carrier) short(p *SharePlan) (list []int) {
	for k := range c.services {
		if want := (c.planned(k) - p.Ignored[k]) * c.o.Enough; p.Capacity[k] < want*(1-1e-9) {
			list = append(list, k)
		}
	}
	if c.o.Enough < 1 {
		return list
	}
	wait, takes := make([]time.Duration, len(c.services)), make([]time.Duration, len(c.services))
	for i := range p.Gpulets {
		g := &p.Gpulets[i]
		for t := range g.Turns {
			turn := &g.Turns[t]
			k := turn.Service
			wait[k], takes[k] = max(wait[k], g.Cycle()), max(takes[k], g.Takes(turn))
			if g.Cycle() > g.Duty && !slices.Contains(list, k) {
				list = append(list, k)
			}
		}
	}
	for k := range c.services {
		if wait[k]+takes[k] > c.services[k].Latency && !slices.Contains(list, k) {
			list = append(list, k)
		}
	}
	return list
}
