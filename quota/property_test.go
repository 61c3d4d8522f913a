package quota

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

// drawTree draws a valid tree of up to three levels with guarantees, limits,
// lending limits and reserves.
func drawTree(r *rapid.T) *Tree {
	var queues []cluster.Queue
	n := rapid.IntRange(1, 7).Draw(r, "queues")
	parent := make([]int, n)
	for i := range n {
		parent[i] = rapid.IntRange(-1, i-1).Draw(r, "parent")
	}
	group := make([]bool, n)
	for _, p := range parent {
		if p >= 0 {
			group[p] = true
		}
	}
	sum := make([]Milli, n+1)
	for i := n - 1; i >= 0; i-- {
		q := cluster.Queue{Name: fmt.Sprint("q", i), Limit: cluster.Unlimited, Lend: cluster.Unlimited}
		up := n
		if parent[i] >= 0 {
			q.Parent, up = fmt.Sprint("q", parent[i]), parent[i]
		}
		g := sum[i] + rapid.Int64Range(0, 4).Draw(r, "guarantee")*gpu
		if !group[i] || rapid.Bool().Draw(r, "own guarantee") {
			q.Guarantee = g
		} else {
			g = sum[i]
		}
		if rapid.Bool().Draw(r, "limited") {
			q.Limit = g + rapid.Int64Range(0, 6).Draw(r, "borrow")*gpu
		}
		if rapid.Bool().Draw(r, "lends less") {
			q.Lend = rapid.Int64Range(0, g/gpu).Draw(r, "lend") * gpu
		}
		if !group[i] {
			q.Reserve = rapid.Int64Range(0, q.Guarantee/gpu).Draw(r, "reserve") * gpu
		}
		sum[up] += g
		queues = append(queues, q)
	}
	tree, err := New(queues, sum[n]+rapid.Int64Range(0, 8).Draw(r, "spare")*gpu)
	if err != nil {
		r.Fatal(err)
	}
	return tree
}

func leaves(tree *Tree) (qs []int) {
	for q := range tree.Len() {
		if tree.Leaf(q) {
			qs = append(qs, q)
		}
	}
	return qs
}

// twin computes everything from the leaves' usage, by the definitions.
type twin struct {
	*Tree
	used, crit []Milli // of leaves
}

func (w *twin) sum(q int, of []Milli) Milli {
	s := of[q]
	for _, c := range w.Children(q) {
		s += w.sum(c, of)
	}
	return s
}

func (w *twin) hold(q int) Milli {
	if w.Leaf(q) {
		return max(0, w.nodes[q].reserve-w.crit[q])
	}
	var all Milli
	for _, c := range w.Children(q) {
		all += w.hold(c)
	}
	return all
}

func (w *twin) quota(q int) (subtree, local Milli) {
	subtree = w.Guarantee(q)
	for _, c := range w.Children(q) {
		s, l := w.quota(c)
		subtree += s - l - w.Guarantee(c)
	}
	if lend := w.Spec(q).Lend; lend != cluster.Unlimited {
		local = max(0, subtree-lend)
	}
	return subtree, local
}

func (w *twin) usage(q int) Milli {
	if w.Leaf(q) {
		return w.used[q] + w.hold(q)
	}
	var u Milli
	for _, c := range w.Children(q) {
		_, l := w.quota(c)
		u += max(0, w.usage(c)-l)
	}
	return u
}

func (w *twin) available(q int) Milli {
	subtree, local := w.quota(q)
	usage := w.usage(q)
	if q == Root {
		return subtree - usage
	}
	up := w.available(w.Parent(q))
	if w.Limit(q) != cluster.Unlimited {
		up = min(up, subtree-local-max(0, usage-local)+w.Limit(q)-w.Guarantee(q))
	}
	return max(0, local-usage) + up
}

// Usage is the sum of what was charged, and availability follows the formulas; releasing everything
// restores every bit; admitted work alone never overdraws, exceeds a limit or takes the idle
// reserve.
func TestTreeTwin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tree := drawTree(r)
		empty := slices.Clone(tree.nodes)
		w := &twin{tree, make([]Milli, tree.Len()), make([]Milli, tree.Len())}
		type charge struct {
			q        int
			m        Milli
			critical bool
		}
		var done []charge
		for range rapid.IntRange(0, 25).Draw(r, "charges") {
			c := charge{rapid.SampledFrom(leaves(tree)).Draw(r, "queue"), rapid.Int64Range(1, 5000).Draw(r, "milli"),
				rapid.Bool().Draw(r, "critical")}
			tier := cluster.Standard
			if c.critical {
				tier = cluster.Critical
			}
			refusal, before := tree.Check(c.q, c.m, tier), tree.Available(c.q)
			if !c.critical && refusal.Rule == Allowed != (before >= c.m) && refusal.Rule != RuleLimit {
				r.Fatalf("available %d, asked %d: %v", before, c.m, refusal)
			}
			if refusal.Rule == Allowed {
				tree.Charge(c.q, c.m, c.critical)
				done = append(done, c)
				w.used[c.q] += c.m
				if c.critical {
					w.crit[c.q] += c.m
				}
			} else if refusal.Used+refusal.Asked <= refusal.Limit {
				r.Fatalf("refusal does not show why: %+v", refusal)
			}
			for q := range tree.Len() {
				if got, want := tree.Available(q), w.available(q); got != want {
					r.Fatalf("available(%s) = %d, want %d", tree.Name(q), got, want)
				}
				if tree.Used(q) != w.sum(q, w.used) || tree.Critical(q) != w.sum(q, w.crit) ||
					tree.Held(q) != w.hold(q) {
					r.Fatalf("%s: sums", tree.Name(q))
				}
				if tree.Available(q) < 0 || tree.Excess(q) > 0 || tree.Available(q) > max(0, tree.Potential(q)) {
					r.Fatalf("%s: available %d, potential %d, excess %d", tree.Name(q), tree.Available(q),
						tree.Potential(q), tree.Excess(q))
				}
				if idle := tree.Held(q); tree.Leaf(q) && idle > 0 {
					if refusal := tree.Check(q, idle, cluster.Critical); !refusal.OK() {
						r.Fatalf("%s holds %d for critical jobs: %v", tree.Name(q), idle, refusal)
					}
				}
			}
		}
		// Rebuilding from the leaves changes nothing.
		now := slices.Clone(tree.nodes)
		tree.SetCapacity(tree.Capacity())
		if !reflect.DeepEqual(now, tree.nodes) {
			r.Fatal("rebuild differs from charging")
		}
		for _, c := range slices.Backward(done) {
			tree.Charge(c.q, -c.m, c.critical)
		}
		if !reflect.DeepEqual(empty, tree.nodes) {
			r.Fatal("releasing did not restore the tree")
		}
	})
}

// Guarantees are kept: with jobs of one GPU, an entitled queue that is refused finds victims until
// it is admitted, no victim's queue falls below its guarantee, and none is entitled to take back
// what it lost.
func TestGuaranteeIsKept(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tree := drawTree(r)
		standard := make([]Milli, tree.Len())
		for range rapid.IntRange(0, 40).Draw(r, "jobs") {
			q, critical := rapid.SampledFrom(leaves(tree)).Draw(r, "queue"),
				rapid.IntRange(0, 3).Draw(r, "critical") == 0
			tier := cluster.Standard
			if critical {
				tier = cluster.Critical
			}
			if tree.Check(q, gpu, tier).OK() {
				tree.Charge(q, gpu, critical)
				if !critical {
					standard[q] += gpu
				}
			}
		}
		q := rapid.SampledFrom(leaves(tree)).Draw(r, "entitled")
		m := tree.Guarantee(q) - tree.Used(q) - tree.Held(q)
		if m <= 0 {
			return
		}
		if !tree.Entitled(q, m, cluster.Standard) || tree.Entitled(q, m+1, cluster.Standard) {
			r.Fatal("entitled up to the guarantee")
		}
		for !tree.Check(q, m, cluster.Standard).OK() {
			victims := leaves(tree)
			slices.SortFunc(victims, func(a, b int) int { return tree.CompareVictims(a, b, q) })
			i := slices.IndexFunc(victims, func(v int) bool {
				return standard[v] > 0 && tree.Reclaimable(v, q, gpu, m, cluster.Standard)
			})
			if i < 0 {
				r.Fatalf("%s is owed %d: %v, and there is no victim", tree.Name(q), m,
					tree.Check(q, m, cluster.Standard))
			}
			tree.Charge(victims[i], -gpu, false)
			standard[victims[i]] -= gpu
			if tree.Used(victims[i])+tree.Held(victims[i]) < tree.Guarantee(victims[i]) ||
				tree.Entitled(victims[i], gpu, cluster.Standard) {
				r.Fatalf("%s fell below its guarantee, or could take back", tree.Name(victims[i]))
			}
		}
	})
}

// CompareVictims is a total order for any preemptor.
func TestCompareVictimsTotal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tree := drawTree(r)
		for range rapid.IntRange(0, 10).Draw(r, "charges") {
			tree.Charge(rapid.SampledFrom(leaves(tree)).Draw(r, "queue"), rapid.Int64Range(0, 9).Draw(r, "gpus")*gpu,
				false)
		}
		ls := leaves(tree)
		pick := func(what string) int { return rapid.SampledFrom(ls).Draw(r, what) }
		q, a, b, c := pick("for"), pick("a"), pick("b"), pick("c")
		ab, bc, ac := tree.CompareVictims(a, b, q), tree.CompareVictims(b, c, q), tree.CompareVictims(a, c, q)
		if ab != -tree.CompareVictims(b, a, q) || ab == 0 != (a == b) || ab <= 0 && bc <= 0 && ac > 0 {
			r.Fatalf("%d %d %d: %d %d %d", a, b, c, ab, bc, ac)
		}
	})
}

// Ratios compare like fractions.
func TestRatio(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := func(what string) Ratio {
			return Ratio{rapid.Int64Range(-9, 9).Draw(r, what), rapid.Int64Range(1, 9).Draw(r, what)}
		}
		a, b := draw("a"), draw("b")
		want := 0
		if d := a.Num*b.Den - b.Num*a.Den; d > 0 {
			want = 1
		} else if d < 0 {
			want = -1
		}
		if a.Cmp(b) != want {
			r.Fatalf("%v cmp %v = %d", a, b, a.Cmp(b))
		}
	})
}
