package mig

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// dumbServe is serve, one task after the other.
func dumbServe(q *question, with []change) []bool {
	free := make([][]int, len(q.Nodes))
	for i := range q.Nodes {
		free[i] = slices.Clone(q.Nodes[i].Free)
	}
	for _, c := range with {
		free[c.Node] = slices.Clone(q.Nodes[c.Node].To[c.Way])
	}
	served := make([]bool, len(q.Wants))
	for w, want := range q.Wants {
		for _, model := range []string{"a", "b"} {
			try := make([][]int, len(free))
			for i := range free {
				try[i] = slices.Clone(free[i])
			}
			all := true
			for _, s := range want.Sets {
				for range s.Count {
					at := -1
					for i, f := range try {
						if q.Nodes[i].Model != model || !want.Suits[i] || f[s.What] < s.Each {
							continue
						}
						if at < 0 || f[s.What] < try[at][s.What] ||
							f[s.What] == try[at][s.What] && slices.Compare(f, try[at]) < 0 {
							at = i
						}
					}
					if all = all && at >= 0; !all {
						break
					}
					try[at][s.What] -= s.Each
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
func dumbChoose(q *question) (best value) {
	best.first = len(q.Wants)
	before := dumbServe(q, nil)
	ways := make([]int, len(q.Nodes)) // 0: as it is
	for {
		var with []change
		v := value{first: len(q.Wants)}
		for i, w := range ways {
			if w > 0 {
				with = append(with, change{i, w - 1})
				v.cost, v.changes, v.whole = v.cost+q.Nodes[i].Cost, v.changes+1,
					v.whole+q.Nodes[i].Whole-q.Nodes[i].To[w-1][0]
			}
		}
		for i, yes := range dumbServe(q, with) {
			if yes && !before[i] {
				v.first, v.milli = min(v.first, i), v.milli+q.Wants[i].Milli
			}
		}
		if v.first < len(q.Wants) && v.compare(best) < 0 {
			best = v
		}
		k := 0
		for ; k < len(ways); k++ {
			if ways[k] < len(q.Nodes[k].To) {
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

func randomQuestion(r *rand.Rand) *question {
	q := &question{}
	ways := [][]int{{4, 0, 0}, {0, 28, 0}, {0, 0, 8}, {2, 0, 4}}
	for k := range 1 + r.IntN(3) {
		n := host{Kind: fmt.Sprint(k), Model: []string{"a", "a", "b"}[r.IntN(3)],
			Free: []int{r.IntN(5), r.IntN(8), r.IntN(3)}, Whole: r.IntN(5)}
		if r.IntN(3) > 0 {
			n.To = ways[:1+r.IntN(len(ways))]
			n.Cost = int64(r.IntN(3) * 10)
		}
		for range 1 + r.IntN(2) {
			q.Nodes = append(q.Nodes, n)
		}
	}
	for range 1 + r.IntN(4) {
		w := want{Milli: int64(1 + r.IntN(9)), Suits: make([]bool, len(q.Nodes))}
		for i := range q.Nodes { // alike nodes suit alike
			if w.Suits[i] = r.IntN(5) > 0; i > 0 && q.Nodes[i].Kind == q.Nodes[i-1].Kind {
				w.Suits[i] = w.Suits[i-1]
			}
		}
		w.Sets = []taskSet{{What: r.IntN(3), Each: 1, Count: 1 + r.IntN(12)}}
		if w.Sets[0].What == 0 {
			w.Sets[0] = taskSet{0, 1 + r.IntN(4), 1 + r.IntN(3)}
		}
		if r.IntN(4) == 0 {
			w.Sets = append(w.Sets, taskSet{What: r.IntN(3), Each: 1, Count: 1 + r.IntN(3)})
		}
		q.Wants = append(q.Wants, w)
	}
	return q
}

// What is chosen is worth as much as the best of all that there is to choose; where one change after the other
// is looked for, it serves which it says, with nothing that is not needed, and the same one first.
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
			got = value{first: len(q.Wants)}
		} else {
			chosen++
		}
		if got != best {
			t.Fatalf("%+v: %+v is worth %+v, the best %+v", q, plan, got, best)
		}
		less := q.oneByOne(q.kinds(), before)
		v := q.value(less, before)
		if len(less) > 0 && v.first == len(q.Wants) {
			t.Fatalf("%+v: %+v serves none", q, less)
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

// None is served: nothing is changed. Of two ways that serve, the one that leaves more GPUs whole; the one that is
// first in line comes before more demand; an empty node before one that has to be emptied.
func TestMIGChoiceOrder(t *testing.T) {
	node := func(kind string, cost int64, to ...[]int) host {
		return host{Kind: kind, Model: "a", Free: []int{0, 0, 0}, Whole: 8, Cost: cost, To: to}
	}
	ones := want{Sets: []taskSet{{1, 1, 14}}, Milli: 2000, Suits: []bool{true, true}}
	threes := want{Sets: []taskSet{{2, 1, 16}}, Milli: 6800, Suits: []bool{true, true}}
	for _, c := range []struct {
		name string
		q    question
		want []change
	}{
		{"none waits", question{Nodes: []host{node("x", 0, []int{0, 56, 0})}}, nil},
		{"no way has it", question{Wants: []want{threes},
			Nodes: []host{node("x", 0, []int{0, 56, 0}), node("x", 0, []int{0, 56, 0})}}, nil},
		{"whole GPUs are kept",
			question{Wants: []want{ones},
				Nodes: []host{node("x", 0, []int{0, 56, 0}, []int{6, 14, 0}),
					node("x", 0, []int{0, 56, 0}, []int{6, 14, 0})}}, []change{{0, 1}}},
		{"the first comes first",
			question{Wants: []want{ones, threes},
				Nodes: []host{node("x", 0, []int{0, 56, 0}, []int{0, 0, 16}),
					{Kind: "y", Model: "a", Free: []int{0, 0, 0}}}}, []change{{0, 0}}},
		{"an empty one first",
			question{Wants: []want{ones}, Nodes: []host{node("x", 5, []int{0, 56, 0}), node("y", 0, []int{0, 56, 0})}},
			[]change{{1, 0}}},
	} {
		if got := c.q.choose(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// wideQuestion has many nodes, of which some may be changed, of many kinds and in many ways, and many wait.
func wideQuestion(nodes, can, kinds, ways, wants int) *question {
	r := rand.New(rand.NewPCG(5, 9))
	q := &question{}
	var to [][]int
	for w := range ways {
		x := make([]int, ways+1)
		x[0], x[w+1] = w%3, 14
		to = append(to, x)
	}
	for i := range nodes {
		n := host{Kind: "none", Model: "a", Free: make([]int, ways+1), Whole: 8}
		n.Free[0] = r.IntN(8)
		if i < can {
			n.Kind, n.To, n.Cost = fmt.Sprint("k", i%kinds), to, int64(i%kinds)
		}
		q.Nodes = append(q.Nodes, n)
	}
	for w := range wants {
		x := want{Milli: 1000, Sets: []taskSet{{What: 1 + w%ways, Each: 1, Count: 20}}, Suits: make([]bool, nodes)}
		for i := range x.Suits {
			x.Suits[i] = true
		}
		q.Wants = append(q.Wants, x)
	}
	return q
}

// What may be counted is bounded, of all questions together; the first in line is served all the same, and
// as long as enough is left the changes are those that are found without a bound.
func TestMIGWork(t *testing.T) {
	left := int64(work)
	q := wideQuestion(1000, 64, 8, 8, 64)
	q.Left = &left
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
	left = 10 * work
	enough.Left = &left
	if got, want := enough.choose(), free.choose(); len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("%v, without a bound %v", got, want)
	}
}

// BenchmarkMIGChoose is one question: 1,000 nodes, of which 64 of 8 kinds may be changed in 8 ways, for 64 that wait.
func BenchmarkMIGChoose(b *testing.B) {
	for b.Loop() {
		left := int64(work)
		q := wideQuestion(1000, 64, 8, 8, 64)
		q.Left = &left
		q.choose()
	}
}
