package kube

import (
	"cmp"
	"math"
	"slices"
)

// Which nodes are to be partitioned how, is chosen by counting: what of each resource is free on a node, and what there
// would be if it were partitioned otherwise. What counting does not see - who may be beside whom, quotas, racks - a
// second engine is asked (migworld.go). All of it is pure: the same question has the same answer.

// migQuestion is what waits, and what there is. Resources have numbers: 0 is a whole GPU, the others are profiles.
type migQuestion struct {
	wants  []migWant // the first to come first
	nodes  []migNode
	left   *int64   // what may be counted still (migWork), of several questions together; nil: all
	models []string // of the nodes, by name; nil: they have yet to be listed
}

// migWant is a gang that waits.
type migWant struct {
	sets  []migSet // the largest first
	milli int64    // of a GPU, all together
	suits []bool   // by node
}

// migSet is tasks that ask for the same, each on one node.
type migSet struct{ what, each, count int }

// migNode is a node.
type migNode struct {
	kind  string // nodes of one kind are alike in all of this
	model string // a gang's GPUs are of one
	free  []int  // by resource, as it is partitioned now
	whole int    // GPUs that are whole now, free or not
	to    [][]int
	cost  int64 // of emptying it, for a change; 0: nobody is there
}

// migChange is a node that is to be partitioned as one of its ways says (migNode.to).
type migChange struct{ node, way int }

// migValue is what changes are worth, the most important first.
type migValue struct {
	first   int   // the first in line who is served by them
	milli   int64 // served
	cost    int64
	changes int
	whole   int // whole GPUs that are lost, or less than nothing
}

// compare is below 0 where v is better.
func (v migValue) compare(w migValue) int {
	return cmp.Or(v.first-w.first, cmp.Compare(w.milli, v.milli), cmp.Compare(v.cost, w.cost), v.changes-w.changes, v.whole-w.whole)
}

// Most that is counted of every possibility: beyond that one change after the other is looked for.
const migExhaustive = 2_000_000

// Looking for one change after the other is for so many wants at a time, and ends when so many nodes were looked at; when
// half of them were, the first of two changes that bring as many tasks to a place is taken, whatever else it is worth.
const (
	migMostServed = 16
	migWork       = 30_000_000
)

// spent reports whether all but a part (1/of) of what may be counted was.
func (q *migQuestion) spent(of int64) bool { return q.left != nil && *q.left <= migWork/of }

// choose finds the changes that are worth most; nil: none serves anybody, or none was found in time.
func (q *migQuestion) choose() []migChange {
	if q.spent(math.MaxInt64) {
		return nil
	}
	before := q.serve(nil)
	kinds := q.kinds()
	if work := q.possibilities(kinds) * float64(max(1, len(q.wants))*max(1, len(q.nodes))); work <= migExhaustive {
		return q.tryAll(kinds, before)
	}
	return q.oneByOne(kinds, before)
}

// kinds are the nodes that may be changed, those of one kind together.
func (q *migQuestion) kinds() (kinds [][]int) {
	at := map[string]int{}
	for i := range q.nodes {
		n := &q.nodes[i]
		if len(n.to) == 0 {
			continue
		}
		k, ok := at[n.kind]
		if !ok {
			k = len(kinds)
			at[n.kind], kinds = k, append(kinds, nil)
		}
		kinds[k] = append(kinds[k], i)
	}
	return kinds
}

// possibilities counts the sets of changes: of n alike nodes with w ways, so many each.
func (q *migQuestion) possibilities(kinds [][]int) float64 {
	count := 1.0
	for _, list := range kinds {
		n := len(list)
		for w := range q.nodes[list[0]].to {
			count *= float64(n+w+1) / float64(w+1)
		}
	}
	return count
}

// tryAll tries every set of changes.
func (q *migQuestion) tryAll(kinds [][]int, before []bool) (best []migChange) {
	value := migValue{first: len(q.wants)}
	var with []migChange
	var grow func(k, way, used int)
	grow = func(k, way, used int) {
		switch {
		case k == len(kinds):
			if v := q.value(with, before); v.first < len(q.wants) && v.compare(value) < 0 {
				value, best = v, slices.Clone(with)
			}
			return
		case way == len(q.nodes[kinds[k][0]].to):
			grow(k+1, 0, 0)
			return
		}
		n := len(with)
		grow(k, way+1, used)
		for i := used; i < len(kinds[k]); i++ {
			with = append(with, migChange{kinds[k][i], way})
			grow(k, way+1, i+1)
		}
		with = with[:n]
	}
	grow(0, 0, 0)
	return best
}

// oneByOne serves one after the other, as long as each change brings more of its tasks to a place; then it leaves out
// what is not needed.
func (q *migQuestion) oneByOne(kinds [][]int, before []bool) (plan []migChange) {
	served := 0
	for w := range q.wants {
		if before[w] || q.serve(plan)[w] {
			continue
		}
		if served++; served > migMostServed || q.spent(math.MaxInt64) {
			break
		}
		with := slices.Clone(plan)
		for done := 0; !q.serve(with)[w]; {
			next, ok := q.nextFor(w, kinds, with, before, &done)
			if !ok {
				break
			}
			with = append(with, next)
		}
		if q.serve(with)[w] {
			plan = with
		}
	}
	all := q.serve(plan)
	for i := len(plan) - 1; i >= 0; i-- {
		if less := slices.Delete(slices.Clone(plan), i, i+1); slices.Equal(q.serve(less), all) {
			plan, i = less, len(less) // without it, one that is looked at already may not be needed either
		}
	}
	if len(plan) == 0 {
		return nil
	}
	return plan
}

// nextFor is the change that brings most of a gang's tasks to a place, beyond those that have one.
func (q *migQuestion) nextFor(w int, kinds [][]int, with []migChange, before []bool, done *int) (next migChange, ok bool) {
	most, value, valued := *done, migValue{}, false
	for _, list := range kinds {
		at := slices.IndexFunc(list, func(i int) bool {
			return !slices.ContainsFunc(with, func(c migChange) bool { return c.node == i })
		})
		if at < 0 {
			continue
		}
		for way := range q.nodes[list[at]].to {
			c := migChange{list[at], way}
			try := append(slices.Clip(with), c)
			switch placed := q.placed(w, try); {
			case q.spent(math.MaxInt64):
				return next, false
			case placed > most:
				most, next, ok, valued = placed, c, true, false
			case ok && placed == most && !q.spent(2):
				if !valued {
					value, valued = q.value(append(slices.Clip(with), next), before), true
				}
				if v := q.value(try, before); v.compare(value) < 0 {
					value, next = v, c
				}
			}
		}
	}
	*done = most
	return next, ok
}

// value says what changes are worth.
func (q *migQuestion) value(with []migChange, before []bool) migValue {
	v := migValue{first: len(q.wants), changes: len(with)}
	for i, yes := range q.serve(with) {
		if yes && !before[i] {
			v.first = min(v.first, i)
			v.milli += q.wants[i].milli
		}
	}
	for _, c := range with {
		n := &q.nodes[c.node]
		v.cost += n.cost
		v.whole += n.whole - n.to[c.way][0]
	}
	return v
}

// after is what is free on each node after changes.
func (q *migQuestion) after(with []migChange) [][]int {
	size := 0
	for i := range q.nodes {
		size += len(q.nodes[i].free)
	}
	free, flat := make([][]int, len(q.nodes)), make([]int, 0, size)
	for i := range q.nodes {
		from := len(flat)
		flat = append(flat, q.nodes[i].free...)
		free[i] = flat[from:len(flat):len(flat)]
	}
	for _, c := range with {
		copy(free[c.node], q.nodes[c.node].to[c.way])
	}
	return free
}

// serve says who would have places after changes, the first in line first.
func (q *migQuestion) serve(with []migChange) []bool {
	free, served := q.after(with), make([]bool, len(q.wants))
	for w := range q.wants {
		_, served[w] = q.put(w, free)
	}
	return served
}

// placed is how many tasks of a gang would have places after changes, behind those who come before it.
func (q *migQuestion) placed(w int, with []migChange) int {
	free := q.after(with)
	for i := range w {
		q.put(i, free)
	}
	n, _ := q.put(w, free)
	return n
}

// put places a gang on GPUs of one model, each task on the node with the least room that is enough. If all find a place,
// they take it; else none does, and n says how many would have, of the model where most would.
func (q *migQuestion) put(w int, free [][]int) (n int, ok bool) {
	want := &q.wants[w]
	total := 0
	for _, s := range want.sets {
		total += s.count
	}
	for _, model := range q.known() {
		if q.left != nil {
			*q.left -= int64(len(q.nodes) * len(want.sets))
		}
		var taken []migTaken
		placed := 0
		for _, s := range want.sets {
			left := s.count
			for _, i := range q.tightest(want, model, s, free) {
				if k := min(left, roomFor(free[i], s)); k > 0 {
					free[i][s.what] -= k * s.each
					taken, left = append(taken, migTaken{i, s.what, k * s.each}), left-k
				}
			}
			placed += s.count - left
		}
		if placed == total {
			return placed, true
		}
		for _, t := range taken {
			free[t.node][t.what] += t.count
		}
		n = max(n, placed)
	}
	return n, false
}

// tightest lists the nodes of a model that take a task of a set, those with the least room first.
func (q *migQuestion) tightest(want *migWant, model string, s migSet, free [][]int) (list []int) {
	for i := range q.nodes {
		if q.nodes[i].model == model && want.suits[i] && roomFor(free[i], s) > 0 {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int {
		return cmp.Or(free[a][s.what]-free[b][s.what], slices.Compare(free[a], free[b]))
	})
	return list
}

type migTaken struct{ node, what, count int }

// roomFor is how many tasks of a set a node takes.
func roomFor(free []int, s migSet) int {
	if s.each == 0 {
		return math.MaxInt32
	}
	return max(0, free[s.what]) / s.each
}

// known lists the models of the nodes.
func (q *migQuestion) known() []string {
	if q.models == nil {
		for i := range q.nodes {
			if m := q.nodes[i].model; !slices.Contains(q.models, m) {
				q.models = append(q.models, m)
			}
		}
		slices.Sort(q.models)
	}
	return q.models
}
