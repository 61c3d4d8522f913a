package mig

import (
	"cmp"
	"math"
	"slices"
)

// Which nodes are to be partitioned how, is chosen by counting: what of each resource is free on a node, and what there
// would be if it were partitioned otherwise. What counting does not see - which pods may be beside which, quotas, racks
// - a second engine is asked. All of it is pure: the same question has the same answer.

// question is what waits, and what there is. Resources have numbers: 0 is a whole GPU, the others are profiles.
type question struct {
	Wants  []want // the first to come first
	Nodes  []host
	Left   *int64   // what may be counted still (work), of several questions together; nil: all
	models []string // of the nodes, by name; nil: they have yet to be listed
}

// want is a gang that waits.
type want struct {
	Sets  []taskSet // the largest first
	Milli int64     // of a GPU, all together
	Suits []bool    // by node
}

// taskSet is tasks that ask for the same, each on one node.
type taskSet struct{ What, Each, Count int }

// host is a node.
type host struct {
	Kind  string // nodes of one kind are alike in all of this
	Model string // a gang's GPUs are of one
	Free  []int  // by resource, as it is partitioned now
	Whole int    // GPUs that are whole now, free or not
	To    [][]int
	Cost  int64 // of emptying it, for a change; 0: it is empty
}

// change is a node that is to be partitioned as one of its ways says (Node.To).
type change struct{ Node, Way int }

// value is what changes are worth, the most important first.
type value struct {
	first   int   // the first in line that is served by them
	milli   int64 // served
	cost    int64
	changes int
	whole   int // whole GPUs that are lost, or less than nothing
}

// compare is below 0 where v is better.
func (v value) compare(w value) int {
	return cmp.Or(v.first-w.first, cmp.Compare(w.milli, v.milli), cmp.Compare(v.cost, w.cost), v.changes-w.changes,
		v.whole-w.whole)
}

// Most that is counted of every possibility: beyond that one change after the other is looked for.
const exhaustive = 2_000_000

// Looking for one change after the other is for so many wants at a time, and ends when so many nodes were
// looked at; when half of them were, the first of two changes that bring as many tasks to a place is taken,
// whatever else it is worth.
const (
	mostServed = 16
	// work is how many nodes may be looked at.
	work = 30_000_000
)

// spent reports whether all but a part (1/of) of what may be counted was.
func (q *question) spent(of int64) bool { return q.Left != nil && *q.Left <= work/of }

// Choose finds the changes that are worth most; nil: none serves a gang, or none was found in time.
func (q *question) choose() []change {
	if q.spent(math.MaxInt64) {
		return nil
	}
	before := q.serve(nil)
	kinds := q.kinds()
	if work := q.possibilities(kinds) * float64(max(1, len(q.Wants))*max(1, len(q.Nodes))); work <= exhaustive {
		return q.tryAll(kinds, before)
	}
	return q.oneByOne(kinds, before)
}

// kinds are the nodes that may be changed, those of one kind together.
func (q *question) kinds() (kinds [][]int) {
	at := map[string]int{}
	for i := range q.Nodes {
		n := &q.Nodes[i]
		if len(n.To) == 0 {
			continue
		}
		k, ok := at[n.Kind]
		if !ok {
			k = len(kinds)
			at[n.Kind], kinds = k, append(kinds, nil)
		}
		kinds[k] = append(kinds[k], i)
	}
	return kinds
}

// possibilities counts the sets of changes: of n alike nodes with w ways, so many each.
func (q *question) possibilities(kinds [][]int) float64 {
	count := 1.0
	for _, list := range kinds {
		n := len(list)
		for w := range q.Nodes[list[0]].To {
			count *= float64(n+w+1) / float64(w+1)
		}
	}
	return count
}

// tryAll tries every set of changes.
func (q *question) tryAll(kinds [][]int, before []bool) (best []change) {
	value := value{first: len(q.Wants)}
	var with []change
	var grow func(k, way, used int)
	grow = func(k, way, used int) {
		switch {
		case k == len(kinds):
			if v := q.value(with, before); v.first < len(q.Wants) && v.compare(value) < 0 {
				value, best = v, slices.Clone(with)
			}
			return
		case way == len(q.Nodes[kinds[k][0]].To):
			grow(k+1, 0, 0)
			return
		}
		n := len(with)
		grow(k, way+1, used)
		for i := used; i < len(kinds[k]); i++ {
			with = append(with, change{kinds[k][i], way})
			grow(k, way+1, i+1)
		}
		with = with[:n]
	}
	grow(0, 0, 0)
	return best
}

// oneByOne serves one after the other, as long as each change brings more of its tasks to a place; then it leaves out
// what is not needed.
func (q *question) oneByOne(kinds [][]int, before []bool) (plan []change) {
	served := 0
	for w := range q.Wants {
		if before[w] || q.serve(plan)[w] {
			continue
		}
		if served++; served > mostServed || q.spent(math.MaxInt64) {
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
func (q *question) nextFor(w int, kinds [][]int, with []change, before []bool, done *int) (next change, ok bool) {
	most, value, valued := *done, value{}, false
	for _, list := range kinds {
		at := slices.IndexFunc(list, func(i int) bool {
			return !slices.ContainsFunc(with, func(c change) bool { return c.Node == i })
		})
		if at < 0 {
			continue
		}
		for way := range q.Nodes[list[at]].To {
			c := change{list[at], way}
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
func (q *question) value(with []change, before []bool) value {
	v := value{first: len(q.Wants), changes: len(with)}
	for i, yes := range q.serve(with) {
		if yes && !before[i] {
			v.first = min(v.first, i)
			v.milli += q.Wants[i].Milli
		}
	}
	for _, c := range with {
		n := &q.Nodes[c.Node]
		v.cost += n.Cost
		v.whole += n.Whole - n.To[c.Way][0]
	}
	return v
}

// after is what is free on each node after changes.
func (q *question) after(with []change) [][]int {
	size := 0
	for i := range q.Nodes {
		size += len(q.Nodes[i].Free)
	}
	free, flat := make([][]int, len(q.Nodes)), make([]int, 0, size)
	for i := range q.Nodes {
		from := len(flat)
		flat = append(flat, q.Nodes[i].Free...)
		free[i] = flat[from:len(flat):len(flat)]
	}
	for _, c := range with {
		copy(free[c.Node], q.Nodes[c.Node].To[c.Way])
	}
	return free
}

// Serve says which gangs would have places after changes, the first in line first.
func (q *question) serve(with []change) []bool {
	free, served := q.after(with), make([]bool, len(q.Wants))
	for w := range q.Wants {
		_, served[w] = q.put(w, free)
	}
	return served
}

// placed is how many tasks of a gang would have places after changes, behind those that come before it.
func (q *question) placed(w int, with []change) int {
	free := q.after(with)
	for i := range w {
		q.put(i, free)
	}
	n, _ := q.put(w, free)
	return n
}

// put places a gang on GPUs of one model, each task on the node with the least room that is enough. If all find
// a place, they take it; else none does, and n says how many would have, of the model where most would.
func (q *question) put(w int, free [][]int) (n int, ok bool) {
	want := &q.Wants[w]
	total := 0
	for _, s := range want.Sets {
		total += s.Count
	}
	for _, model := range q.known() {
		if q.Left != nil {
			*q.Left -= int64(len(q.Nodes) * len(want.Sets))
		}
		var taken []seat
		placed := 0
		for _, s := range want.Sets {
			left := s.Count
			for _, i := range q.tightest(want, model, s, free) {
				if k := min(left, roomFor(free[i], s)); k > 0 {
					free[i][s.What] -= k * s.Each
					taken, left = append(taken, seat{i, s.What, k * s.Each}), left-k
				}
			}
			placed += s.Count - left
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
func (q *question) tightest(want *want, model string, s taskSet, free [][]int) (list []int) {
	for i := range q.Nodes {
		if q.Nodes[i].Model == model && want.Suits[i] && roomFor(free[i], s) > 0 {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int {
		return cmp.Or(free[a][s.What]-free[b][s.What], slices.Compare(free[a], free[b]))
	})
	return list
}

// seat is what a gang takes of a node.
type seat struct{ node, what, count int }

// roomFor is how many tasks of a set a node takes.
func roomFor(free []int, s taskSet) int {
	if s.Each == 0 {
		return math.MaxInt32
	}
	return max(0, free[s.What]) / s.Each
}

// known lists the models of the nodes.
func (q *question) known() []string {
	if q.models == nil {
		for i := range q.Nodes {
			if m := q.Nodes[i].Model; !slices.Contains(q.models, m) {
				q.models = append(q.models, m)
			}
		}
		slices.Sort(q.models)
	}
	return q.models
}
