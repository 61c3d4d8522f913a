package serving

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Gpulet is a part of a GPU under MPS, in which services take turns: in each cycle every one of them computes a
// batch, one after the other.
type Gpulet struct {
	GPU     int           // from 0
	Percent int           // of the GPU's threads
	Duty    time.Duration // the longest allowed cycle
	Slower  float64       // factor by which batches take longer next to the GPU's other gpulet; 1: not at all
	Turns   []Turn
}

// Turn is what a service computes in each cycle of a gpulet.
type Turn struct {
	Service int
	Rate    float64       // requests per second that were planned for it
	Batch   int           // at most
	Takes   time.Duration // a batch, without interference

	curve []time.Duration // smaller batches, by size less one; none: they take as long
}

// Takes is how long a batch of a turn takes on the gpulet, including interference.
func (g *Gpulet) Takes(t *Turn) time.Duration { return longer(t.Takes, g.Slower) }

func longer(d time.Duration, factor float64) time.Duration {
	return time.Duration(math.Ceil(min(float64(d)*factor, float64(never))))
}

// Cycle is how long a cycle takes if every batch is full: all turns, without a pause.
func (g *Gpulet) Cycle() (sum time.Duration) {
	for i := range g.Turns {
		sum += g.Takes(&g.Turns[i])
	}
	return sum
}

// Busy is the part of the longest cycle that is spent computing, without interference: its occupancy.
func (g *Gpulet) Busy() float64 {
	sum := time.Duration(0)
	for i := range g.Turns {
		sum += g.Turns[i].Takes
	}
	return float64(sum) / float64(g.Duty)
}

// Capacity is the requests per second that a turn can take.
func (g *Gpulet) Capacity(t *Turn) float64 { return float64(t.Batch) / g.Cycle().Seconds() }

// SharePlan is the gpulets of all services, by GPU, the larger first.
type SharePlan struct {
	GPUs     int
	Least    int // GPUs that every plan with these sizes needs
	Gpulets  []Gpulet
	Capacity []float64 // requests per second, by service
	Ignored  []float64 // requests per second that were left out, by service (ShareOptions.Ignore)
	Rounds   int       // how often it was planned because of interference
}

// ShareOptions configure a plan on parts of GPUs.
type ShareOptions struct {
	// Sizes are the parts into which a GPU may be divided, in per cent; 100 is always one, and so is the
	// complement of each. None: those of gpulet.
	Sizes    []int
	Headroom float64 // plan for this multiple of the rates; 0: 1
	// Ignore is the remainder of a service's rate, in requests per second, below which nothing is planned for
	// it; gpulet's code has 15. 0: everything is planned.
	Ignore float64
	Tight  bool // what is left on the GPUs stays free, instead of being given to the services with the least to spare
	// Slower is the factor by which a service's batches take longer next to another, given what each uses of its
	// part of the GPU (0 to 1); nil: 1.
	Slower func(own, beside Use, share, besideShare float64) float64
	// Enough is the part of its rate that a service must carry despite interference, at most 1, for which 0
	// stands; gpulet's code has 0.85. Below 1 latencies are not kept.
	Enough float64
}

// GpuletSizes are the parts into which gpulet divides GPUs, in per cent.
func GpuletSizes() []int { return []int{20, 40, 50, 60, 80, 100} }

// mostGpulets bounds how many gpulets one service gets.
const mostGpulets = 100_000

// carrier plans services on parts of GPUs.
type carrier struct {
	m        *cluster.GPUModel
	services []Service
	o        *ShareOptions
	more     float64             // factor on the rates, in addition to the headroom
	sizes    []int               // in per cent, ascending; the last is 100
	solo     [][][]time.Duration // by service, size, batch less one: how long it takes without interference
	takes    [][][]time.Duration // how long it is assumed to take
	slowed   []float64           // by service: the factor between the two, on less than a GPU
	each     [][][]float64       // by service, size, batch less one: the least ns per request in batches up to it
	most     [][]int             // by service and size: its saturated batch; 0: none is fast enough
	full     [][]float64         // by service and size: the rate of that batch; 0: there is none
	longest  []time.Duration     // by service: the time of the longest of these batches
}

// MakeShares plans services on parts of GPUs of a model: elastic partitioning with turns (gpulet, ATC'22), on
// the fewest GPUs that several variants find. It fails if a service cannot keep its latency on a whole GPU.
func MakeShares(m *cluster.GPUModel, services []Service, o ShareOptions) (*SharePlan, error) {
	if o.Headroom == 0 {
		o.Headroom = 1
	}
	if o.Enough == 0 {
		o.Enough = 1
	}
	c, err := newCarrier(m, services, &o)
	if err != nil {
		return nil, err
	}
	p, err := c.undisturbed()
	if err != nil || o.Ignore > 0 || o.Tight {
		return p, err
	}
	return c.spread(p), nil
}

// spread plans for higher rates as long as that takes no further GPU, so that what is left on the GPUs serves
// the services with the least to spare.
func (c *carrier) spread(p *SharePlan) *SharePlan {
	for _, c.more = range []float64{1.01, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 2} {
		q, _ := c.plan(c.ways())
		if c.o.Slower != nil {
			c.company(q)
		}
		if q.GPUs > p.GPUs || len(c.short(q)) > 0 {
			break
		}
		q.Least, q.Rounds = p.Least, p.Rounds
		p = q
	}
	return p
}

func newCarrier(m *cluster.GPUModel, services []Service, o *ShareOptions) (*carrier, error) {
	c := &carrier{m: m, services: services, o: o, more: 1, slowed: make([]float64, len(services))}
	if !m.MPSLimits() {
		return nil, fmt.Errorf("%s: MPS has no limit for each client before Volta", m.Name)
	}
	var err error
	if c.sizes, err = shareSizes(o.Sizes); err != nil {
		return nil, err
	}
	for k := range services {
		s := &services[k]
		if err := s.check(); err != nil {
			return nil, err
		}
		list := partsOf(m, s)
		var takes [][]time.Duration
		for _, p := range c.sizes {
			takes = append(takes, curve(list, p))
		}
		c.solo, c.takes = append(c.solo, takes), append(c.takes, slices.Clone(takes))
		c.most, c.full, c.longest = append(c.most, nil), append(c.full, nil), append(c.longest, 0)
		c.each = append(c.each, make([][]float64, len(c.sizes)))
		if err := c.saturate(k, 1); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// shareSizes checks sizes, and sorts them.
func shareSizes(list []int) ([]int, error) {
	if len(list) == 0 {
		list = GpuletSizes()
	}
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	for _, p := range list {
		switch {
		case p < 1 || p > 100:
			return nil, fmt.Errorf("size %d; want 1 to 100 per cent of a GPU", p)
		case p < 100 && !slices.Contains(list, 100-p):
			return nil, fmt.Errorf("size %d leaves %d of a GPU, which is not a size: %d,%d is", p, 100-p, p, 100-p)
		}
	}
	if list[len(list)-1] != 100 {
		list = append(list, 100)
	}
	return list, nil
}

// saturate sets a service's assumed slowdown on less than a GPU, and finds its saturated batch on every size: of
// the batches that let a request wait for one and be computed in the next within its latency, the one with the
// greatest rate, and of equal ones the largest.
func (c *carrier) saturate(k int, slowed float64) error {
	s, known := &c.services[k], false
	c.slowed[k], c.longest[k] = slowed, 0
	c.most[k], c.full[k] = make([]int, len(c.sizes)), make([]float64, len(c.sizes))
	for z := range c.sizes {
		if z < len(c.sizes)-1 {
			c.takes[k][z] = make([]time.Duration, len(c.solo[k][z]))
			for b, d := range c.solo[k][z] {
				c.takes[k][z][b] = longer(d, slowed)
			}
		}
		c.each[k][z] = make([]float64, len(c.takes[k][z]))
		for b, d := range c.takes[k][z] {
			known = true
			c.each[k][z][b] = float64(d) / float64(b+1)
			if b > 0 {
				c.each[k][z][b] = min(c.each[k][z][b], c.each[k][z][b-1])
			}
			if rate := float64(b+1) / d.Seconds(); 2*d <= s.Latency && rate >= c.full[k][z] {
				c.most[k][z], c.full[k][z] = b+1, rate
			}
		}
		if b := c.most[k][z]; b > 0 {
			c.longest[k] = max(c.longest[k], c.takes[k][z][b-1])
		}
	}
	whole := len(c.sizes) - 1
	switch {
	case !known:
		return fmt.Errorf("service %s: it was not measured on %v per cent of a %s, nor on instances of one and on a whole GPU", s.Name, c.sizes, c.m.Name)
	case c.most[k][whole] == 0:
		return fmt.Errorf("service %s: no measured batch takes half of %v or less on a whole %s", s.Name, s.Latency,
			c.m.Name)
	case s.Rate*c.o.Headroom > mostGpulets*c.full[k][whole]:
		return fmt.Errorf("service %s: rate %g; a whole %s takes %.0f, and more than %d of them are not planned",
			s.Name, s.Rate, c.m.Name, c.full[k][whole], mostGpulets)
	}
	return nil
}

// knee is the size at which a service is saturated: the one farthest above the straight line to the rate of a
// whole GPU; of equal ones the largest.
func (c *carrier) knee(k int) int {
	best := len(c.sizes) - 1
	whole := c.full[k][best]
	above := func(z int) float64 { return c.full[k][z]/whole - float64(c.sizes[z])/100 }
	for z := best - 1; z >= 0; z-- {
		if above(z) > above(best)+1e-9 {
			best = z
		}
	}
	return best
}

// least is a lower bound on the GPUs: as if every service had exactly as much as it needs, at the size where it
// does most per part of a GPU.
func (c *carrier) least() int {
	sum := 0.0
	for k := range c.services {
		best := 0.0
		for z, p := range c.sizes {
			best = max(best, c.full[k][z]*100/float64(p))
		}
		sum += c.planned(k) / best
	}
	return max(1, int(math.Ceil(sum-1e-9)))
}

// planned is the rate that a service is planned for.
func (c *carrier) planned(k int) float64 { return c.services[k].Rate * c.o.Headroom * c.more }

// piece is a part of a service's rate that gets a gpulet.
type piece struct {
	service int
	rate    float64
	size    int // of its gpulet, an index of sizes
	full    bool
}

// pieces divides the services' rates into saturated gpulets of the given size for each service, and a remainder.
// The services with the smallest rate times latency come first, as in gpulet's code; among pieces the largest.
func (c *carrier) pieces(size func(k int) int) (list []piece, ignored []float64) {
	order := make([]int, len(c.services))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int {
		s, t := &c.services[a], &c.services[b]
		return cmp.Compare(s.Rate*s.Latency.Seconds(), t.Rate*t.Latency.Seconds())
	})
	ignored = make([]float64, len(c.services))
	for _, k := range order {
		z, rate := size(k), c.planned(k)
		full, divided := c.full[k][z], false
		for full > 0 && rate >= full*(1-1e-9) {
			list = append(list, piece{k, min(full, rate), z, true})
			rate, divided = rate-full, true
		}
		switch {
		case divided && rate <= full*1e-9:
		case rate < c.o.Ignore:
			ignored[k] = rate
		default:
			list = append(list, piece{k, rate, -1, false})
		}
	}
	return list, ignored
}

// variant is one variant of laying out services.
type variant struct {
	size  func(k int) int // size at which a service is saturated
	gpus  func(least, pieces int) int
	first bool // whether turns are tried before free room
}

// ways lists the variants: saturated at the knee, at the size that does most per part of a GPU, or on whole
// GPUs, which takes no more GPUs than if no services shared; with different numbers of GPUs from the start; with
// turns tried before or after free room.
func (c *carrier) ways() (list []variant) {
	for _, size := range []func(k int) int{c.knee, c.densest, func(int) int { return len(c.sizes) - 1 }} {
		for _, gpus := range []func(least, pieces int) int{
			func(least, _ int) int { return least }, func(_, _ int) int { return 0 },
			func(least, _ int) int { return least / 2 }, func(_, pieces int) int { return pieces },
		} {
			list = append(list, variant{size, gpus, false}, variant{size, gpus, true})
		}
	}
	return list
}

// plan lays out the services in several variants, and returns the first plan on the fewest GPUs, with the index
// of its variant.
func (c *carrier) plan(ways []variant) (best *SharePlan, at int) {
	least := c.least()
	for i := range ways {
		list, ignored := c.pieces(ways[i].size)
		p := c.lay(list, ways[i].gpus(least, len(list)), ways[i].first).plan(ignored)
		if best == nil || p.GPUs < best.GPUs {
			best, at = p, i
		}
		if best.GPUs <= least {
			break
		}
	}
	best.Least = least
	return best, at
}

// densest is the size on which a service has the greatest rate per part of a GPU; of equal ones the largest.
func (c *carrier) densest(k int) int {
	best := len(c.sizes) - 1
	of := func(z int) float64 { return c.full[k][z] / float64(c.sizes[z]) }
	for z := best - 1; z >= 0; z-- {
		if of(z) > of(best)*(1+1e-9) {
			best = z
		}
	}
	return best
}
