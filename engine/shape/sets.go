package shape

import (
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// NodeBits is a set of nodes by number.
type NodeBits []uint64

// Has reports whether a node is in it.
func (b NodeBits) Has(node int32) bool {
	w := int(node >> 6)
	return w < len(b) && b[w]>>(node&63)&1 == 1
}

// Add adds a node.
func (b *NodeBits) Add(node int32) {
	for int(node>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[node>>6] |= 1 << (node & 63)
}

// NodeSet is a set of nodes that jobs can name (Job.Nodes). Its nodes never change, so shapes can refer to it for good,
// and there can be any number of sets: unlike partitions they do not divide the classes of nodes.
type NodeSet struct {
	Nodes   []int32 // as they joined
	In      NodeBits
	Classes inventory.ClassSet // of these nodes
	order   []int32            // ... as the first node of each joined
}

// Name makes a set of nodes known, before the first job names it. Nodes that there are not are left out.
func (t *Table) Name(spec *cluster.NodeSet) {
	if spec == nil || spec.Name == "" || t.sets[spec.Name] != nil {
		return // a repeated report
	}
	set := &NodeSet{}
	for _, name := range spec.Nodes {
		id, ok := t.nodes[name]
		if !ok || set.In.Has(id) {
			continue
		}
		set.Nodes = append(set.Nodes, id)
		set.In.Add(id)
	}
	slices.Sort(set.Nodes)
	t.classify(set)
	if t.sets == nil {
		t.sets = map[string]*NodeSet{}
	}
	t.sets[spec.Name] = set
}

// classify notes of which classes a set's nodes are.
func (t *Table) classify(set *NodeSet) {
	set.Classes, set.order = inventory.ClassSet{}, nil
	for _, id := range set.Nodes {
		if class := t.st.Nodes()[id].Class(); !set.Classes.Has(class) {
			set.Classes.Add(class)
			set.order = append(set.order, class)
		}
	}
}

// Reclassify has the classes on which jobs can run be computed again, and what can never run be decided again: a node
// is of another class.
func (t *Table) Reclassify() {
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		t.classify(t.sets[name])
	}
	t.Recompute()
	t.Judge()
}

// NameAll makes several sets known.
func (t *Table) NameAll(sets []cluster.NodeSet) {
	for i := range sets {
		t.Name(&sets[i])
	}
}

// HasNodeSets reports whether any set of nodes has a name.
func (t *Table) HasNodeSets() bool { return len(t.sets) > 0 }

// NodeSet returns the set that has a name; nil: none has it.
func (t *Table) NodeSet(name string) *NodeSet { return t.sets[name] }

// Reaches reports whether the shape's jobs may be on a node as far as their set of nodes goes.
func (s *Shape) Reaches(node int32) bool { return s.Most.Within == nil || s.Most.Within.In.Has(node) }

// ReachesClass reports whether a node of the class is in the shape's set.
func (s *Shape) ReachesClass(class int32) bool {
	return s.Most.Within == nil || s.Most.Within.Classes.Has(class)
}

// classesOf lists the classes of the shape's set of nodes in their order; without a set all.
func (t *Table) classesOf(s *Shape) []int32 {
	if s.Most.Within != nil {
		return s.Most.Within.order
	}
	all := make([]int32, len(t.st.Classes()))
	for ci := range all {
		all[ci] = int32(ci)
	}
	return all
}
