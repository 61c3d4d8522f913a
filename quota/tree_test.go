package quota

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

const gpu = cluster.Whole

// queue is a queue without limits that lends everything; amounts in GPUs.
func queue(name, parent string, guarantee Milli, more ...func(*cluster.Queue)) cluster.Queue {
	q := cluster.Queue{Name: name, Parent: parent, Guarantee: guarantee * gpu,
		Limit: cluster.Unlimited, Lend: cluster.Unlimited}
	for _, f := range more {
		f(&q)
	}
	return q
}

func limit(n Milli) func(*cluster.Queue)   { return func(q *cluster.Queue) { q.Limit = n * gpu } }
func lend(n Milli) func(*cluster.Queue)    { return func(q *cluster.Queue) { q.Lend = n * gpu } }
func reserve(n Milli) func(*cluster.Queue) { return func(q *cluster.Queue) { q.Reserve = n * gpu } }
func weight(n int64) func(*cluster.Queue)  { return func(q *cluster.Queue) { q.Weight = n } }

func mustTree(t testing.TB, gpus Milli, queues ...cluster.Queue) *Tree {
	t.Helper()
	tree, err := New(queues, gpus*gpu)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func at(t testing.TB, tree *Tree, name string) int {
	t.Helper()
	q, ok := tree.Index(name)
	if !ok {
		t.Fatalf("no queue %q", name)
	}
	return q
}

// Kueue, Tests: cohort a nominal 4, b nominal 6.
func TestKueueAvailable(t *testing.T) {
	type step struct {
		use        Milli // of b
		availA     Milli
		availB     Milli
		potentialB Milli
	}
	for _, c := range []struct {
		name string
		a, b []func(*cluster.Queue)
		step
	}{
		{"no limits", nil, nil, step{8, 2, 2, 10}},
		{"a lends 1", []func(*cluster.Queue){lend(1)}, nil, step{7, 3, 0, 7}},
		{"b may borrow 1", nil, []func(*cluster.Queue){limit(7)}, step{7, 3, 0, 7}},
		{"both", []func(*cluster.Queue){lend(1)}, []func(*cluster.Queue){limit(7)}, step{6, 4, 1, 7}},
		{"b may borrow nothing", nil, []func(*cluster.Queue){limit(6)}, step{2, 8, 4, 6}},
	} {
		tree := mustTree(t, 10, queue("a", "", 4, c.a...), queue("b", "", 6, c.b...))
		a, b := at(t, tree, "a"), at(t, tree, "b")
		tree.Charge(b, c.use*gpu, false)
		if got := tree.Available(a); got != c.availA*gpu {
			t.Errorf("%s: available(a) = %d, want %d", c.name, got, c.availA*gpu)
		}
		if got := tree.Available(b); got != c.availB*gpu {
			t.Errorf("%s: available(b) = %d, want %d", c.name, got, c.availB*gpu)
		}
		if got := tree.Potential(b); got != c.potentialB*gpu {
			t.Errorf("%s: potential(b) = %d, want %d", c.name, got, c.potentialB*gpu)
		}
	}
	tree := mustTree(t, 10, queue("a", "", 4), queue("b", "", 6))
	a, b := at(t, tree, "a"), at(t, tree, "b")
	tree.Charge(b, 8*gpu, false)
	if !tree.Entitled(a, 4*gpu, cluster.Standard) || tree.Entitled(a, 5*gpu, cluster.Standard) {
		t.Error("a's 4 fit its nominal quota, 5 do not")
	}
	if !tree.Reclaimable(b, a, 2*gpu, 4*gpu, cluster.Standard) ||
		tree.Reclaimable(b, a, 3*gpu, 4*gpu, cluster.Standard) {
		t.Error("2 of b's 8 are borrowed, not 3")
	}
	if tree.Reclaimable(b, a, 2*gpu, 5*gpu, cluster.Standard) || tree.Reclaimable(a, b, 0, 1, cluster.Standard) {
		t.Error("a borrower may not reclaim")
	}
}

// Tests: C=8; A G=4 B=8; B G=4 B=6.
func TestGuaranteeAndBurst(t *testing.T) {
	tree := mustTree(t, 8, queue("A", "", 4, limit(8)), queue("B", "", 4, limit(6)))
	a, b := at(t, tree, "A"), at(t, tree, "B")
	tree.Charge(a, 8*gpu, false)
	if got := tree.Borrowed(a); got != 4*gpu {
		t.Errorf("A borrows %d", got)
	}
	r := tree.Check(b, 4*gpu, cluster.Standard)
	if r.Rule != RuleAvailable || r.Queue != Root || r.Used != 8*gpu || r.Limit != 8*gpu {
		t.Errorf("B's 4 while A uses 8: %+v", r)
	}
	if !tree.Entitled(b, 4*gpu, cluster.Standard) || !tree.Reclaimable(a, b, 4*gpu, 4*gpu, cluster.Standard) {
		t.Error("B may reclaim 4 from A")
	}
	if tree.Entitled(b, 4*gpu, cluster.BestEffort) {
		t.Error("best-effort has no guarantee")
	}
	tree.Charge(a, -6*gpu, false)
	tree.Charge(b, 4*gpu, false)
	r = tree.Check(b, 3*gpu, cluster.Standard)
	if r.Rule != RuleLimit || r.Used != 4*gpu || r.Limit != 6*gpu || r.Asked != 3*gpu {
		t.Errorf("B's 3 more: %+v", r)
	}
	if got, want := r.String(), `queue "B": 3 GPUs asked, 4 used, limit 6`; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if r := tree.Check(b, 2*gpu, cluster.Standard); !r.OK() {
		t.Errorf("B's 2 more start as borrowed: %v", r)
	}
	if tree.Entitled(b, 2*gpu, cluster.Standard) {
		t.Error("B's 2 more are borrowed, not owed")
	}
}

// A critical job must fit the guarantee; only critical jobs may use the idle reserve.
func TestCriticalAndReserve(t *testing.T) {
	tree := mustTree(t, 8, queue("serving", "", 4, reserve(3)), queue("training", "", 4))
	s, tr := at(t, tree, "serving"), at(t, tree, "training")
	if got := tree.Held(Root); got != 3*gpu {
		t.Fatalf("held %d", got)
	}
	if got := tree.Available(tr); got != 5*gpu {
		t.Errorf("available(training) = %d: the reserve is not lent", got)
	}
	if r := tree.Check(tr, 6*gpu, cluster.Standard); r.Rule != RuleReserve || r.Used != 3*gpu {
		t.Errorf("training 6: %+v", r)
	}
	if r := tree.Check(tr, 8*gpu, cluster.Standard); r.Rule != RuleReserve {
		t.Errorf("training 8 would fit but for the reserve: %+v", r)
	}
	if r := tree.Check(tr, 9*gpu, cluster.Standard); r.Rule != RuleAvailable {
		t.Errorf("training 9 never fits: %+v", r)
	}
	if r := tree.Check(s, 5*gpu, cluster.Critical); r.Rule != RuleCritical || r.Queue != s {
		t.Errorf("critical beyond the guarantee: %+v", r)
	}
	tree.Charge(tr, 5*gpu, false)
	if r := tree.Check(s, 1*gpu, cluster.Standard); r.Rule != RuleReserve {
		t.Errorf("standard in the reserve: %+v", r)
	}
	if r := tree.Check(s, 3*gpu, cluster.Critical); !r.OK() {
		t.Errorf("critical in its reserve: %v", r)
	}
	if r := tree.Check(s, 4*gpu, cluster.Critical); r.Rule != RuleAvailable {
		t.Errorf("critical beyond its reserve: %+v", r)
	}
	if !tree.Reclaimable(tr, s, 1*gpu, 4*gpu, cluster.Critical) {
		t.Error("a critical job reclaims the fourth GPU")
	}
	tree.Charge(s, 2*gpu, true)
	if got := tree.Held(Root); got != 1*gpu {
		t.Errorf("held %d after 2 critical GPUs started", got)
	}
}

func TestHierarchy(t *testing.T) {
	tree := mustTree(t, 16,
		queue("b", "org", 4), queue("org", "", 8, limit(12)), queue("a", "org", 4), queue("c", "", 8))
	var names []string
	for q := range tree.Len() {
		names = append(names, tree.Name(q))
	}
	if got := strings.Join(names, " "); got != "root org b a c" {
		t.Fatalf("order: %s", got)
	}
	org, a, b, c := at(t, tree, "org"), at(t, tree, "a"), at(t, tree, "b"), at(t, tree, "c")
	if tree.Leaf(org) || !tree.Leaf(a) || tree.Leaf(Root) || tree.Parent(a) != org || tree.Parent(org) != Root {
		t.Error("shape")
	}
	if p := tree.Path(a); len(p) != 3 || p[0] != Root || p[1] != org || p[2] != a {
		t.Errorf("path %v", p)
	}
	tree.Charge(b, 8*gpu, false)
	tree.Charge(c, 8*gpu, false)
	if !tree.Entitled(a, 4*gpu, cluster.Standard) {
		t.Error("a is owed 4")
	}
	if !tree.Reclaimable(b, a, 4*gpu, 4*gpu, cluster.Standard) {
		t.Error("a reclaims from its sibling b inside the full parent")
	}
	if tree.Reclaimable(c, a, 1*gpu, 4*gpu, cluster.Standard) {
		t.Error("c is not above its guarantee")
	}
	tree.Charge(b, -1*gpu, false)
	tree.Charge(c, 1*gpu, false)
	if tree.Reclaimable(c, a, 1*gpu, 4*gpu, cluster.Standard) {
		t.Error("org with a's 4 would be above its guarantee: c owes it nothing beyond one")
	}
	if !tree.Reclaimable(c, a, 1*gpu, 1*gpu, cluster.Standard) {
		t.Error("one GPU more is within a's and org's guarantee")
	}
	tree.Charge(c, -9*gpu, false)
	if r := tree.Check(a, 6*gpu, cluster.Standard); r.Rule != RuleLimit || r.Queue != org {
		t.Errorf("org's limit: %+v", r)
	}
	if got := tree.Available(a); got != 5*gpu {
		t.Errorf("available(a) = %d", got)
	}
}

// A group without a guarantee of its own has its children's; it does not keep them from reclaiming
// outside what a sibling borrowed inside.
func TestGroup(t *testing.T) {
	tree := mustTree(t, 16, queue("org", "", 0), queue("a", "org", 4), queue("b", "org", 4), queue("c", "", 4))
	org, a, b, c := at(t, tree, "org"), at(t, tree, "a"), at(t, tree, "b"), at(t, tree, "c")
	if got := tree.Guarantee(org); got != 8*gpu {
		t.Errorf("guarantee(org) = %d", got)
	}
	tree.Charge(b, 8*gpu, false)
	tree.Charge(c, 8*gpu, false)
	if !tree.Reclaimable(b, a, 4*gpu, 4*gpu, cluster.Standard) ||
		!tree.Reclaimable(c, a, 4*gpu, 4*gpu, cluster.Standard) {
		t.Error("a may take from both borrowers")
	}
	if tree.CompareVictims(b, c, a) >= 0 {
		t.Error("the sibling gives back first")
	}
	quiet := queue("b", "org", 4)
	quiet.NoReclaim = true
	tree = mustTree(t, 16, queue("org", "", 0), queue("a", "org", 4), quiet)
	tree.Charge(at(t, tree, "b"), 16*gpu, false)
	if !tree.Entitled(at(t, tree, "a"), gpu, cluster.Standard) ||
		tree.Reclaimable(at(t, tree, "b"), at(t, tree, "a"), gpu, gpu, cluster.Standard) {
		t.Error("no_reclaim: a is entitled, but b gives nothing back before its jobs end")
	}
}

func TestStraddlingVictim(t *testing.T) {
	tree := mustTree(t, 8, queue("A", "", 4), queue("B", "", 4))
	a, b := at(t, tree, "A"), at(t, tree, "B")
	tree.Charge(a, 8*gpu, false) // one job
	if tree.Reclaimable(a, b, 8*gpu, 4*gpu, cluster.Standard) {
		t.Error("taking the job leaves A below its guarantee")
	}
	if !tree.ReclaimableWhole(a, b, 4*gpu, cluster.Standard) {
		t.Error("A is above its guarantee")
	}
	tree.Charge(a, -8*gpu, false)
	if tree.Entitled(a, 8*gpu, cluster.Standard) {
		t.Error("the job must not come back by reclaim")
	}
}

func TestCompareVictims(t *testing.T) {
	tree := mustTree(t, 30, queue("me", "", 10), queue("x", "", 5, weight(1000)), queue("y", "", 5, weight(4000)),
		queue("z", "", 0, weight(1000)))
	me, x, y, z := at(t, tree, "me"), at(t, tree, "x"), at(t, tree, "y"), at(t, tree, "z")
	tree.Charge(x, 8*gpu, false)  // 3 over, weight 1
	tree.Charge(y, 13*gpu, false) // 8 over, weight 4
	tree.Charge(z, 3*gpu, false)  // 3 over, weight 1
	if tree.CompareVictims(x, y, me) >= 0 || tree.CompareVictims(y, z, me) <= 0 || tree.CompareVictims(x, z, me) >= 0 {
		t.Error("order must be x, z, y")
	}
	if got := tree.Over(x); got != (Ratio{3 * gpu, 1000}) {
		t.Errorf("over(x) = %v", got)
	}
}

func TestNoQueues(t *testing.T) {
	tree := mustTree(t, 8)
	q, err := tree.Submit("")
	if err != nil || tree.Name(q) != "default" || tree.Len() != 2 {
		t.Fatal(q, err, tree.Len())
	}
	for _, tier := range []cluster.Tier{cluster.Critical, cluster.Standard, cluster.BestEffort} {
		if r := tree.Check(q, 100*gpu, tier); !r.OK() {
			t.Errorf("%v: %v", tier, r)
		}
	}
	if tree.Available(q) != Boundless {
		t.Error("available")
	}
}

func TestSubmit(t *testing.T) {
	tree := mustTree(t, 8, queue("org", "", 0), queue("vision", "org", 4), queue("speech", "org", 4))
	for name, want := range map[string]string{
		"org":    "submit to one of vision, speech",
		"visoin": `did you mean "vision"`,
		"":       `unknown queue "default"`,
	} {
		if _, err := tree.Submit(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Submit(%q): %v, want %q", name, err, want)
		}
	}
	if q, err := tree.Submit("speech"); err != nil || tree.Name(q) != "speech" {
		t.Error(q, err)
	}
}

func TestValidation(t *testing.T) {
	hours := func(from, to int, g Milli) func(*cluster.Queue) {
		return func(q *cluster.Queue) {
			q.Windows = append(q.Windows, cluster.Window{From: time.Duration(from) * time.Hour,
				To: time.Duration(to) * time.Hour, Guarantee: g * gpu, Limit: cluster.Unlimited})
		}
	}
	for _, c := range []struct {
		queues []cluster.Queue
		want   string
	}{
		{[]cluster.Queue{queue("a", "", 1), queue("a", "", 1)}, `queue "a" is defined twice`},
		{[]cluster.Queue{queue("", "", 1)}, `has no name`},
		{[]cluster.Queue{queue("a", "orgg", 1), queue("org", "", 1)}, `did you mean "org"`},
		{[]cluster.Queue{queue("a", "b", 1), queue("b", "a", 1), queue("c", "", 1)},
			`queues a, b: their parents form a cycle`},
		{[]cluster.Queue{queue("a", "", 4, limit(3))}, `queue "a": guarantee of 4 GPUs is above its limit of 3`},
		{[]cluster.Queue{queue("a", "", 5), queue("b", "", 4)},
			`guarantees of 9 GPUs in sum (a 5, b 4) are more than the cluster's 8`},
		{[]cluster.Queue{queue("p", "", 4), queue("a", "p", 3), queue("b", "p", 2)},
			`the children of queue "p" are guaranteed 5 GPUs in sum (a 3, b 2), more than its own guarantee of 4`},
		{[]cluster.Queue{queue("p", "", 0, limit(4)), queue("a", "p", 5)},
			`queue "p": guarantee of 5 GPUs is above its limit of 4`},
		{[]cluster.Queue{queue("a", "", 1, lend(2))}, `lends 2 GPUs, more than its guarantee of 1`},
		{[]cluster.Queue{queue("a", "", 1, reserve(2))}, `reserves 2 GPUs`},
		{[]cluster.Queue{queue("p", "", 4, reserve(1)), queue("a", "p", 2)},
			`queue "p" groups other queues: set reserve on`},
		{[]cluster.Queue{queue("a", "", 0, weight(-1))}, `weight is negative`},
		{[]cluster.Queue{queue("a", "", -3)}, `guarantee is negative`},
		{[]cluster.Queue{queue("a", "", 0, limit(-2))}, `limit is negative`},
		{[]cluster.Queue{queue("a", "", 4), queue("b", "", 4, hours(22, 6, 5))},
			`on Sunday at 22:00, guarantees of 9 GPUs`},
		{[]cluster.Queue{queue("a", "", 4, hours(24, 6, 5))}, `from 24h0m0s is not within a day`},
	} {
		_, err := New(c.queues, 8*gpu)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if _, err := New([]cluster.Queue{queue("a", "", 100)}, cluster.Unlimited); err != nil {
		t.Errorf("capacity not known yet: %v", err)
	}
	if _, err := New([]cluster.Queue{queue("a", "", 4, hours(22, 6, 0)), queue("b", "", 4, hours(22, 6, 8))},
		8*gpu); err != nil {
		t.Errorf("the sum holds at night, too: %v", err)
	}
}

func TestCapacityGoes(t *testing.T) {
	tree := mustTree(t, 8, queue("a", "", 4), queue("b", "", 4))
	a := at(t, tree, "a")
	tree.Charge(a, 7*gpu, false)
	tree.SetCapacity(6 * gpu)
	if got := tree.Available(a); got != -1*gpu {
		t.Errorf("available = %d", got)
	}
	tree.SetCapacity(8 * gpu)
	if got := tree.Available(a); got != 1*gpu {
		t.Errorf("available = %d", got)
	}
	if next := tree.Apply(0); next != math.MaxInt64 {
		t.Errorf("no windows, next = %d", next)
	}
}

func BenchmarkCharge(b *testing.B) {
	tree := mustTree(b, 64, queue("o", "", 64), queue("p", "o", 32), queue("a", "p", 16, lend(8), reserve(4)))
	q := at(b, tree, "a")
	b.ReportAllocs()
	for b.Loop() {
		tree.Charge(q, gpu, true)
		tree.Charge(q, -gpu, true)
	}
}

func BenchmarkCheck(b *testing.B) {
	tree := mustTree(b, 64, queue("o", "", 64), queue("p", "o", 32), queue("a", "p", 16, lend(8), reserve(4)))
	q := at(b, tree, "a")
	b.ReportAllocs()
	for b.Loop() {
		tree.Check(q, gpu, cluster.Standard)
	}
}
