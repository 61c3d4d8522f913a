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

// NodeSet is a named set of nodes that jobs can refer to (Job.Nodes). Its nodes never change, so
// shapes can keep references, and there can be any number of sets: unlike partitions they do not
// divide the classes of nodes.
type NodeSet struct {
	Nodes   []int32 // in the order in which they joined
	In      NodeBits
	Classes inventory.ClassSet // of these nodes
	order   []int32            // ... in the order of their first nodes
}

// Name adds a set of nodes, before the first job refers to it. Unknown nodes are left out.
func (t *Table) Name(spec *cluster.NodeSet) {
	if spec == nil || spec.Name == "" || t.sets[spec.Name] != nil {
		return // already reported
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

// classify sets the classes of a set's nodes.
func (t *Table) classify(set *NodeSet) {
	set.Classes, set.order = inventory.ClassSet{}, nil
	for _, id := range set.Nodes {
		if class := t.st.Nodes()[id].Class(); !set.Classes.Has(class) {
			set.Classes.Add(class)
			set.order = append(set.order, class)
		}
	}
}

// Reclassify makes the classes on which jobs can run, and what can never run, be computed again
// after a node has changed its class.
func (t *Table) Reclassify() {
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		t.classify(t.sets[name])
	}
	t.Recompute()
	t.Judge()
}

// NameAll adds several sets.
func (t *Table) NameAll(sets []cluster.NodeSet) {
	for i := range sets {
		t.Name(&sets[i])
	}
}

// HasNodeSets reports whether there is any named set of nodes.
func (t *Table) HasNodeSets() bool { return len(t.sets) > 0 }

// NodeSet returns the set with a name; nil: none.
func (t *Table) NodeSet(name string) *NodeSet { return t.sets[name] }

// SetsNamed describes the sets that have these names, each once, in their order.
func (t *Table) SetsNamed(names []string) (list []cluster.NodeSet) {
	listed := map[string]bool{} // looked up only
	for _, name := range names {
		set := t.sets[name]
		if set == nil || listed[name] {
			continue
		}
		listed[name] = true
		spec := cluster.NodeSet{Name: name}
		for _, id := range set.Nodes {
			spec.Nodes = append(spec.Nodes, t.st.Nodes()[id].Spec().Name)
		}
		list = append(list, spec)
	}
	return list
}

// Reaches reports whether the set of nodes of the shape's jobs includes a node.
func (s *Shape) Reaches(node int32) bool { return s.Most.Within == nil || s.Most.Within.In.Has(node) }

// ReachesClass reports whether a node of the class is in the shape's set.
func (s *Shape) ReachesClass(class int32) bool {
	return s.Most.Within == nil || s.Most.Within.Classes.Has(class)
}

// classesOf lists the classes of the shape's set of nodes in their order; without a set, all
// classes.
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
