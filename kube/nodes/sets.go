package nodes

import (
	"maps"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
)

// Sets are the sets of nodes that suit pods, of which there can be any number: a change of a node makes other sets and
// changes none.
type Sets struct {
	room  *Room
	known map[string]*Set // by what decides which nodes suit
	// log is the numbers of nodes that changed, one after the other, which sets may have to follow.
	log   []int
	named map[string][]string // the sets that the engine knows, by name
	dirty bool                // the set of nodes of a gang that waits may be another
}

func newSets(r *Room) Sets {
	return Sets{room: r, known: map[string]*Set{}, named: map[string][]string{}}
}

func (a *Sets) begin() { a.known, a.log = map[string]*Set{}, nil }

// Set is the nodes on which all of some pods may run.
type Set struct {
	*fit.Set
	upTo int // changes of nodes (Sets.log) that it knows of
}

// For finds the nodes that suit some pods; key is what decides that, and asked yields one of each kind of them.
func (a *Sets) For(key string, asked func() []fit.Pod) *Set {
	s := a.known[key]
	if s == nil {
		s = &Set{fit.NewSet(asked()), len(a.log)}
		a.known[key] = s
	}
	a.BringUp(s)
	return s
}

// BringUp brings a set up to date with the nodes.
func (a *Sets) BringUp(s *Set) {
	r := a.room
	for ; s.upTo < len(a.log); s.upTo++ {
		if i := a.log[s.upTo]; i < s.Len() {
			s.Judge(r.opt.Suits, i, r.Object(r.order[i]))
		}
	}
	for i := s.Len(); i < len(r.order); i++ {
		s.Judge(r.opt.Suits, i, r.Object(r.order[i]))
	}
	if s.SumUp(r.order) && s.Why != "" && s.Wants() {
		s.Why += "; there are " + r.opt.GPUs.Offers(r.Objects())
	}
}

// turned notes that a node of the engine may suit other pods than before.
func (a *Sets) turned(name string) {
	if i, ok := a.room.number[name]; ok {
		a.log, a.dirty = append(a.log, i), true
	}
}

// Dirty reports whether the set of nodes of a gang that waits may be another than its job names.
func (a *Sets) Dirty() bool { return a.dirty }

// Seen notes that the sets of all gangs that wait were looked at.
func (a *Sets) Seen() { a.dirty = false }

// Named are the sets that the engine knows: names of nodes, by the name of the set. It must not be changed.
func (a *Sets) Named() map[string][]string { return a.named }

// NameAgain forgets which sets the engine knows: the next one knows none. All that wait are looked at then.
func (a *Sets) NameAgain() { a.named, a.dirty = map[string][]string{}, true }

// Naming is the event by which the engine learns of a set that a job is to name; nil: it knows it, or needs not.
func (a *Sets) Naming(s *Set) []engine.Event {
	name := s.Within()
	if _, known := a.named[name]; known || name == "" {
		return nil
	}
	return []engine.Event{{Type: engine.NodesNamed, Set: &cluster.NodeSet{Name: name, Nodes: s.Names}}}
}

// Name makes a set known to the engine.
func (a *Sets) Name(s *Set) []engine.Event {
	events := a.Naming(s)
	if len(events) > 0 {
		a.named[s.Name] = s.Names
	}
	return events
}

// Keep forgets all sets but some, and the changes of nodes, of which these know then.
func (a *Sets) Keep(used map[*Set]bool) {
	maps.DeleteFunc(a.known, func(_ string, s *Set) bool { return !used[s] })
	for _, s := range a.known {
		a.BringUp(s)
		s.upTo = 0
	}
	a.log = nil
}
