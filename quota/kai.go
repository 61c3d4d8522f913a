package quota

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// KaiQueue is a queue in the terms of KAI-Scheduler and Run:ai, for one resource. Amounts are
// milli-GPU.
type KaiQueue struct {
	Parent   int   // index of the parent, which comes first in the list; -1: top level
	Deserved Milli // quota; cluster.Unlimited: as much as there is
	Limit    Milli // cluster.Unlimited: none
	Request  Milli // held and requested by its jobs; parents: computed from the children
	Weight   int64 // over-quota weight, any scale; 0: no over-quota
	Priority int64 // higher is served first with over-quota
	Usage    int64 // decayed usage as a fraction of the cluster's, in billionths (Fraction)
	Created  int64 // for ties: older (smaller) first, then by index
}

// requestable is min(limit, request).
func (q *KaiQueue) requestable() Milli {
	if q.Limit != cluster.Unlimited {
		return min(q.Limit, q.Request)
	}
	return q.Request
}

// KaiFairShare divides total among the queues of a tree: at each level the deserved quota first,
// then over-quota by priority and weight, in multiples of unit; the children divide their parent's
// share. K is the weight of past usage in thousandths; 0: usage does not matter.
// usage in thousandths; 0: usage does not matter.
// Source: KAI, pkg/scheduler/plugins/proportion/resource_division. Weights are exact rationals;
// only amounts are rounded.
func KaiFairShare(total, unit Milli, k int64, queues []KaiQueue) []Milli {
	queues = slices.Clone(queues)
	children := make([][]int, len(queues)+1) // the last entry: top level
	for i := range queues {
		p := queues[i].Parent
		if p < 0 {
			p = len(queues)
		}
		children[p] = append(children[p], i)
	}
	for i := len(queues) - 1; i >= 0; i-- {
		if len(children[i]) > 0 {
			queues[i].Request = 0
			for _, c := range children[i] {
				queues[i].Request += queues[c].requestable()
			}
		}
	}
	share := make([]Milli, len(queues))
	d := kaiDivision{queues: queues, share: share, unit: max(1, unit), k: k}
	d.level(total, children[len(queues)])
	for i := range queues {
		d.level(share[i], children[i])
	}
	return share
}

// kaiDivision divides level by level.
type kaiDivision struct {
	queues []KaiQueue
	share  []Milli
	unit   Milli
	k      int64
}

// level divides total among siblings.
func (d *kaiDivision) level(total Milli, siblings []int) {
	rest := total
	for _, i := range siblings {
		q := &d.queues[i]
		deserved := q.Deserved
		if deserved == cluster.Unlimited {
			deserved = total
		}
		d.share[i] = min(deserved, q.requestable())
		rest -= d.share[i]
	}
	order := slices.Clone(siblings)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(d.queues[b].Priority, d.queues[a].Priority),
			cmp.Compare(d.queues[a].Created, d.queues[b].Created), cmp.Compare(a, b))
	})
	for from := 0; from < len(order) && rest > 0; {
		to := from
		for to < len(order) && d.queues[order[to]].Priority == d.queues[order[from]].Priority {
			to++
		}
		rest = d.overQuota(rest, order[from:to])
		from = to
	}
}

// open returns the queues of the group that want more and have a weight.
func (d *kaiDivision) open(group []int) []int {
	var open []int
	for _, i := range group {
		if q := &d.queues[i]; q.Weight > 0 && d.share[i] < q.requestable() {
			open = append(open, i)
		}
	}
	return open
}

// overQuota divides rest among queues of one priority, in rounds, and returns
// what is left.
func (d *kaiDivision) overQuota(rest Milli, group []int) Milli {
	remainder := make([]*big.Int, len(d.queues)) // of the last round, over one common denominator
	for again := true; again && rest > 0; {
		open := d.open(group)
		part, sum := d.parts(open)
		if sum.Sign() == 0 {
			break
		}
		again = false
		start := big.NewInt(rest)
		whole := new(big.Int).Mul(sum, big.NewInt(d.unit))
		for j, i := range open {
			need := d.queues[i].requestable() - d.share[i]
			offer := new(big.Int).Mul(start, part[j]) // over sum
			give := need
			if offer.Cmp(new(big.Int).Mul(big.NewInt(need), sum)) >= 0 {
				again = again || offer.Cmp(new(big.Int).Mul(big.NewInt(need), sum)) > 0
				remainder[i] = nil
			} else {
				units, left := new(big.Int).QuoRem(offer, whole, new(big.Int))
				give = units.Int64() * d.unit
				remainder[i] = left
			}
			d.share[i] += give
			rest -= give
		}
	}
	return d.leftovers(rest, group, remainder)
}

// parts returns P_q = max(0, W + k(W - usage)), W = weight/Σ weights, times a
// common factor, and their sum:
//
//	P × Σ × 10^12 = weight × (1000+k) × 10^9 - k × usage × Σ
func (d *kaiDivision) parts(open []int) (part []*big.Int, sum *big.Int) {
	sum = new(big.Int)
	weights := new(big.Int)
	for _, i := range open {
		weights.Add(weights, big.NewInt(d.queues[i].Weight))
	}
	for _, i := range open {
		q := &d.queues[i]
		p := big.NewInt(q.Weight)
		p.Mul(p, big.NewInt(1000+d.k)).Mul(p, big.NewInt(1e9))
		u := big.NewInt(d.k)
		u.Mul(u, big.NewInt(q.Usage)).Mul(u, weights)
		if p.Sub(p, u).Sign() < 0 {
			p.SetInt64(0)
		}
		part = append(part, p)
		sum.Add(sum, p)
	}
	return part, sum
}

// leftovers hands out whole units, or what is left, one at a time: largest remainder first, then
// the older queue (the group's order).
func (d *kaiDivision) leftovers(rest Milli, group []int, remainder []*big.Int) Milli {
	zero := new(big.Int)
	for rest > 0 {
		open := d.open(group)
		if len(open) == 0 {
			break
		}
		slices.SortStableFunc(open, func(a, b int) int {
			ra, rb := remainder[a], remainder[b]
			if ra == nil {
				ra = zero
			}
			if rb == nil {
				rb = zero
			}
			return rb.Cmp(ra)
		})
		for _, i := range open {
			give := min(d.unit, rest, d.queues[i].requestable()-d.share[i])
			d.share[i] += give
			rest -= give
		}
	}
	return rest
}

// KaiState is a queue's state in KAI's reclaim rules.
type KaiState struct {
	Allocated      Milli
	NonPreemptible Milli // of it
	Deserved       Milli // cluster.Unlimited: everything
	FairShare      Milli
	Limit          Milli // cluster.Unlimited: none
}

// allocatable is the share that a queue may keep: max(deserved, fair share),
// capped by the limit.
func (s KaiState) allocatable() Milli {
	if s.Deserved == cluster.Unlimited {
		return Boundless
	}
	m := max(s.Deserved, s.FairShare)
	if s.Limit != cluster.Unlimited {
		m = min(m, s.Limit)
	}
	return m
}

// Saturation is allocated / allocatable share; the queue with the smallest one is served first. A
// queue without any share that holds something is fuller than every other.
func (s KaiState) Saturation() Ratio {
	if share := s.allocatable(); share > 0 {
		return Ratio{s.Allocated, share}
	}
	if s.Allocated > 0 {
		return Ratio{Num: Boundless, Den: 1}
	}
	return Ratio{0, 1}
}

// KaiCanReclaim reports whether a queue may reclaim for a request: it stays
// within its fair share, and non-preemptible work within the deserved quota at
// each level. Path is the queue's state and its ancestors', itself first.
func KaiCanReclaim(path []KaiState, request Milli, nonPreemptible bool) bool {
	if path[0].Allocated+request > path[0].FairShare {
		return false
	}
	for _, s := range path {
		if nonPreemptible && s.Deserved != cluster.Unlimited && s.NonPreemptible+request > s.Deserved {
			return false
		}
	}
	return true
}

// KaiVictimByFairShare is the fair-share strategy, at the level below the lowest common ancestor: the
// victim's queue, before the victim of this step is removed, holds more than its allocatable share.
func KaiVictimByFairShare(victim KaiState) bool { return victim.Allocated > victim.allocatable() }

// KaiVictimByQuota is the quota strategy, at the same level: the reclaimer
// stays within its deserved quota and the victim's queue is above its own.
func KaiVictimByQuota(victim, reclaimer KaiState, request Milli) bool {
	within := reclaimer.Deserved == cluster.Unlimited || reclaimer.Allocated+request <= reclaimer.Deserved
	return within && victim.Deserved != cluster.Unlimited && victim.Allocated > victim.Deserved
}

// KaiSaturationAllows is the check after the simulated eviction, at every
// level: the reclaimer's saturation must not exceed 1 while, times the
// multiplier (thousandths, at least 1000), it is at least a sibling's.
func KaiSaturationAllows(reclaimer, sibling KaiState, multiplier int64) bool {
	r, s := reclaimer.Saturation(), sibling.Saturation()
	if r.Num <= r.Den {
		return true
	}
	left := product(r.Num, max(1000, multiplier))
	return cmpWide(left, wide{0, uint64(s.Den)}, product(s.Num, 1000), wide{0, uint64(r.Den)}) < 0
}
