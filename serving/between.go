package serving

import (
	"math"
	"slices"
	"time"
)

// mostRounds bounds how often services are planned again because of interference.
const mostRounds = 20

// onWhole is the slowdown assumed on less than a GPU for a service that is to have whole GPUs: no part of a GPU
// is then fast enough for any promise.
var onWhole = math.Inf(1)

// undisturbed plans services so that each carries its rate in time despite the other gpulet of its GPU. A
// service that cannot is assumed to be as slow as it was there on any part of a GPU, and all are planned again.
// Slowdowns are bounded by the worst pair, and on a whole GPU there is no interference, so this ends.
func (c *carrier) undisturbed() (*SharePlan, error) {
	ways := c.ways()
	p, at := c.plan(ways)
	p.Rounds = 1
	if c.o.Slower == nil {
		return p, nil
	}
	for least := p.Least; ; { // a lower bound without interference holds with it
		slower := c.company(p)
		short := c.short(p)
		if len(short) == 0 {
			if p.Rounds == 1 {
				return p, nil
			}
			q, err := c.apart(c.fewer(p, ways))
			q.Least = least
			return q, err
		}
		for _, k := range short {
			slowed := max(c.slowed[k], slower[k])
			if p.Rounds >= mostRounds {
				slowed = onWhole
			}
			if err := c.saturate(k, slowed); err != nil {
				return nil, err
			}
		}
		round := p.Rounds + 1
		p, _ = c.plan(ways[at : at+1])
		p.Rounds = round
	}
}

// fewer is the given plan, or one on fewer GPUs in which no service is short either: while planning was
// repeated, only one way was tried.
func (c *carrier) fewer(p *SharePlan, ways []variant) *SharePlan {
	q, _ := c.plan(ways)
	c.company(q)
	if q.GPUs >= p.GPUs || len(c.short(q)) > 0 {
		return p
	}
	q.Rounds = p.Rounds
	return q
}

// apart is the given plan, or one in which no two services share a GPU if that takes fewer GPUs.
func (c *carrier) apart(p *SharePlan) (*SharePlan, error) {
	was := slices.Clone(c.slowed)
	if err := c.slow(func(int) float64 { return onWhole }); err != nil {
		return p, err
	}
	q, _ := c.plan(c.ways())
	if q.GPUs < p.GPUs {
		q.Rounds = p.Rounds
		return q, nil
	}
	return p, c.slow(func(k int) float64 { return was[k] })
}

// slow sets the assumed slowdown of services on less than a GPU.
func (c *carrier) slow(by func(k int) float64) error {
	for k := range c.services {
		if err := c.saturate(k, by(k)); err != nil {
			return err
		}
	}
	return nil
}

// company records how much the two gpulets of each GPU slow each other down, and returns the greatest slowdown
// by service.
func (c *carrier) company(p *SharePlan) (slower []float64) {
	slower = make([]float64, len(c.services))
	for i := range p.Gpulets {
		g := &p.Gpulets[i]
		for j := range p.Gpulets[max(0, i-1):min(len(p.Gpulets), i+2)] { // gpulets are sorted by GPU
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

// beside is the factor by which a gpulet's batches take longer next to another gpulet: that of the worst pair of
// their services, at least 1.
func (c *carrier) beside(g, o *Gpulet) float64 {
	factor := 1.0
	for i := range g.Turns {
		for j := range o.Turns {
			own, other := c.services[g.Turns[i].Service].use(g.Turns[i].Batch),
				c.services[o.Turns[j].Service].use(o.Turns[j].Batch)
			factor = max(factor, c.o.Slower(own, other, float64(g.Percent)/100, float64(o.Percent)/100))
		}
	}
	return factor
}

// short lists the services that cannot carry their rate, or are late, because of interference.
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
