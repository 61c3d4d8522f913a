// Package victims finds which gangs leave so that another starts that is kept off nodes by their pods, and not for want
// of room: by anti-affinity, its own or theirs, a host port, an even spread, what a node attaches, how many pods it
// takes. It looks at the world as if some were gone, first a few, then more, and asks whether the gang starts then.
package victims

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/fit"
)

// Gang is one that runs, and would leave for the gang that waits.
type Gang struct {
	Job     cluster.JobID
	Tier    cluster.Tier
	Started cluster.Time
	GPUs    int
	Pods    []*fit.Neighbour // that have a place
}

// Question is for which gang others may leave.
type Question struct {
	World  *fit.World
	Job    *cluster.Job // of the gang that waits
	Ask    fit.Ask      // for its pods, which are not about to be bound
	Search *areas.Search
	Gangs  []*Gang // that would leave
	// Starts says how many places on which nodes the gang gets in the next step, as this job, if other jobs leave
	// before; nil: none.
	Starts func(job *cluster.Job, gone []cluster.JobID) map[string]int
}

// Answer is who leaves.
type Answer struct {
	Gone []*Gang
	Job  *cluster.Job // of the gang that waits, with what nodes take of it then
}

const (
	mostTries = 4  // sets of victims for a gang at a time: each is a step of a second engine
	mostLooks = 32 // how often a gang is tried without one of its victims
)

// Find says which gangs leave; nil: none, because the gang would not start or is kept off by something else.
func (q *Question) Find() *Answer {
	then := q.without(q.Gangs)
	if then.Why != "" || len(then.Rivals) > 0 || then.ToldTo(q.Job) {
		return nil
	}
	b := q.blame()
	for _, s := range b.sets(opened(q.Ask.Nodes, q.Job, &then), len(q.Ask.Pods) == 1) {
		if a := q.try(s.list, b); a != nil {
			return a
		}
	}
	return nil
}

// without is what nodes take of the gang once others are gone.
func (q *Question) without(gone []*Gang) (l fit.Limits) {
	q.World.Without(podsOf(gone), func() { l = q.limits() })
	return l
}

// limits is what nodes take of the gang at the moment.
func (q *Question) limits() fit.Limits {
	return q.Search.Confine(q.World.LimitsNow(q.Ask), q.Ask.Nodes, q.World)
}

func podsOf(list []*Gang) (pods []*fit.Neighbour) {
	for _, g := range list {
		pods = append(pods, g.Pods...)
	}
	return pods
}

// try lets gangs leave if the other starts then; those without which it starts as well, stay. nil: it would not start.
func (q *Question) try(gone []*Gang, b *blame) *Answer {
	job, on := q.ifGone(gone)
	if on == nil {
		return nil
	}
	near := newSet() // on the nodes that it gets
	for name := range on {
		near.add(b.on(name).list...)
	}
	less := slices.DeleteFunc(slices.Clone(gone), func(g *Gang) bool { return !near.has[g] })
	less = spare(less, func(gone []*Gang) bool { return q.allows(gone, on) })
	if len(less) > 0 && len(less) < len(gone) {
		if j, at := q.ifGone(less); at != nil {
			job, gone = j, less
		}
	}
	return &Answer{gone, job}
}

// ifGone is the gang's job if others leave, and on which nodes it has its places then; nil: it has none.
func (q *Question) ifGone(gone []*Gang) (job *cluster.Job, on map[string]int) {
	l := q.without(gone)
	if l.Why != "" || len(l.Rivals) > 0 {
		return nil, nil
	}
	then := *q.Job
	then.PerNode, then.NodeLimits = l.Each, l.Nodes
	ids := make([]cluster.JobID, len(gone))
	for i, g := range gone {
		ids[i] = g.Job
	}
	return &then, q.Starts(&then, ids)
}

// allows reports whether the gang may be on some nodes if others are gone.
func (q *Question) allows(gone []*Gang, on map[string]int) (ok bool) {
	q.World.Without(podsOf(gone), func() {
		l, binding := q.limits(), q.Ask
		binding.Careful, binding.Binding = false, true
		ok = q.World.Verify(&l, &binding, on) == ""
	})
	return ok
}

// spare takes those out of a list that need not leave, the most valuable first: they are the last. Where many leave, it
// tries many at once, so that a few looks suffice.
func spare(gone []*Gang, enough func([]*Gang) bool) []*Gang {
	looks := 0
	for size := (len(gone) + 7) / 8; size > 0; size /= 2 {
		for end := len(gone); end > 0 && looks < mostLooks; end -= size {
			looks++
			if fewer := slices.Delete(slices.Clone(gone), max(0, end-size), end); enough(fewer) {
				gone = fewer
			}
		}
	}
	return gone
}

// opened lists the nodes that take more of a job by other limits.
func opened(order []string, j *cluster.Job, then *fit.Limits) (names []string) {
	was, is := mostOn(j.NodeLimits), mostOn(then.Nodes)
	for _, name := range order {
		if x, has := was[name]; has {
			if y, still := is[name]; !still || y > x {
				names = append(names, name)
			}
		}
	}
	return names
}

// mostOn is how many tasks nodes take at most, those that are bounded.
func mostOn(list []cluster.NodeLimit) map[string]int {
	most := map[string]int{}
	for i := range list {
		for _, name := range list[i].Nodes {
			if x, ok := most[name]; !ok || list[i].Tasks < x {
				most[name] = list[i].Tasks
			}
		}
	}
	return most
}

// set is gangs that leave together.
type set struct {
	list []*Gang
	has  map[*Gang]bool
	gpus int
}

func newSet() *set { return &set{has: map[*Gang]bool{}} }

func (s *set) add(list ...*Gang) {
	for _, g := range list {
		if !s.has[g] {
			s.has[g], s.list = true, append(s.list, g)
			s.gpus += g.GPUs
		}
	}
}

// worst is the highest tier among them.
func (s *set) worst() cluster.Tier {
	tier := cluster.BestEffort
	for _, g := range s.list {
		tier = min(tier, g.Tier)
	}
	return tier
}

// sorted puts those first that are easiest done without.
func (s *set) sorted() *set {
	slices.SortFunc(s.list, func(a, b *Gang) int {
		return cmp.Or(cmp.Compare(b.Tier, a.Tier), cmp.Compare(b.Started, a.Started), cmp.Compare(b.Job, a.Job))
	})
	return s
}

// blame is the gangs whose pods can be what keeps others off nodes: by label and value of the nodes, or for one node by
// "" and its name.
type blame struct {
	world *fit.World
	keys  []string // the labels
	by    map[[2]string][]*Gang
}

func (q *Question) blame() *blame {
	b := &blame{world: q.World, by: map[[2]string][]*Gang{}}
	var kinds []*fit.Neighbour // pods of the gang that are mostly alike: one of each kind
	known := map[string]bool{}
	for _, p := range q.Ask.Pods {
		if !known[p.Around] {
			known[p.Around], kinds = true, append(kinds, p)
		}
	}
	for _, g := range q.Gangs {
		for _, other := range g.Pods {
			for _, p := range kinds {
				for _, key := range q.World.Blocks(p, other) {
					b.add(key, other.Where, g)
				}
			}
		}
	}
	return b
}

func (b *blame) add(key, node string, g *Gang) {
	at := [2]string{"", node}
	if key != "" {
		value, ok := b.world.Domain(node, key)
		if !ok {
			return
		}
		if at = [2]string{key, value}; !slices.Contains(b.keys, key) {
			b.keys = append(b.keys, key)
		}
	}
	if !slices.Contains(b.by[at], g) {
		b.by[at] = append(b.by[at], g)
	}
}

// on is the gangs that may be in the way on a node.
func (b *blame) on(name string) *set {
	s := newSet()
	s.add(b.by[[2]string{"", name}]...)
	for _, key := range b.keys {
		if value, ok := b.world.Domain(name, key); ok {
			s.add(b.by[[2]string{key, value}]...)
		}
	}
	return s.sorted()
}

// sets lists the gangs that may be in the way on nodes that would open: for a single pod those of one node, the least
// harmful first; for a gang those of more and more nodes.
func (b *blame) sets(nodes []string, single bool) (list []*set) {
	for _, name := range nodes {
		s := b.on(name)
		if len(s.list) > 0 && !slices.ContainsFunc(list, func(o *set) bool { return slices.Equal(o.list, s.list) }) {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b *set) int {
		return cmp.Or(cmp.Compare(b.worst(), a.worst()), cmp.Compare(a.gpus, b.gpus),
			cmp.Compare(len(a.list), len(b.list)))
	})
	if single {
		return list[:min(len(list), mostTries)]
	}
	var all []*set
	for n := 1; len(list) > 0 && len(all) < mostTries; n *= 4 {
		if len(all)+1 == mostTries {
			n = len(list)
		}
		u := newSet()
		for _, s := range list[:min(n, len(list))] {
			u.add(s.list...)
		}
		if all = append(all, u.sorted()); n >= len(list) {
			break
		}
	}
	return all
}
