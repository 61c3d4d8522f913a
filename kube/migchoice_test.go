package kube

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// dumbServe is serve, one task after the other.
func dumbServe(q *migQuestion, with []migChange) []bool {
	free := make([][]int, len(q.nodes))
	for i := range q.nodes {
		free[i] = slices.Clone(q.nodes[i].free)
	}
	for _, c := range with {
		free[c.node] = slices.Clone(q.nodes[c.node].to[c.way])
	}
	served := make([]bool, len(q.wants))
	for w, want := range q.wants {
		for _, model := range []string{"a", "b"} {
			try := make([][]int, len(free))
			for i := range free {
				try[i] = slices.Clone(free[i])
			}
			all := true
			for _, s := range want.sets {
				for range s.count {
					at := -1
					for i, f := range try {
						if q.nodes[i].model != model || !want.suits[i] || f[s.what] < s.each {
							continue
						}
						if at < 0 || f[s.what] < try[at][s.what] || f[s.what] == try[at][s.what] && slices.Compare(f, try[at]) < 0 {
							at = i
						}
					}
					if all = all && at >= 0; !all {
						break
					}
					try[at][s.what] -= s.each
				}
			}
			if all && !served[w] {
				free, served[w] = try, true
			}
		}
	}
	return served
}

// dumbChoose tries everything for every node by itself, and returns what the best is worth.
func dumbChoose(q *migQuestion) (best migValue) {
	best.first = len(q.wants)
	before := dumbServe(q, nil)
	ways := make([]int, len(q.nodes)) // 0: as it is
	for {
		var with []migChange
		v := migValue{first: len(q.wants)}
		for i, w := range ways {
			if w > 0 {
				with = append(with, migChange{i, w - 1})
				v.cost, v.changes, v.whole = v.cost+q.nodes[i].cost, v.changes+1, v.whole+q.nodes[i].whole-q.nodes[i].to[w-1][0]
			}
		}
		for i, yes := range dumbServe(q, with) {
			if yes && !before[i] {
				v.first, v.milli = min(v.first, i), v.milli+q.wants[i].milli
			}
		}
		if v.first < len(q.wants) && v.compare(best) < 0 {
			best = v
		}
		k := 0
		for ; k < len(ways); k++ {
			if ways[k] < len(q.nodes[k].to) {
				ways[k]++
				break
			}
			ways[k] = 0
		}
		if k == len(ways) {
			return best
		}
	}
}

func randomQuestion(r *rand.Rand) *migQuestion {
	q := &migQuestion{}
	ways := [][]int{{4, 0, 0}, {0, 28, 0}, {0, 0, 8}, {2, 0, 4}}
	for k := range 1 + r.IntN(3) {
		n := migNode{kind: fmt.Sprint(k), model: []string{"a", "a", "b"}[r.IntN(3)], free: []int{r.IntN(5), r.IntN(8), r.IntN(3)}, whole: r.IntN(5)}
		if r.IntN(3) > 0 {
			n.to = ways[:1+r.IntN(len(ways))]
			n.cost = int64(r.IntN(3) * 10)
		}
		for range 1 + r.IntN(2) {
			q.nodes = append(q.nodes, n)
		}
	}
	for range 1 + r.IntN(4) {
		w := migWant{milli: int64(1 + r.IntN(9)), suits: make([]bool, len(q.nodes))}
		for i := range q.nodes { // alike nodes suit alike
			if w.suits[i] = r.IntN(5) > 0; i > 0 && q.nodes[i].kind == q.nodes[i-1].kind {
				w.suits[i] = w.suits[i-1]
			}
		}
		w.sets = []migSet{{what: r.IntN(3), each: 1, count: 1 + r.IntN(12)}}
		if w.sets[0].what == 0 {
			w.sets[0] = migSet{0, 1 + r.IntN(4), 1 + r.IntN(3)}
		}
		if r.IntN(4) == 0 {
			w.sets = append(w.sets, migSet{what: r.IntN(3), each: 1, count: 1 + r.IntN(3)})
		}
		q.wants = append(q.wants, w)
	}
	return q
}

// What is chosen is worth as much as the best of all that there is to choose; where one change after the other is looked
// for, it serves whom it says, with nothing that is not needed, and the same who comes first.
func TestMIGChoice(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	chosen, whole := 0, 0
	for range 3000 {
		q := randomQuestion(r)
		before := q.serve(nil)
		if dumb := dumbServe(q, nil); !slices.Equal(before, dumb) {
			t.Fatalf("%+v: %v, one by one %v", q, before, dumb)
		}
		best, plan := dumbChoose(q), q.choose()
		got := q.value(plan, before)
		if plan == nil {
			got = migValue{first: len(q.wants)}
		} else {
			chosen++
		}
		if got != best {
			t.Fatalf("%+v: %+v is worth %+v, the best %+v", q, plan, got, best)
		}
		less := q.oneByOne(q.kinds(), before)
		v := q.value(less, before)
		if len(less) > 0 && v.first == len(q.wants) {
			t.Fatalf("%+v: %+v serves nobody", q, less)
		}
		if v.first == best.first {
			whole++
		}
		for i := range less {
			if slices.Equal(q.serve(slices.Delete(slices.Clone(less), i, i+1)), q.serve(less)) {
				t.Fatalf("%+v: %+v: change %d is not needed", q, less, i)
			}
		}
	}
	if chosen < 500 || whole < 2700 {
		t.Errorf("%d had something to choose; %d of 3000 served the same one first, one by one", chosen, whole)
	}
}

// Nobody is served: nothing is changed. Of two ways that serve, the one that leaves more GPUs whole; who is first in line
// comes before more demand; an empty node before one that has to be emptied.
func TestMIGChoiceOrder(t *testing.T) {
	node := func(kind string, cost int64, to ...[]int) migNode {
		return migNode{kind: kind, model: "a", free: []int{0, 0, 0}, whole: 8, cost: cost, to: to}
	}
	ones := migWant{sets: []migSet{{1, 1, 14}}, milli: 2000, suits: []bool{true, true}}
	threes := migWant{sets: []migSet{{2, 1, 16}}, milli: 6800, suits: []bool{true, true}}
	for _, c := range []struct {
		name string
		q    migQuestion
		want []migChange
	}{
		{"nobody waits", migQuestion{nodes: []migNode{node("x", 0, []int{0, 56, 0})}}, nil},
		{"no way has it", migQuestion{wants: []migWant{threes}, nodes: []migNode{node("x", 0, []int{0, 56, 0}), node("x", 0, []int{0, 56, 0})}}, nil},
		{"whole GPUs are kept", migQuestion{wants: []migWant{ones}, nodes: []migNode{node("x", 0, []int{0, 56, 0}, []int{6, 14, 0}), node("x", 0, []int{0, 56, 0}, []int{6, 14, 0})}}, []migChange{{0, 1}}},
		{"the first comes first", migQuestion{wants: []migWant{ones, threes}, nodes: []migNode{node("x", 0, []int{0, 56, 0}, []int{0, 0, 16}), {kind: "y", model: "a", free: []int{0, 0, 0}}}}, []migChange{{0, 0}}},
		{"an empty one first", migQuestion{wants: []migWant{ones}, nodes: []migNode{node("x", 5, []int{0, 56, 0}), node("y", 0, []int{0, 56, 0})}}, []migChange{{1, 0}}},
	} {
		if got := c.q.choose(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// wideQuestion has many nodes, of which some may be changed, of many kinds and in many ways, and many who wait.
func wideQuestion(nodes, can, kinds, ways, wants int) *migQuestion {
	r := rand.New(rand.NewPCG(5, 9))
	q := &migQuestion{}
	var to [][]int
	for w := range ways {
		x := make([]int, ways+1)
		x[0], x[w+1] = w%3, 14
		to = append(to, x)
	}
	for i := range nodes {
		n := migNode{kind: "none", model: "a", free: make([]int, ways+1), whole: 8}
		n.free[0] = r.IntN(8)
		if i < can {
			n.kind, n.to, n.cost = fmt.Sprint("k", i%kinds), to, int64(i%kinds)
		}
		q.nodes = append(q.nodes, n)
	}
	for w := range wants {
		x := migWant{milli: 1000, sets: []migSet{{what: 1 + w%ways, each: 1, count: 20}}, suits: make([]bool, nodes)}
		for i := range x.suits {
			x.suits[i] = true
		}
		q.wants = append(q.wants, x)
	}
	return q
}

// What may be counted is bounded, of all questions together; who is first in line is served all the same, and as long as
// enough is left the changes are those that are found without a bound.
func TestMIGWork(t *testing.T) {
	left := int64(migWork)
	q := wideQuestion(1000, 64, 8, 8, 64)
	q.left = &left
	plan := q.choose()
	if served := q.serve(plan); len(plan) == 0 || !served[0] {
		t.Errorf("%v serves %v", plan, served)
	}
	for range 50 {
		q.choose()
	}
	if most := int64(2 * 1000 * 64); left < -64*most {
		t.Errorf("%d more was counted than may be", -left)
	}
	if got := q.choose(); got != nil {
		t.Errorf("%v, with nothing left", got)
	}
	free, enough := wideQuestion(100, 16, 4, 4, 16), wideQuestion(100, 16, 4, 4, 16)
	left = 10 * migWork
	enough.left = &left
	if got, want := enough.choose(), free.choose(); len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("%v, without a bound %v", got, want)
	}
}

// BenchmarkMIGChoose is one question: 1,000 nodes, of which 64 of 8 kinds may be changed in 8 ways, for 64 who wait.
func BenchmarkMIGChoose(b *testing.B) {
	for b.Loop() {
		left := int64(migWork)
		q := wideQuestion(1000, 64, 8, 8, 64)
		q.left = &left
		q.choose()
	}
}
