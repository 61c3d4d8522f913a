package quota

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// The native model on plain structs: guarantee and burst with three tiers.

// Standing is the relation of a request to a queue's guarantee and limit.
type Standing uint8

// The standings.
const (
	Entitled Standing = iota // within the guarantee: may reclaim from borrowers
	Burst                    // above it: only from free GPUs that are owed to no queue, and preemptible
	Denied                   // above the limit: stays pending
)

// Stand returns the standing of a request of m milli-GPU in a queue that uses used. Limit may be
// cluster.Unlimited.
func Stand(used, m, guarantee, limit Milli) Standing {
	switch {
	case limit != cluster.Unlimited && used+m > limit:
		return Denied
	case used+m <= guarantee:
		return Entitled
	}
	return Burst
}

// Share is a queue in a reclaim plan.
type Share struct {
	Used      Milli
	Guarantee Milli
	Weight    int64 // positive, any scale
}

// Victim is a running job that could be preempted.
type Victim struct {
	Queue   int // index into the shares
	Tier    cluster.Tier
	Milli   Milli
	Lost    int64        // work lost if it stops now, milli-GPU × milliseconds
	Started cluster.Time // later is younger
}

// PlanReclaim chooses victims to preempt so that at least need milli-GPU become free; nil if that
// is impossible. The victims are those of other queues; the result is indices into them, in the
// order of preemption.
//
//   - Critical jobs are never chosen, and no queue falls below its guarantee.
//   - Tier ascending: best-effort before standard.
//   - Within a tier the queue where (used-guarantee)/weight is largest, which
//     is looked at again after every choice.
//   - Within a queue, of the jobs that are no bigger than what is still
//     needed the one that loses least work per GPU, then the youngest; if all
//     are bigger, the smallest of them.
//   - In the end, what turned out to be unnecessary is put back, last first.
//
// If that order frees too little, because small jobs used up what a queue has above its guarantee
// and a large one no longer fits, it is repeated with large jobs first: among best-effort jobs
// before standard jobs are considered at all, finally among both tiers together. With sizes that
// divide each other (1, 2, 4, 8) a set is found whenever there is one, and never one with a
// standard job if best-effort jobs suffice.
func PlanReclaim(shares []Share, victims []Victim, need Milli) []int {
	if need <= 0 {
		return nil
	}
	for _, try := range []plan{
		{last: cluster.BestEffort}, {last: cluster.BestEffort, bigFirst: true},
		{last: cluster.Standard}, {last: cluster.Standard, bigFirst: true, together: true},
	} {
		try.shares, try.victims, try.need = slices.Clone(shares), victims, need
		if chosen := try.choose(); chosen != nil {
			return try.minimise(chosen)
		}
	}
	return nil
}

type plan struct {
	shares   []Share
	victims  []Victim
	need     Milli
	last     cluster.Tier // the highest tier that may be taken
	bigFirst bool
	together bool // tiers are not tried one after the other
}

// choose takes victims in order until they suffice.
func (p *plan) choose() []int {
	var chosen []int
	taken, got := make([]bool, len(p.victims)), Milli(0)
	for tier := cluster.BestEffort; tier >= p.last; tier-- {
		for got < p.need {
			best := -1
			for i := range p.victims {
				v := &p.victims[i]
				s := &p.shares[v.Queue]
				open := v.Tier == tier || p.together && v.Tier >= p.last
				if taken[i] || !open || v.Milli <= 0 || s.Used-v.Milli < s.Guarantee {
					continue
				}
				if best < 0 || p.compare(i, best, p.need-got) < 0 {
					best = i
				}
			}
			if best < 0 {
				break
			}
			taken[best] = true
			chosen = append(chosen, best)
			got += p.victims[best].Milli
			p.shares[p.victims[best].Queue].Used -= p.victims[best].Milli
		}
	}
	if got < p.need {
		return nil
	}
	return chosen
}

// compare orders two victims, negative if a goes first.
func (p *plan) compare(a, b int, need Milli) int {
	va, vb := &p.victims[a], &p.victims[b]
	if va.Queue != vb.Queue {
		sa, sb := &p.shares[va.Queue], &p.shares[vb.Queue]
		over := Ratio{sb.Used - sb.Guarantee, sb.Weight}.Cmp(Ratio{sa.Used - sa.Guarantee, sa.Weight})
		return cmp.Or(over, cmp.Compare(va.Queue, vb.Queue))
	}
	size := 0
	switch {
	case p.bigFirst:
		size = cmp.Compare(vb.Milli, va.Milli)
	case va.Milli > need && vb.Milli > need:
		size = cmp.Compare(va.Milli, vb.Milli)
	case va.Milli > need:
		size = 1
	case vb.Milli > need:
		size = -1
	}
	return cmp.Or(size, cmp.Compare(vb.Tier, va.Tier), Ratio{va.Lost, va.Milli}.Cmp(Ratio{vb.Lost, vb.Milli}),
		cmp.Compare(vb.Started, va.Started), cmp.Compare(a, b))
}

// minimise restores victims in reverse order while the rest suffices.
func (p *plan) minimise(chosen []int) []int {
	var got Milli
	for _, i := range chosen {
		got += p.victims[i].Milli
	}
	for j := len(chosen) - 1; j >= 0; j-- {
		if m := p.victims[chosen[j]].Milli; got-m >= p.need {
			got -= m
			chosen = slices.Delete(chosen, j, j+1)
		}
	}
	return chosen
}
