package engine

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// A job that names a set of nodes (Job.Nodes) runs nowhere else, and is refused if it can never be placed within it.
// An event names the set before the first job does. A set never changes, so shapes can refer to it for good, and there
// can be any number of sets: unlike partitions they do not divide the kinds of node.

// nodeBits is a set of nodes by number.
type nodeBits []uint64

func (b nodeBits) has(node int32) bool {
	w := int(node >> 6)
	return w < len(b) && b[w]>>(node&63)&1 == 1
}

func (b *nodeBits) add(node int32) {
	for int(node>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[node>>6] |= 1 << (node & 63)
}

// nodeSet is a set of nodes that jobs can name.
type nodeSet struct {
	nodes   []int32 // as they joined
	in      nodeBits
	classes classSet // of these nodes
	order   []int32  // ... as the first node of each joined
}

// nameNodes makes a set of nodes known. Nodes that the engine does not have are left out.
func (e *Engine) nameNodes(spec *cluster.NodeSet) {
	if spec == nil || spec.Name == "" || e.sets[spec.Name] != nil {
		return // a repeated report
	}
	set := &nodeSet{}
	for _, name := range spec.Nodes {
		id, ok := e.nodeID[name]
		if !ok || set.in.has(id) {
			continue
		}
		set.nodes = append(set.nodes, id)
		set.in.add(id)
	}
	slices.Sort(set.nodes)
	for _, id := range set.nodes {
		if class := e.st.nodes[id].class; !set.classes.has(class) {
			set.classes.add(class)
			set.order = append(set.order, class)
		}
	}
	e.sets[spec.Name] = set
}

// nameAll makes several sets known.
func (e *Engine) nameAll(sets []cluster.NodeSet) {
	for i := range sets {
		e.nameNodes(&sets[i])
	}
}

// checkNodes says what is wrong with the set of nodes that a job names.
func (e *Engine) checkNodes(s *cluster.Job) string {
	if s.Nodes != "" && e.sets[s.Nodes] == nil {
		return fmt.Sprintf("node set %q: no set has that name", s.Nodes)
	}
	return ""
}

// nodeSets lists the sets that jobs name which are not done, in the order of these jobs.
func (e *Engine) nodeSets() (list []cluster.NodeSet) {
	if len(e.sets) == 0 {
		return nil
	}
	listed := map[string]bool{} // looked up only
	for _, j := range e.jobs {
		if j == nil || j.state == Done || listed[j.spec.Nodes] {
			continue
		}
		set := e.sets[j.spec.Nodes]
		if set == nil {
			continue
		}
		listed[j.spec.Nodes] = true
		spec := cluster.NodeSet{Name: j.spec.Nodes}
		for _, id := range set.nodes {
			spec.Nodes = append(spec.Nodes, e.st.nodes[id].spec.Name)
		}
		list = append(list, spec)
	}
	return list
}

// reaches reports whether the shape's jobs may be on a node as far as their set of nodes goes.
func (s *shape) reaches(node int32) bool { return s.most.within == nil || s.most.within.in.has(node) }

// reachesClass reports whether a node of the class is in the shape's set.
func (s *shape) reachesClass(class int32) bool {
	return s.most.within == nil || s.most.within.classes.has(class)
}

// classesOf lists the classes of the shape's set of nodes in their order, without a set all.
func (e *Engine) classesOf(s *shape) []int32 {
	if s.most.within != nil {
		return s.most.within.order
	}
	all := make([]int32, len(e.st.classes))
	for ci := range all {
		all[ci] = int32(ci)
	}
	return all
}

// suitableGPUs counts the GPUs of the nodes that the shape competes for.
func (e *Engine) suitableGPUs(s *shape) (n int) {
	for ci := range e.st.classes {
		c := &e.st.classes[ci]
		switch {
		case !s.any.has(int32(ci)):
		case s.most.within == nil:
			n += c.gpus * len(c.nodes)
		default:
			for _, id := range c.nodes {
				if s.reaches(id) {
					n += c.gpus
				}
			}
		}
	}
	return n
}

// meets reports whether the shape competes for a node that a reservation's job competes for, too.
func (e *Engine) meets(s *shape, r *reservation) bool {
	if s.any.minus(&r.any) == s.any {
		return false
	}
	set := s.most.within
	if set == nil {
		set = r.within
	}
	if set == nil {
		return true
	}
	for _, id := range set.nodes {
		class := e.st.nodes[id].class
		if s.any.has(class) && r.any.has(class) && s.reaches(id) && (r.within == nil || r.within.in.has(id)) {
			return true
		}
	}
	return false
}

// blockNodes closes the nodes of a blocked shape's set to all that come after it (strict order).
func (e *Engine) blockNodes(p *passState, s *shape) {
	for _, id := range s.most.within.nodes {
		if s.any.has(e.st.nodes[id].class) {
			p.shut.add(id)
		}
	}
}

// shutOut reports whether all nodes of the shape's set are closed to it in this pass.
func (e *Engine) shutOut(s *shape) bool {
	set := s.most.within
	if set == nil || len(e.ps.shut) == 0 {
		return false
	}
	for _, id := range set.nodes {
		class := e.st.nodes[id].class
		if s.any.has(class) && !e.ps.shut.has(id) && !e.blockedBy.has(class) {
			return false
		}
	}
	return true
}
