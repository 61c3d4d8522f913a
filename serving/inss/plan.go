package inss

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Service is a model that answers requests, with its promise.
type Service struct {
	Name string
	Model
	Rate float64       // requests per second
	Goal time.Duration // from a request's arrival to its answer, at most
}

// Options bound plans.
type Options struct {
	Services int // on a GPU; 0: 4
	GPUs     int // 0: as many as are needed
	// Half: a batch takes at most half of the goal, instead of the goal less what filling it takes. That asks for less
	// where a goal is hardly longer than the time between two requests.
	Half   bool
	Agents *Agents // decide instead of the solver's rules; nil: none
}

// Placed is a service on a GPU.
type Placed struct {
	Service string
	Rate    float64       // requests per second for which its share was chosen
	Percent int           // of the GPU's threads
	Batch   int           // requests computed together
	Latency time.Duration // of a batch, at most
}

// Plan is where services run.
type Plan struct {
	GPUs     [][]Placed // by number; empty: it is not used
	Rejected []string   // services that no GPU carries, or for which there are no GPUs
}

// Used is the number of GPUs on which a service runs.
func (p *Plan) Used() (n int) {
	for _, g := range p.GPUs {
		if len(g) > 0 {
			n++
		}
	}
	return n
}

// Percent is the sum of all shares.
func (p *Plan) Percent() (sum int) {
	for _, g := range p.GPUs {
		for i := range g {
			sum += g[i].Percent
		}
	}
	return sum
}

// Shares that a service may have, in per cent.
const least, step, whole = 10, 5, 100

const mostBatch = 32 // batches are powers of two

// planner is a plan in the making.
type planner struct {
	gpu      *GPU
	o        Options
	services []Service
	solo     []int    // by service: the least share on which it meets its goal alone; 0: none
	rare     []bool   // by service: not even one request comes within its goal, so that none can wait for another
	loads    [][]Load // by service and steps of its share: the most that it does to neighbours
	gpus     [][]resident
	rejected []int
}

// resident is a service on a GPU.
type resident struct {
	k, percent, batch int
	latency           time.Duration
}

// Make plans services on GPUs that are all alike. Each in turn, those that need the largest share alone first, joins
// the GPU on which the least is left when all that are there have what they then need; if there is none, it gets
// another GPU. Few services are put together otherwise if that takes fewer GPUs.
func Make(g *GPU, services []Service, o Options) (*Plan, error) {
	p, err := newPlanner(g, services, o)
	if err != nil {
		return nil, err
	}
	all := make([]int, len(services))
	for k := range all {
		all[k] = k
	}
	p.place(all)
	p.regroup()
	return p.plan(), nil
}

func newPlanner(g *GPU, services []Service, o Options) (*planner, error) {
	if o.Services == 0 {
		o.Services = 4
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	p := &planner{gpu: g, o: o, services: services, solo: make([]int, len(services)), rare: make([]bool, len(services))}
	names := map[string]bool{}
	for k := range services {
		s := &services[k]
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("service %q: %w", s.Name, err)
		}
		if names[s.Name] {
			return nil, fmt.Errorf("service %q: there are two of this name", s.Name)
		}
		names[s.Name] = true
		p.rare[k] = s.fills(1)+s.Takes(g, 1, 1, Load{}).Latency() > s.Goal
		p.loads = append(p.loads, make([]Load, whole/step+1))
		for percent := whole; percent >= least; percent -= step {
			batch, _ := p.batch(k, percent, Load{})
			if batch == 0 || g.Memory > 0 && s.Memory > g.Memory {
				continue
			}
			// Neighbours only make batches smaller: next to them it does no more than alone.
			p.solo[k], p.loads[k][percent/step] = percent, s.Load(batch, float64(percent)/whole)
		}
	}
	return p, nil
}

func (g *GPU) check() error {
	for _, x := range []float64{float64(g.Memory), g.Bus, g.Idle, g.Limit, g.Throttle, g.Slowest} {
		if !(x >= 0) || math.IsInf(x, 1) {
			return errors.New("a number of a GPU is 0 or more")
		}
	}
	if g.Limit > 0 && !(g.Slowest > 0 && g.Slowest <= 1) {
		return errors.New("with a limit of power a GPU keeps some of its speed: slowest is above 0 and at most 1")
	}
	return nil
}

func (s *Service) check() error {
	a := &s.Activity
	for _, x := range []float64{a.Square, a.Each, a.Fixed, a.Offset, a.Floor, float64(s.Launches), s.Launch, s.Queued,
		s.Sensitivity, s.Cache.Whole, s.Cache.Each, s.Power.Whole, s.Power.Each, s.In, s.Out, float64(s.Memory)} {
		if !(x >= 0) || math.IsInf(x, 1) {
			return errors.New("a number of a model is 0 or more")
		}
	}
	if !(s.Rate > 0) || math.IsInf(s.Rate, 1) || s.Goal <= 0 {
		return errors.New("rate and goal are above 0")
	}
	return nil
}

// fills is how long requests take to fill a batch.
func (s *Service) fills(batch int) time.Duration { return milliseconds(float64(batch) / s.Rate * 1e3) }

// meets reports whether batches keep up with the rate, and each request is answered within the goal.
func (p *planner) meets(k, batch int, t Stages) bool {
	s := &p.services[k]
	wait, latency := s.fills(batch), t.Latency()
	switch {
	case p.rare[k]: // a request waits for at most the one before
		return batch == 1 && 2*latency <= s.Goal
	case t.Execute+t.Return > wait || t.Load > wait: // the next batch is loaded in the meantime
		return false
	case p.o.Half:
		return 2*latency <= s.Goal
	}
	return wait+latency <= s.Goal
}

// batch is the largest batch with which a service meets its goal on a share next to neighbours, and how long it takes;
// 0: none does.
func (p *planner) batch(k, percent int, beside Load) (batch int, latency time.Duration) {
	for b := mostBatch; b >= 1; b /= 2 {
		if t := p.services[k].Takes(p.gpu, b, float64(percent)/whole, beside); p.meets(k, b, t) {
			return b, t.Latency()
		}
	}
	return 0, 0
}

// settle finds shares with which services meet their goals on one GPU: while some do not, each of them gets a step
// more. It changes what it is given, and fails if the GPU is too small.
func (p *planner) settle(list []resident) bool {
	if !p.room(list) {
		return false
	}
	short := make([]bool, len(list))
	for percent(list) <= whole {
		again := false
		for i := range list {
			r := &list[i]
			r.batch, r.latency = p.batch(r.k, r.percent, p.beside(list, i))
			short[i] = r.batch == 0
			again = again || short[i]
		}
		if !again {
			return true
		}
		if p.o.Agents != nil {
			p.grow(list, short)
			continue
		}
		for i := range list {
			if short[i] {
				list[i].percent += step
			}
		}
	}
	return false
}

// room reports whether a GPU has the memory for services, and may have as many.
func (p *planner) room(list []resident) bool {
	memory := int64(0)
	for i := range list {
		memory += p.services[list[i].k].Memory
	}
	return len(list) <= p.o.Services && (p.gpu.Memory == 0 || memory <= p.gpu.Memory)
}

func percent(list []resident) (sum int) {
	for i := range list {
		sum += list[i].percent
	}
	return sum
}

// beside is what the neighbours of a service do.
func (p *planner) beside(list []resident, i int) (sum Load) {
	for j := range list {
		if j != i {
			sum = sum.plus(p.loads[list[j].k][list[j].percent/step])
		}
	}
	return sum
}

// place puts services on GPUs, those with the largest share alone first.
func (p *planner) place(list []int) {
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(p.solo[b], p.solo[a]) })
	for _, k := range list {
		carried := p.solo[k] > 0
		if carried && p.o.Agents != nil {
			carried = p.choose(k)
		} else if carried {
			carried = p.join(k) || p.open(k)
		}
		if !carried {
			p.rejected = append(p.rejected, k)
		}
	}
}

// join adds a service to the used GPU on which the least is then left; of equal ones, the first.
func (p *planner) join(k int) bool {
	at, best := -1, []resident(nil)
	for g := range p.gpus {
		if len(p.gpus[g]) == 0 || percent(p.gpus[g])+p.solo[k] > whole {
			continue
		}
		list := append(slices.Clone(p.gpus[g]), resident{k: k, percent: p.solo[k]})
		if p.settle(list) && (at < 0 || percent(list) > percent(best)) {
			at, best = g, list
		}
	}
	if at >= 0 {
		p.gpus[at] = best
	}
	return at >= 0
}

// open gives a service an unused GPU.
func (p *planner) open(k int) bool {
	at, used := len(p.gpus), 0
	for g := len(p.gpus) - 1; g >= 0; g-- {
		if len(p.gpus[g]) == 0 {
			at = g
		} else {
			used++
		}
	}
	list := []resident{{k: k, percent: p.solo[k]}}
	if p.o.GPUs > 0 && used >= p.o.GPUs || !p.settle(list) {
		return false
	}
	if at == len(p.gpus) {
		p.gpus = append(p.gpus, nil)
	}
	p.gpus[at] = list
	return true
}

func (p *planner) plan() *Plan {
	plan := &Plan{GPUs: make([][]Placed, len(p.gpus))}
	for g := range p.gpus {
		for _, r := range p.gpus[g] {
			s := &p.services[r.k]
			plan.GPUs[g] = append(plan.GPUs[g], Placed{s.Name, s.Rate, r.percent, r.batch, r.latency})
		}
	}
	for _, k := range p.rejected {
		plan.Rejected = append(plan.Rejected, p.services[k].Name)
	}
	return plan
}

// Replicas is how many replicas carry a service together with the least share alone, each with an equal part of its
// rate; a GPU's part for each of the services that it may have at most is the least that counts. 0: none do.
func Replicas(g *GPU, s Service, o Options) (replicas int, err error) {
	rate, best := s.Rate, math.MaxInt
	for n := 1; n <= mostReplicas && n*least < best; n++ {
		s.Rate = rate / float64(n)
		p, err := newPlanner(g, []Service{s}, o)
		if err != nil {
			return 0, err
		}
		if sum := n * max(p.solo[0], whole/p.o.Services); p.solo[0] > 0 && sum < best {
			replicas, best = n, sum
		}
		if p.rare[0] {
			break
		}
	}
	return replicas, nil
}

const mostReplicas = 10_000
