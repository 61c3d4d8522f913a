package quota

import (
	"cmp"

	"github.com/muster-gpu/muster/cluster"
)

// Entitled reports whether m more milli-GPU in q, for a job of the tier, stay
// within what q is guaranteed, so that the job may reclaim from borrowers.
// Best-effort has no guarantee. The reserve that stays idle for the critical
// tier counts as used.
//
// This is the queue's own guarantee. Whether its ancestors' guarantees allow reclaiming from a
// particular victim is up to Reclaimable: what a sibling borrowed inside a full parent is owed
// back, what the parent's neighbours use is not.
func (t *Tree) Entitled(q int, m Milli, tier cluster.Tier) bool {
	if t.open || q == Root || tier == cluster.BestEffort {
		return false
	}
	return t.owed(q, t.nodes[q].parent, m, tier)
}

// owed reports whether forQ, with need more, is within its guarantee at every level from itself up
// to below the common ancestor lca, as seen at each level. Groups without a guarantee of their own
// do not count.
func (t *Tree) owed(forQ, lca int, need Milli, tier cluster.Tier) bool {
	dOcc := need + t.nodes[forQ].fill(need, tier == cluster.Critical)
	for p := forQ; p != lca; {
		n := &t.nodes[p]
		occ := n.occ + dOcc
		if (n.set > 0 || len(n.children) == 0) && occ > n.subtree {
			return false
		}
		dOcc = max(0, occ-n.local) - n.bubble()
		p = n.parent
	}
	return true
}

// Reclaimable reports whether a job of take milli-GPU in victimQ may be preempted for need more
// milli-GPU in forQ for a job of the tier (need is 0 if they are already charged): no queue on the
// victim's side is marked no_reclaim, forQ stays within its guarantee and the victim's queue does
// not fall below its own, both at every level below their lowest common ancestor. A queue never
// reclaims from itself. The caller excludes victims of the critical tier.
func (t *Tree) Reclaimable(victimQ, forQ int, take, need Milli, tier cluster.Tier) bool {
	if t.open || victimQ == forQ || tier == cluster.BestEffort {
		return false
	}
	lca := t.LCA(victimQ, forQ)
	for p := victimQ; p != lca; p = t.nodes[p].parent {
		if t.nodes[p].over() < take || t.nodes[p].spec.NoReclaim {
			return false
		}
	}
	return t.owed(forQ, lca, need, tier)
}

// ReclaimableWhole is Reclaimable for a victim that straddles its queue's guarantee: the queue must
// be above its guarantee before the job is removed and may be below it afterwards, by part of one
// job (Kueue's and Volcano's rule). Without it a borrower with one large job could never be made to
// give back. The job cannot return by reclaim: with it the queue would be above its guarantee
// again. Use it if Reclaimable finds too little.
func (t *Tree) ReclaimableWhole(victimQ, forQ int, need Milli, tier cluster.Tier) bool {
	return t.Reclaimable(victimQ, forQ, 1, need, tier)
}

// Ratio is a fraction that is compared without division. Den is positive.
type Ratio struct{ Num, Den int64 }

// Cmp orders ratios: -1 if r < s, 0, +1.
func (r Ratio) Cmp(s Ratio) int {
	if r.Num < 0 || s.Num < 0 {
		if r.Num >= 0 {
			return 1
		}
		if s.Num >= 0 {
			return -1
		}
		return Ratio{-s.Num, s.Den}.Cmp(Ratio{-r.Num, r.Den})
	}
	return cmpProducts(r.Num, s.Den, s.Num, r.Den)
}

// over is how far a node is above its guarantee, negative below it: the idle reserve counts as
// used, and what a child does not lend counts neither as the group's quota nor, up to that amount,
// as its usage.
func (n *node) over() Milli { return n.occ - n.subtree }

// Borrowed returns how far q is above its guarantee, the idle reserve counted
// as used; 0 if it is not.
func (t *Tree) Borrowed(q int) Milli { return max(0, t.nodes[q].over()) }

// Over returns (used - guarantee) / weight, milli-GPU per thousandth: the queue with the largest
// value gives back first. It is negative below the guarantee; the idle reserve counts as used.
func (t *Tree) Over(q int) Ratio {
	n := &t.nodes[q]
	return Ratio{n.over(), n.weight}
}

// CompareVictims orders queues a and b as sources for forQ, negative if a gives back first: by Over
// at the level below the lowest common ancestor with forQ, the deeper ancestor first (closer
// relatives), then by Over of the queue itself, then by index.
func (t *Tree) CompareVictims(a, b, forQ int) int {
	if a == b {
		return 0
	}
	la, lb := t.LCA(a, forQ), t.LCA(b, forQ)
	if la == lb {
		da := t.nodes[la].depth + 1
		pa, pb := t.nodes[a].path, t.nodes[b].path
		for ; da < len(pa) && da < len(pb); da++ {
			if c := t.Over(pb[da]).Cmp(t.Over(pa[da])); c != 0 {
				return c
			}
		}
		return cmp.Compare(a, b)
	}
	return cmp.Compare(t.nodes[lb].depth, t.nodes[la].depth)
}
