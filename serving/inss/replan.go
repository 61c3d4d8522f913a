package inss

import (
	"cmp"
	"math"
	"slices"
)

// Migration is a service that goes from one GPU to another.
type Migration struct {
	Service  string
	From, To int
}

// hysteresis is the part by which a rate may change before a service gets another share.
const hysteresis = 0.1

// Replan plans again after services came, went, or changed. Services stay on their GPUs, and keep their shares
// unless their rates changed by more than a tenth or something no longer holds. Where a GPU became too small, those
// leave that need least alone. Where services ended or their rates fell by more than a tenth, a GPU is given up if the
// others can take its services.
func Replan(g *GPU, old *Plan, services []Service, o Options) (*Plan, []Migration, error) {
	p, err := newPlanner(g, services, o)
	if err != nil {
		return nil, nil, err
	}
	r := &replanner{planner: p, was: map[string]int{}, planned: make([]float64, len(services))}
	r.keep(old)
	for at := range p.gpus {
		r.fit(at)
	}
	for k := range services {
		if _, ok := r.was[services[k].Name]; !ok {
			r.leave = append(r.leave, k)
		}
	}
	p.place(r.leave)
	for r.fell && r.close() {
		continue
	}
	again := p.rejected // where GPUs are limited, there may be one now
	p.rejected = nil
	p.place(again)
	plan := p.plan()
	return plan, r.settled(old, plan), nil
}

// replanner is a plan in the making that begins with an older one.
type replanner struct {
	*planner
	was     map[string]int // by service: its GPU
	planned []float64      // by service: the rate for which its share was chosen; 0: it is new
	leave   []int          // services that need a GPU
	fell    bool           // a service ended, or its rate fell by more than the hysteresis
}

// keep leaves every service on its GPU, with its share if its rate is about the same.
func (r *replanner) keep(old *Plan) {
	index := map[string]int{}
	for k := range r.services {
		index[r.services[k].Name] = k
	}
	r.gpus = make([][]resident, len(old.GPUs))
	for g, list := range old.GPUs {
		for i := range list {
			x := &list[i]
			k, ok := index[x.Service]
			if !ok {
				r.fell = true
				continue
			}
			r.was[x.Service] = g
			if r.solo[k] == 0 {
				r.rejected, r.fell = append(r.rejected, k), true
				continue
			}
			rate := r.services[k].Rate
			now := resident{k: k, percent: max(x.Percent, r.solo[k])}
			if math.Abs(rate-x.Rate) > hysteresis*x.Rate {
				now.percent = r.solo[k]
				r.fell = r.fell || rate < x.Rate
			} else {
				r.planned[k] = x.Rate
			}
			r.gpus[g] = append(r.gpus[g], now)
		}
	}
}

// fit settles a GPU. If it is too small with the shares that services had, they get new ones; if it still is, those
// that need least alone leave it.
func (r *replanner) fit(at int) {
	list := slices.Clone(r.gpus[at])
	for !r.settle(list) {
		list = r.alone(r.gpus[at])
		if r.settle(list) {
			break
		}
		out := r.leaves(r.gpus[at])
		r.leave = append(r.leave, r.gpus[at][out].k)
		r.gpus[at] = slices.Delete(slices.Clone(r.gpus[at]), out, out+1)
		list = slices.Clone(r.gpus[at])
	}
	r.gpus[at] = list
}

// alone is services with the shares that they need alone.
func (r *replanner) alone(list []resident) []resident {
	list = slices.Clone(list)
	for i := range list {
		list[i].percent = r.solo[list[i].k]
	}
	return list
}

// leaves chooses which service leaves a GPU that is too small: of those without which the others fit, or of all if
// there is none, the one that needs least alone.
func (r *replanner) leaves(list []resident) int {
	best, enough := -1, false
	for i := range list {
		rest := r.alone(slices.Delete(slices.Clone(list), i, i+1))
		fits := r.settle(rest)
		if best < 0 || fits && !enough || fits == enough && r.solo[list[i].k] < r.solo[list[best].k] {
			best, enough = i, fits
		}
	}
	return best
}

// close gives up a GPU whose services fit on the others: of those the one with the least in use.
func (r *replanner) close() bool {
	var order []int
	for g := range r.gpus {
		if len(r.gpus[g]) > 0 {
			order = append(order, g)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(percent(r.gpus[a]), percent(r.gpus[b])) })
	for _, g := range order {
		was := slices.Clone(r.gpus)
		r.gpus[g] = nil
		fits := true
		for _, x := range was[g] {
			fits = fits && r.join(x.k)
		}
		if fits {
			return true
		}
		r.gpus = was
	}
	return false
}

// settled gives what kept its share the rate for which that was chosen, and lists what moves.
func (r *replanner) settled(old, plan *Plan) (moves []Migration) {
	for g := range plan.GPUs {
		for i := range plan.GPUs[g] {
			x := &plan.GPUs[g][i]
			from, ok := r.was[x.Service]
			if !ok {
				continue
			}
			if from != g {
				moves = append(moves, Migration{x.Service, from, g})
				continue
			}
			j := slices.IndexFunc(old.GPUs[g], func(o Placed) bool { return o.Service == x.Service })
			k := r.gpus[g][i].k
			if r.planned[k] > 0 && old.GPUs[g][j].Percent == x.Percent {
				x.Rate = r.planned[k]
			}
		}
	}
	return moves
}
