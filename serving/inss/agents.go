package inss

import (
	_ "embed" // the shipped weights
	"fmt"
	"math"
	"slices"

	"github.com/muster-gpu/muster/learn"
)

// Agents are the two learnt stages of InSS: one chooses the GPU of a service, the other whose share grows where
// services on a GPU do not all meet their goals. The paper's agents are not public, and learn by reward from single
// decisions (its local stage with TD3); these are small networks that score what can be chosen, found by evolution.
type Agents struct{ place, share *learn.Net }

// System names the agents' files of weights.
const System = "inss-rl"

var shapes = map[string][]int{"place": {9, 12, 1}, "share": {6, 8, 1}}

//go:embed agents.json
var shipped []byte

// ReadAgents decodes a file of weights; nothing: those that are part of the program. Its errors name what is wrong.
func ReadAgents(text []byte) (*Agents, error) {
	if text == nil {
		text = shipped
	}
	nets, err := learn.ReadNets(System, text, shapes)
	if err != nil {
		return nil, err
	}
	return &Agents{nets["place"], nets["share"]}, nil
}

// Write encodes the agents as a file. trained is the command that made them.
func (a *Agents) Write(trained string) ([]byte, error) {
	return learn.WriteNets(System, trained, map[string]*learn.Net{"place": a.place, "share": a.share})
}

// choose puts a service on the GPU whose state after that scores most: one that is used, or another one.
func (p *planner) choose(k int) bool {
	at, most, best := -1, 0.0, []resident(nil)
	total := 0
	for g := range p.gpus {
		total += percent(p.gpus[g])
	}
	fresh := p.unused()
	for g := range len(p.gpus) + 1 {
		var before []resident
		switch {
		case g == fresh:
		case g == len(p.gpus) || len(p.gpus[g]) == 0:
			continue
		default:
			before = p.gpus[g]
		}
		if g == fresh && p.o.GPUs > 0 && p.used() >= p.o.GPUs || percent(before)+p.solo[k] > whole {
			continue
		}
		list := append(slices.Clone(before), resident{k: k, percent: p.solo[k]})
		if !p.settle(list) {
			continue
		}
		score := p.o.Agents.place.Forward(p.seen(k, before, list, total))[0]
		if at < 0 || score > most {
			at, most, best = g, score, list
		}
	}
	if at < 0 {
		return false
	}
	if at == len(p.gpus) {
		p.gpus = append(p.gpus, nil)
	}
	p.gpus[at] = best
	return true
}

// unused is the first GPU on which nothing runs.
func (p *planner) unused() int {
	if g := slices.IndexFunc(p.gpus, func(list []resident) bool { return len(list) == 0 }); g >= 0 {
		return g
	}
	return len(p.gpus)
}

func (p *planner) used() (n int) {
	for _, list := range p.gpus {
		n += min(1, len(list))
	}
	return n
}

// seen is what the first stage looks at: the service, the GPU before and after, and all GPUs.
func (p *planner) seen(k int, before, after []resident, total int) []float64 {
	s := &p.services[k]
	load := p.loads[k][p.solo[k]/step]
	others := Load{}
	for i := range before {
		others = others.plus(p.loads[before[i].k][before[i].percent/step])
	}
	part := func(n int) float64 { return float64(n) / whole }
	fresh := 0.0
	if len(before) == 0 {
		fresh = 1
	}
	return []float64{part(p.solo[k]), min(2, s.Sensitivity), min(2, load.Cache), min(2, others.Cache),
		part(whole - percent(after)), part(percent(after) - percent(before) - p.solo[k]), float64(len(before)) / 4,
		fresh,
		math.Mod(part(total+p.solo[k]), 1)}
}

// grow gives a step more of the GPU to one of the services that do not meet their goals.
func (p *planner) grow(list []resident, short []bool) {
	at, most := -1, 0.0
	for i := range list {
		if !short[i] {
			continue
		}
		s, beside := &p.services[list[i].k], p.beside(list, i)
		own := p.loads[list[i].k][list[i].percent/step]
		next := 0.0 // it meets its goal with a step more
		if list[i].percent+step <= whole {
			if b, _ := p.batch(list[i].k, list[i].percent+step, beside); b > 0 {
				next = 1
			}
		}
		score := p.o.Agents.share.Forward([]float64{float64(list[i].percent) / whole,
			float64(list[i].percent-p.solo[list[i].k]) / whole, min(2, s.Sensitivity), min(2, own.Cache),
			min(2, beside.Cache), next})[0]
		if at < 0 || score > most {
			at, most = i, score
		}
	}
	list[at].percent += step
}

// Better is the plan that carries more services, or as many on fewer GPUs, or on as many with less share; of equal
// ones the first.
func Better(a, b *Plan) *Plan {
	for _, d := range []int{len(a.Rejected) - len(b.Rejected), a.Used() - b.Used(), a.Percent() - b.Percent()} {
		if d != 0 {
			if d < 0 {
				return a
			}
			return b
		}
	}
	return a
}

// Training finds weights.
type Training struct {
	Rounds    int
	Seed      uint64
	Cancelled func() bool
	Progress  func(round int, score float64) // GPUs and their parts relative to the solver's, on held-out cases
}

// Rounds is how many the shipped weights were trained for.
const Rounds = 60

const (
	pairs    = 30   // of variations in a round, each with its opposite
	perRound = 300  // cases
	spread   = 0.15 // standard deviation of a variation
	pace     = 0.05
	heldOut  = 200 // cases
)

// Learn finds weights by evolution (Salimans et al., 2017): the weights move towards those variations, by rank, that
// plan random cases with fewer GPUs and less share. What is best on held-out cases is kept. The same training finds the
// same weights.
func (t *Training) Learn() *Agents {
	r := learn.NewRand(t.Seed + 1)
	a := &Agents{learn.NewNet(r, shapes["place"]...), learn.NewNet(r, shapes["share"]...)}
	held := cases(learn.NewRand(t.Seed+1_000_003), heldOut)
	best, least := a.clone(), a.score(held)
	for round := 1; round <= t.Rounds && !t.Cancelled(); round++ {
		list := cases(r, perRound)
		noise, worth := make([][]float64, pairs), make([]float64, 2*pairs)
		for i := range noise {
			for range a.size() {
				noise[i] = append(noise[i], r.Norm())
			}
			worth[2*i], worth[2*i+1] = -a.moved(noise[i], spread).score(list), -a.moved(noise[i], -spread).score(list)
		}
		step := make([]float64, a.size())
		for i, n := range noise {
			d := rank(worth, 2*i) - rank(worth, 2*i+1)
			for k := range step {
				step[k] += float64(d * n[k])
			}
		}
		a = a.moved(step, pace)
		if round%5 != 0 && round != t.Rounds {
			continue
		}
		score := a.score(held)
		if score < least {
			best, least = a.clone(), score
		}
		t.Progress(round, least)
	}
	return best
}

// rank is where a value stands among all, from -0.5 to 0.5.
func rank(values []float64, i int) float64 {
	below := 0.0
	for _, v := range values {
		switch {
		case v < values[i]:
			below++
		case v == values[i]:
			below += 0.5
		}
	}
	return below/float64(len(values)) - 0.5
}

func (a *Agents) params() [][]float64 {
	return append(slices.Clone(a.place.Params()), a.share.Params()...)
}

func (a *Agents) size() (n int) {
	for _, p := range a.params() {
		n += len(p)
	}
	return n
}

func (a *Agents) clone() *Agents { return a.moved(nil, 0) }

// moved is a copy whose weights have moved by a part of a direction.
func (a *Agents) moved(by []float64, part float64) *Agents {
	c := &Agents{a.place.Clone(), a.share.Clone()}
	k := 0
	for _, p := range c.params() {
		for i := range p {
			if by != nil {
				p[i] += float64(part * by[k])
			}
			k++
		}
	}
	return c
}

// trial is a random case, with what the solver needs for it.
type trial struct {
	*planner
	solver *Plan
}

// cases draws services as those that InSS was tested with: 4 to 15, with interference from none to strong.
func cases(r *learn.Rand, n int) (list []trial) {
	for len(list) < n {
		var services []Service
		between := func(low, high float64) float64 { return low + float64((high-low)*r.Float()) }
		for k := range 4 + r.Int(12) {
			s := Service{Name: fmt.Sprint(k), Rate: math.Round(between(50, 350))}
			s.Goal = milliseconds(math.Round(between(30, 130)))
			s.Activity = Activity{Each: between(0.3, 2.5), Fixed: between(0, 4)}
			s.Sensitivity, s.Cache = between(0, 0.5), Use{Whole: between(0, 0.8)}
			services = append(services, s)
		}
		p, err := newPlanner(&GPU{}, services, Options{})
		if err != nil || slices.Contains(p.solo, 0) {
			continue
		}
		solver := *p
		all := make([]int, len(services))
		for k := range all {
			all[k] = k
		}
		solver.place(slices.Clone(all))
		list = append(list, trial{p, solver.plan()})
	}
	return list
}

// score is the GPUs that are taken, and a fifth of the share, relative to the solver's.
func (a *Agents) score(list []trial) (sum float64) {
	cost := func(p *Plan) float64 { return float64(p.Used()) + float64(p.Percent())/(5*whole) }
	for _, c := range list {
		sum += cost(a.plan(c)) / cost(c.solver)
	}
	return sum / float64(len(list))
}

// Judgement is how agents plan random cases that they have not seen, beside the solver.
type Judgement struct {
	Cases         int
	Better, Worse int    // cases in which the agents' plan is better, or worse, than the solver's
	Solver        [2]int // GPUs, and per cent of them, over all cases
	Agents        [2]int // of the agents alone
	Both          [2]int // of the better plan of the two
	Least         int    // GPUs that the least shares alone would fill
}

// Judge has agents plan random cases; another seed draws others.
func (a *Agents) Judge(n int, seed uint64) (j Judgement) {
	add := func(to *[2]int, p *Plan) { to[0], to[1] = to[0]+p.Used(), to[1]+p.Percent() }
	for _, c := range cases(learn.NewRand(seed), n) {
		own := a.plan(c)
		both := Better(c.solver, own)
		j.Cases++
		switch {
		case both == own:
			j.Better++
		case Better(own, c.solver) == c.solver:
			j.Worse++
		}
		add(&j.Solver, c.solver)
		add(&j.Agents, own)
		add(&j.Both, both)
		solo := 0
		for _, x := range c.solo {
			solo += x
		}
		j.Least += (solo + whole - 1) / whole
	}
	return j
}

// plan is the agents' plan of a case.
func (a *Agents) plan(c trial) *Plan {
	p := *c.planner
	p.o.Agents = a
	all := make([]int, len(p.services))
	for k := range all {
		all[k] = k
	}
	p.place(all)
	return p.plan()
}
