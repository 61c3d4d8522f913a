package quota

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

// Kueue, Tests: b uses 8 of nominal 6, the cohort lends 10.
func TestDRS(t *testing.T) {
	d := DRSOf([]int64{8}, []int64{6}, []int64{10}, 1000)
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
	if got := DRSOf([]int64{8, 5}, []int64{6, 2}, []int64{10, 10}, 1000).Value(); got != 300 {
		t.Errorf("dominant resource: %d", got)
	}
	if got := DRSOf([]int64{1, 5}, []int64{6, 4}, []int64{10, 10}, 1000).Value(); got != 100 {
		t.Errorf("one resource below nominal: %d", got)
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

// Kueue: half-life 600, dt 600: alpha = .5; usage = (1-alpha) old + alpha current.
func TestAdmissionFairSharing(t *testing.T) {
	if got := Alpha(600*time.Second, 600*time.Second); got != one/2 {
		t.Errorf("alpha = %d", got)
	}
	u := AdmissionUsage{Usage: 8 * gpu}
	u.Sample(4*gpu, 600*time.Second, 600*time.Second)
	if u.Usage != 6*gpu {
		t.Errorf("usage = %d", u.Usage)
	}
	u.Admit(2*gpu, 600*time.Second, 600*time.Second)
	if got, want := AdmissionKey([]AdmissionUsage{u}, []int64{1000}, 2000),
		(Ratio{7000 * 1000, 2000}); got.Cmp(want) != 0 {
		t.Errorf("key %v, want %v", got, want)
	}
	if AdmissionKey([]AdmissionUsage{u}, []int64{1000}, 0).Num != Boundless {
		t.Error("weight 0 is last")
	}
	u.Sample(0, 600*time.Second, 600*time.Second)
	if u.Penalty != 0 || u.Usage != 3*gpu {
		t.Errorf("%+v", u)
	}
}

func TestKueueCandidates(t *testing.T) {
	c := []KueueCandidate{
		{Own: true, Usage: Ratio{0, 1}, ID: 1},
		{Usage: Ratio{0, 1}, Priority: 5, ID: 2},
		{Usage: Ratio{0, 1}, Priority: 1, Admitted: 1, ID: 3},
		{Usage: Ratio{0, 1}, Priority: 1, Admitted: 2, ID: 4},
		{Usage: Ratio{9, 1}, Priority: 9, ID: 5},
		{Own: true, Evicted: true, Usage: Ratio{0, 1}, Priority: 9, ID: 6},
		{Usage: Ratio{0, 1}, Priority: 1, Admitted: 2, ID: 7},
	}
	slices.SortFunc(c, func(a, b KueueCandidate) int { return a.Cmp(&b) })
	var ids []int64
	for i := range c {
		ids = append(ids, c[i].ID)
	}
	if want := []int64{6, 5, 4, 7, 3, 2, 1}; !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
}

// Kueue, Invariants: restoring any victim breaks the fit; the search restores everything that it
// removed.
func TestMinimalSet(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 0, 8).Draw(r, "sizes")
		need := rapid.IntRange(0, 30).Draw(r, "need")
		free, sum := 0, 0
		for _, s := range sizes {
			sum += s
		}
		got := MinimalSet(len(sizes), nil, func(i int) { free += sizes[i] }, func(i int) { free -= sizes[i] },
			func() bool { return free >= need })
		if free != 0 {
			r.Fatalf("%d left removed", free)
		}
		taken := 0
		for _, i := range got {
			taken += sizes[i]
		}
		if sum >= need != (taken >= need) {
			r.Fatalf("need %d of %v: %v", need, sizes, got)
		}
		for _, i := range got {
			if taken-sizes[i] >= need {
				r.Fatalf("need %d of %v: %v is not minimal", need, sizes, got)
			}
		}
	})
}

// Kueue, Tests: a wants 4 and reclaims 2 from b, which never goes below
// its nominal quota.
func TestKueueReclaim(t *testing.T) {
	tree := mustTree(t, 10, queue("a", "", 4), queue("b", "", 6))
	a, b := at(t, tree, "a"), at(t, tree, "b")
	for range 8 {
		tree.Charge(b, gpu, false)
	}
	got := MinimalSet(8, func(int) bool { return !tree.ReclaimableWhole(b, a, 4*gpu, cluster.Standard) },
		func(int) { tree.Charge(b, -gpu, false) }, func(int) { tree.Charge(b, gpu, false) },
		func() bool { return tree.Check(a, 4*gpu, cluster.Standard).OK() })
	if len(got) != 2 {
		t.Errorf("victims %v, want 2 of one GPU", got)
	}
}
