package quota

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Kueue, Tests: b uses 8 of nominal 6, the cohort lends 10.
func TestDRS(t *testing.T) {
	d := DRS{2, 10, 1000}
	if got := d.Value(); got != 200 {
		t.Errorf("DRS(b) = %d, want 200", got)
	}
	d.Weight = 2000
	if got := d.Value(); got != 100 {
		t.Errorf("weight 2: DRS(b) = %d, want 100", got)
	}
	tree := mustTree(t, 10, queue("a", "", 4), queue("b", "", 6, weight(1000)))
	b := at(t, tree, "b")
	tree.Charge(b, 8*gpu, false)
	if got := tree.DRS(b, 0).Value(); got != 200 {
		t.Errorf("tree: DRS(b) = %d, want 200", got)
	}
	if got := tree.DRS(b, -2*gpu).Value(); got != 0 {
		t.Errorf("not borrowing: %d", got)
	}
	none, some, more := DRS{0, 10, 0}, DRS{2, 10, 1000}, DRS{3, 10, 1000}
	inf, infMore := DRS{1, 10, 0}, DRS{2, 10, 0}
	order := []DRS{none, some, more, inf, infMore}
	for i := range order {
		for j := range order {
			if got, want := order[i].Cmp(order[j]), i-j; got*want < 0 || got == 0 != (want == 0) {
				t.Errorf("%v cmp %v = %d", order[i], order[j], got)
			}
		}
	}
	if (DRS{2, 10, 2000}).Cmp(DRS{1, 10, 1000}) != 0 {
		t.Error("the weight divides")
	}
	if inf.Value() != -1 {
		t.Error("infinite")
	}
}

func TestStrategies(t *testing.T) {
	share := func(n Milli) DRS { return DRS{n, 10, 1000} }
	a, b := LessThanOrEqualToFinalShare, LessThanInitialShare
	if !a.Allows(share(2), share(4), share(2)) || a.Allows(share(3), share(4), share(2)) {
		t.Error("S2-a")
	}
	if !b.Allows(share(3), share(4), share(2)) || b.Allows(share(4), share(4), share(2)) {
		t.Error("S2-b")
	}
	tree := mustTree(t, 10, queue("a", "", 2, weight(1000)), queue("b", "", 2, weight(1000)))
	qa, qb := at(t, tree, "a"), at(t, tree, "b")
	tree.Charge(qb, 10*gpu, false)
	if !tree.FairPreemption(a, qb, qa, 4*gpu, 4*gpu) || tree.FairPreemption(b, qa, qa, 1, 1) {
		t.Error("a borrows 2 with 4, b still 4 without 4")
	}
	if tree.FairPreemption(a, qb, qa, 6*gpu, 6*gpu) || !tree.FairPreemption(b, qb, qa, 6*gpu, 6*gpu) {
		t.Error("6 of b's 10: a would borrow 4, b 2: only S2-b")
	}
}

// Kueue, Tests: a wants 4 and reclaims 2 from b, which never goes below
// its nominal quota.
func TestKueueReclaim(t *testing.T) {
	tree := mustTree(t, 10, queue("a", "", 4), queue("b", "", 6))
	a, b := at(t, tree, "a"), at(t, tree, "b")
	for range 8 {
		tree.Charge(b, gpu, false)
	}
	taken := 0
	for ; !tree.Check(a, 4*gpu, cluster.Standard).OK(); taken++ {
		if !tree.ReclaimableWhole(b, a, 4*gpu, cluster.Standard) {
			t.Fatalf("after %d GPUs no more can be reclaimed", taken)
		}
		tree.Charge(b, -gpu, false)
	}
	if taken != 2 || tree.ReclaimableWhole(b, a, 4*gpu, cluster.Standard) {
		t.Errorf("%d GPUs are reclaimed, want 2 and no more", taken)
	}
}
