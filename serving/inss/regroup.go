package inss

import (
	"math"
	"math/bits"
	"slices"
)

// exact is up to how many services all groupings are tried: 2^n sets, and 3^n ways to divide them.
const exact = 6

// regroup puts few services on fewer GPUs than place found, where that is possible: place gives each service in turn
// its place, and never puts together services that fit only with other shares than settle tries.
func (p *planner) regroup() {
	var all []int
	sum := 0
	for k, x := range p.solo {
		if x > 0 {
			all, sum = append(all, k), sum+x
		}
	}
	used := 0
	for _, g := range p.gpus {
		used += min(1, len(g))
	}
	if p.o.Agents != nil || len(all) > exact || used <= (sum+whole-1)/whole {
		return
	}
	fit := make([][]resident, 1<<len(all)) // by set: the services with the least share on one GPU; nil: they do not fit
	fewest, share, taken := make([]int, len(fit)), make([]int, len(fit)), make([]int, len(fit))
	for set := 1; set < len(fit); set++ {
		fit[set] = p.together(all, set)
		fewest[set] = math.MaxInt
		// of each way to divide a set once: the part with the first service
		for part := set; part > 0; part = (part - 1) & set {
			rest := set &^ part
			if bits.TrailingZeros(uint(part)) != bits.TrailingZeros(uint(set)) || fit[part] == nil ||
				fewest[rest] == math.MaxInt {
				continue
			}
			n, s := fewest[rest]+1, share[rest]+percent(fit[part])
			if n < fewest[set] || n == fewest[set] && s < share[set] {
				fewest[set], share[set], taken[set] = n, s, part
			}
		}
	}
	if last := len(fit) - 1; fewest[last] < used {
		p.gpus = nil
		for set := last; set > 0; set &^= taken[set] {
			p.gpus = append(p.gpus, fit[taken[set]])
		}
		p.rejected = slices.DeleteFunc(p.rejected, func(k int) bool { return p.solo[k] > 0 })
	}
}

// together is a set of services on one GPU with the least share of which each meets its goal; nil: there is none.
func (p *planner) together(all []int, set int) []resident {
	var list []resident
	for i, k := range all {
		if set>>i&1 == 1 {
			list = append(list, resident{k: k, percent: p.solo[k]})
		}
	}
	if percent(list) > whole || !p.room(list) {
		return nil
	}
	if settled := slices.Clone(list); p.settle(settled) {
		return settled
	}
	best, least := []resident(nil), whole+1
	var try func(i, room int)
	try = func(i, room int) {
		if i == len(list) {
			if percent(list) < least && p.batches(list) {
				best, least = slices.Clone(list), percent(list)
			}
			return
		}
		alone := list[i].percent
		for ; list[i].percent-alone <= room; list[i].percent += step {
			try(i+1, room-(list[i].percent-alone))
		}
		list[i].percent = alone
	}
	try(0, whole-percent(list))
	return best
}

// batches finds the batches of services on one GPU; false: some do not meet their goals with the shares that they have.
func (p *planner) batches(list []resident) bool {
	for i := range list {
		r := &list[i]
		if r.batch, r.latency = p.batch(r.k, r.percent, p.beside(list, i)); r.batch == 0 {
			return false
		}
	}
	return true
}
