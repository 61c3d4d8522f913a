package scale

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// option is a kind of replica that can serve a rate within the goal.
type option struct {
	Kind
	rate float64 // requests per second
	cost float64 // per hour
	most int     // replicas
}

// options lists what a service's variants can sustain within its goal: those that are accurate enough, or all
// if accuracy may give way.
func (v *View) options(all bool) (list []option) {
	s := v.Service
	for i := range s.Variants {
		x := &s.Variants[i]
		if x.Accuracy < s.Budget.Accuracy && !all {
			continue
		}
		shares := []cluster.Milli{x.Share()}
		if v.sizes(x) && x.Share() < cluster.Whole { // it does less for what it costs, but more alone
			shares = append(shares, cluster.Whole)
		}
		for _, share := range shares {
			if rate := v.sustained(x, share); rate > 0 {
				list = append(list, option{Kind{i, share}, rate, x.PerHourOf(share), v.roomFor(i)})
			}
		}
	}
	return list
}

// cheapest covers a rate at the least cost within the service's budget, as replicas by variant; what replicas
// sustain is factor times what their profile says. If the budget is too small, what may give way does; if
// nothing may, or there are too few replicas, as much as possible is covered. full: the whole rate is covered.
func (v *View) cheapest(rate, factor float64) (want []int, full bool) {
	list, n, full := v.covering(rate, factor)
	return byVariant(v.Service, wants(list, n)), full
}

// covering is cheapest as numbers of replicas of options, at least as many as the service's least: the rest are of
// the cheapest option. What variants for which there are GPUs cannot cover of the rate is covered as if there were some
// for all: those wait.
func (v *View) covering(rate, factor float64) (list []option, n []int, full bool) {
	list, n, full = v.coveringOf(rate, factor)
	if v.most == nil {
		return list, n, full
	}
	covered, cost, replicas := v.of(wants(list, n))
	if full && replicas >= v.Service.Replicas.Min {
		return list, n, true
	}
	rest, spec := *v, *v.Service
	spec.Replicas = service.Replicas{Min: max(0, spec.Replicas.Min-replicas), Max: spec.Replicas.Max - replicas}
	if spec.Budget.PerHour > 0 {
		spec.Budget.PerHour = max(1e-9, spec.Budget.PerHour-cost)
	}
	rest.Service, rest.most = &spec, nil
	more, m, full := rest.coveringOf(max(0, rate-covered*factor), factor)
	return append(list, more...), append(n, m...), full
}

func (v *View) coveringOf(rate, factor float64) (list []option, n []int, full bool) {
	b := &v.Service.Budget
	list = scaled(v.options(false), factor)
	n, cost := coverCost(list, rate, v.Service.Replicas.Max)
	if n != nil && b.Affords(cost) {
		return list, v.atLeast(list, n), true
	}
	if b.Gives == service.Accuracy {
		all := scaled(v.options(true), factor)
		if m, cost := coverCost(all, rate, v.Service.Replicas.Max); m != nil && (b.PerHour == 0 || cost <= b.PerHour) {
			return all, v.atLeast(all, m), true
		}
		list = all
	}
	lo, hi := 0.0, rate // the most that can be covered
	best := make([]int, len(list))
	for range 20 {
		mid := (lo + hi) / 2
		m, cost := coverCost(list, mid, v.Service.Replicas.Max)
		if m != nil && b.Affords(cost) {
			lo, best = mid, m
		} else {
			hi = mid
		}
	}
	return list, v.atLeast(list, best), false
}

func scaled(list []option, factor float64) []option {
	for k := range list {
		list[k].rate *= factor
	}
	return list
}

func coverCost(list []option, rate float64, most int) (n []int, cost float64) {
	n = cover(list, rate, most)
	for k := range n {
		cost += float64(n[k]) * list[k].cost
	}
	return n, cost
}

// atLeast adds replicas of the cheapest option up to the service's least.
func (v *View) atLeast(list []option, n []int) []int {
	total := 0
	for k := range list {
		total += n[k]
	}
	for total < v.Service.Replicas.Min {
		cheap := -1
		for k := range list {
			if n[k] < list[k].most && (cheap < 0 || list[k].cost < list[cheap].cost) {
				cheap = k
			}
		}
		if cheap < 0 {
			break
		}
		more := min(v.Service.Replicas.Min-total, list[cheap].most-n[cheap])
		n[cheap], total = n[cheap]+more, total+more
	}
	return n
}

// sustained is the rate that a replica of a variant with a share of a GPU sustains: of a language model on the slowest
// of the GPUs that it may get, for requests as long as those that were seen, or before that as those that are expected.
func (v *View) sustained(x *service.Variant, share cluster.Milli) float64 {
	s := v.Service
	if x.Language == nil {
		_, rate := x.Profile.Sustained(share, s.MaxBatch(x), s.Goal.Latency)
		return rate
	}
	t := v.tokens()
	least := 0.0
	for _, g := range v.gpusOf(x) {
		if rate := x.Language.Sustained(g, x.Request.GPUs, s.Goal, t.prompt, t.output); least == 0 ||
			rate > 0 && rate < least {
			least = rate
		}
	}
	return least
}

// gpusOf lists the models of GPUs that replicas of a variant may get.
func (v *View) gpusOf(x *service.Variant) []string {
	if len(x.GPUTypes) > 0 {
		return x.GPUTypes
	}
	var list []string
	for i := range v.GPUs {
		list = append(list, v.GPUs[i].Model)
	}
	return list
}

// typical is how long a language model's requests are taken to be before any was seen, if people expect nothing: the
// mean of Azure's conversations of 2023, rounded.
var typical = tokens{prompt: 1150, output: 210}

// tokens is how long requests are: as they were seen, or before that as people expect them.
func (v *View) tokens() tokens {
	f := &v.Service.Forecast
	switch {
	case v.Prompt > 0 && v.Output > 0:
		return tokens{v.Prompt, v.Output}
	case f.Prompt > 0:
		return tokens{f.Prompt, f.Output}
	}
	return typical
}

// steady is a view whose requests are as long as the moving mean of those that were seen. It begins with what is
// expected: the first that are answered are the short ones.
func (t *tokens) steady(v *View) *View {
	const weight = 0.2
	steady := *v
	if t.prompt == 0 {
		steady.Prompt, steady.Output = 0, 0
		*t = steady.tokens()
	}
	if v.Prompt > 0 && v.Output > 0 {
		t.prompt += weight * (v.Prompt - t.prompt)
		t.output += weight * (v.Output - t.output)
	}
	steady.Prompt, steady.Output = t.prompt, t.output
	return &steady
}

// cover chooses how many of each option serve a rate at the least cost; among equal costs it takes fewer replicas. It
// searches with bounds and gives the best that it has found after a million steps, which small problems never
// need. nil: together they cannot.
func cover(list []option, rate float64, most int) []int {
	c := &covering{list: list, order: make([]int, len(list)), now: make([]int, len(list)), cost: math.Inf(1),
		steps: 1e6}
	for k := range c.order {
		c.order[k] = k
	}
	slices.SortStableFunc(c.order, func(a, b int) int { // the cheapest for each request first
		return cmp.Compare(list[a].cost*list[b].rate, list[b].cost*list[a].rate)
	})
	c.try(0, rate, 0, most)
	return c.best
}

// covering is the search of cover.
type covering struct {
	list     []option
	order    []int
	now      []int // chosen so far, by option
	best     []int
	cost     float64 // of the best
	replicas int
	steps    int
}

// try chooses among the options from the k-th on for a rate that is left.
func (c *covering) try(k int, left, cost float64, most int) {
	if c.steps--; c.steps < 0 && c.best != nil {
		return
	}
	if left <= 1e-9 {
		used := 0
		for _, n := range c.now {
			used += n
		}
		if cost < c.cost-1e-9 || cost < c.cost+1e-9 && used < c.replicas {
			c.best, c.cost, c.replicas = slices.Clone(c.now), cost, used
		}
		return
	}
	if k == len(c.order) {
		return
	}
	o := &c.list[c.order[k]]
	if cost+left/o.rate*o.cost > c.cost+1e-9 { // no later option is cheaper for each request
		return
	}
	full := min(int(math.Ceil(left/o.rate-1e-9)), o.most, most)
	for n := full; n >= 0; n-- {
		c.now[c.order[k]] = n
		c.try(k+1, left-float64(n)*o.rate, cost+float64(n)*o.cost, most-n)
	}
	c.now[c.order[k]] = 0
}
