package quota

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Kueue's availability formulas are part of the tree: see Tree.Available and Tree.Potential. This
// file has its fair sharing, admission fair sharing and preemption rules. Source: kueue
// pkg/cache/scheduler and pkg/scheduler/preemption.

// DRS is a dominant resource share: how much of what its parent's hierarchy
// can lend a node borrows, over its weight. The zero value borrows nothing.
type DRS struct {
	Borrowed Milli // usage above nominal
	Lendable Milli // in the parent's hierarchy
	Weight   int64 // thousandths; 0: infinite while borrowing
}

// DRSOf returns the share of several resources: the one that dominates.
// Used, nominal and lendable are indexed alike; ties go to the first.
func DRSOf(used, nominal, lendable []int64, weight int64) DRS {
	best := DRS{Weight: weight}
	for r := range used {
		d := DRS{used[r] - nominal[r], lendable[r], weight}
		if d.Borrowed > 0 && d.Lendable > 0 && (best.Borrowed == 0 ||
			cmpProducts(d.Borrowed, best.Lendable, best.Borrowed, d.Lendable) > 0) {
			best = d
		}
	}
	return best
}

// Value returns 1000 × borrowed / lendable / weight, rounded down, as Kueue
// shows it; -1 if it is infinite.
func (d DRS) Value() int64 {
	if d.Borrowed <= 0 || d.Lendable <= 0 {
		return 0
	}
	if d.Weight == 0 {
		return -1
	}
	v, _ := mulDiv(d.Borrowed, 1000*1000, d.Lendable)
	return v / d.Weight
}

// Cmp orders shares exactly: not borrowing < borrowing with a weight <
// borrowing with weight 0; the last among themselves by the raw ratio.
func (d DRS) Cmp(e DRS) int {
	class := func(d DRS) int {
		switch {
		case d.Borrowed <= 0 || d.Lendable <= 0:
			return 0
		case d.Weight > 0:
			return 1
		}
		return 2
	}
	cd, ce := class(d), class(e)
	switch {
	case cd != ce:
		return cmp.Compare(cd, ce)
	case cd == 0:
		return 0
	case cd == 2:
		return cmpProducts(d.Borrowed, e.Lendable, e.Borrowed, d.Lendable)
	}
	return cmpWide(product(d.Borrowed, e.Lendable), wide{0, uint64(e.Weight)},
		product(e.Borrowed, d.Lendable), wide{0, uint64(d.Weight)})
}

// DRS returns q's share as it would be with more milli-GPU in use (fewer if negative), of
// everything that its parent's hierarchy can lend.
func (t *Tree) DRS(q int, more Milli) DRS {
	n := &t.nodes[q]
	if q == Root {
		return DRS{Weight: n.weight}
	}
	return DRS{Borrowed: max(0, n.over()+more), Lendable: t.lendable(n.parent), Weight: n.weight}
}

// lendable is what can be borrowed within a node's hierarchy: Kueue's potential of the node itself,
// including its borrowing from above.
func (t *Tree) lendable(q int) Milli {
	if t.open {
		return t.capacity
	}
	return t.Potential(q)
}

// Strategy is one of Kueue's fair-sharing preemption strategies. Shares are
// compared at the children of the lowest common ancestor.
type Strategy uint8

// The strategies, in the order in which Kueue tries them.
const (
	// LessThanOrEqualToFinalShare (S2-a): the preemptor's share with the new
	// job is at most the target's share without the victim.
	LessThanOrEqualToFinalShare Strategy = iota
	// LessThanInitialShare (S2-b): the preemptor's share with the new job is
	// below the target's share with the victim.
	LessThanInitialShare
)

// Allows reports whether the strategy lets the preemptor take the victim.
func (s Strategy) Allows(preemptorNew, targetOld, targetNew DRS) bool {
	if s == LessThanOrEqualToFinalShare {
		return preemptorNew.Cmp(targetNew) <= 0
	}
	return preemptorNew.Cmp(targetOld) < 0
}

// FairPreemption reports whether, by the strategy, a job of need milli-GPU in forQ may preempt one
// of take milli-GPU in victimQ.
func (t *Tree) FairPreemption(s Strategy, victimQ, forQ int, take, need Milli) bool {
	if victimQ == forQ {
		return false
	}
	depth := t.nodes[t.LCA(victimQ, forQ)].depth + 1
	if depth >= len(t.Path(forQ)) || depth >= len(t.Path(victimQ)) {
		return false // one contains the other
	}
	p, v := t.Path(forQ)[depth], t.Path(victimQ)[depth]
	return s.Allows(t.DRS(p, need), t.DRS(v, 0), t.DRS(v, -take))
}

// MinimalSet removes candidates in order until fits reports true, then restores them in reverse
// order while it still does. It returns the indices of the candidates that stay removed, in the
// order of removal; nil if all candidates together are not enough. Remove and restore change the
// state that fits reads; at the end all of it is restored. Skip, if not nil, skips a candidate in
// the state at its turn (its queue no longer borrows).
func MinimalSet(candidates int, skip func(i int) bool, remove, restore func(i int), fits func() bool) []int {
	var taken []int
	done := fits()
	for i := 0; i < candidates && !done; i++ {
		if skip != nil && skip(i) {
			continue
		}
		remove(i)
		taken = append(taken, i)
		done = fits()
	}
	if !done {
		for _, i := range slices.Backward(taken) {
			restore(i)
		}
		return nil
	}
	// The last one removed made it fit, so restoring it cannot fit.
	for j := len(taken) - 2; j >= 0; j-- {
		restore(taken[j])
		if fits() {
			taken = slices.Delete(taken, j, j+1)
		} else {
			remove(taken[j])
		}
	}
	for _, i := range slices.Backward(taken) {
		restore(i)
	}
	return taken
}

// KueueCandidate is a running workload that could be preempted.
type KueueCandidate struct {
	Evicted  bool         // its eviction is already in progress
	Own      bool         // it is in the preemptor's own queue
	Usage    Ratio        // of its local queue, with admission fair sharing; otherwise equal for all
	Priority int64        // lower goes first
	Admitted cluster.Time // later goes first
	ID       int64        // for ties
}

// Cmp is Kueue's order of candidates: already evicted first, other queues before the preemptor's
// own, higher local-queue usage, lower priority, most recently admitted, id. Usages must have
// positive denominators.
func (c *KueueCandidate) Cmp(d *KueueCandidate) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(flag(d.Evicted), flag(c.Evicted)), cmp.Compare(flag(c.Own), flag(d.Own)),
		d.Usage.Cmp(c.Usage), cmp.Compare(c.Priority, d.Priority),
		cmp.Compare(d.Admitted, c.Admitted), cmp.Compare(c.ID, d.ID))
}

// AdmissionUsage is Kueue's admission fair sharing for one local queue and
// resource: an exponential moving average of what is in use.
type AdmissionUsage struct {
	Usage   Milli
	Penalty Milli // of jobs admitted since the last sample
}

// Alpha returns 1 - 0.5^(dt/halfLife) in Q62 fixed point (2^62 is 1).
func Alpha(dt, halfLife time.Duration) uint64 {
	if halfLife <= 0 {
		return one
	}
	return one - halving(int64(max(0, dt)), int64(halfLife))
}

// Sample updates the average, dt after the last sample, with current milli-GPU in use: (1-alpha) ×
// old + alpha × current. It clears the penalties: what they stood for is in use now.
func (u *AdmissionUsage) Sample(current Milli, dt, halfLife time.Duration) {
	alpha := Alpha(dt, halfLife)
	u.Usage = scale(u.Usage, one-alpha) + scale(current, alpha)
	u.Penalty = 0
}

// Admit adds the entry penalty alpha(samplingInterval) × request, so that a queue cannot win
// repeatedly before the next sample.
func (u *AdmissionUsage) Admit(request Milli, interval, halfLife time.Duration) {
	u.Penalty += scale(request, Alpha(interval, halfLife))
}

// AdmissionKey returns the order of local queues, lowest first: Σ over
// resources of weight × (usage + penalty), over the local queue's weight; a
// weight of 0 or less puts the queue last. All weights are thousandths.
func AdmissionKey(usages []AdmissionUsage, resourceWeights []int64, weight int64) Ratio {
	if weight <= 0 {
		return Ratio{Num: Boundless, Den: 1}
	}
	var sum int64
	for r := range usages {
		sum += resourceWeights[r] * (usages[r].Usage + usages[r].Penalty)
	}
	return Ratio{sum, weight}
}
