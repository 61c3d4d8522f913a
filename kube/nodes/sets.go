package nodes

import (
	"maps"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
)

// nodeSets are the sets of nodes that suit pods, of which there can be any number: a change of a node makes other sets
// and changes none.
type nodeSets struct {
	known map[string]*Set // by what decides which nodes suit
	// log is the numbers of nodes that changed, one after the other, which sets may have to follow.
	log   []int
	named map[string][]string // the sets that the engine knows, by name
	dirty bool                // the set of nodes of a gang that waits may be another
}

func newSets() nodeSets { return nodeSets{known: map[string]*Set{}, named: map[string][]string{}} }

func (s *nodeSets) begin() { s.known, s.log = map[string]*Set{}, nil }

// Set is the nodes on which all of some pods may run.
type Set struct {
	*fit.Set
	upTo int // changes of nodes (nodeSets.log) that it knows of
}

// SetFor finds the nodes that suit some pods; key is what decides that, and asked yields one of each kind of them.
func (r *Room) SetFor(key string, asked func() []fit.Pod) *Set {
	s := r.sets.known[key]
	if s == nil {
		s = &Set{fit.NewSet(asked()), len(r.sets.log)}
		r.sets.known[key] = s
	}
	r.BringUp(s)
	return s
}

// BringUp brings a set up to date with the nodes.
func (r *Room) BringUp(s *Set) {
	for ; s.upTo < len(r.sets.log); s.upTo++ {
		if i := r.sets.log[s.upTo]; i < s.Len() {
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

// suitsOthers notes that other pods may suit a node of the engine than before.
func (r *Room) suitsOthers(name string) {
	if i, ok := r.number[name]; ok {
		r.sets.log, r.sets.dirty = append(r.sets.log, i), true
	}
}

// SetsDirty reports whether the set of nodes of a gang that waits may be another than its job names.
func (r *Room) SetsDirty() bool { return r.sets.dirty }

// SetsSeen notes that the sets of all gangs that wait were looked at.
func (r *Room) SetsSeen() { r.sets.dirty = false }

// Named are the sets that the engine knows: names of nodes, by the name of the set. It must not be changed.
func (r *Room) Named() map[string][]string { return r.sets.named }

// NameAgain forgets which sets the engine knows: the next one knows none. All that wait are looked at then.
func (r *Room) NameAgain() { r.sets.named, r.sets.dirty = map[string][]string{}, true }

// Naming is the event by which the engine learns of a set that a job is to name; nil: it knows it, or needs not.
func (r *Room) Naming(s *Set) []engine.Event {
	name := s.Within()
	if _, known := r.sets.named[name]; known || name == "" {
		return nil
	}
	return []engine.Event{{Type: engine.NodesNamed, Set: &cluster.NodeSet{Name: name, Nodes: s.Names}}}
}

// Name makes a set known to the engine.
func (r *Room) Name(s *Set) []engine.Event {
	events := r.Naming(s)
	if len(events) > 0 {
		r.sets.named[s.Name] = s.Names
	}
	return events
}

// KeepSets forgets all sets but some, and the changes of nodes, of which these know then.
func (r *Room) KeepSets(used map[*Set]bool) {
	maps.DeleteFunc(r.sets.known, func(_ string, s *Set) bool { return !used[s] })
	for _, s := range r.sets.known {
		r.BringUp(s)
		s.upTo = 0
	}
	r.sets.log = nil
}
