package quota

import (
	"cmp"
)

// Kueue's availability formulas are part of the tree: see Tree.Available and Tree.Potential. This file has its fair
// sharing and preemption rules. Source: kueue pkg/cache/scheduler and pkg/scheduler/preemption.

// DRS is a dominant resource share: how much of what its parent's hierarchy
// can lend a node borrows, over its weight. The zero value borrows nothing.
type DRS struct {
	Borrowed Milli // usage above nominal
	Lendable Milli // in the parent's hierarchy
	Weight   int64 // thousandths; 0: infinite while borrowing
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
