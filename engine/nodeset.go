package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/shape"
)

// A job that names a set of nodes (Job.Nodes) runs nowhere else, and is refused if it can never be placed within it.

// nodeSets lists the sets that jobs name which are not done, in the order of these jobs.
func (e *Engine) nodeSets() (list []cluster.NodeSet) {
	if !e.shapes.HasNodeSets() {
		return nil
	}
	listed := map[string]bool{} // looked up only
	for _, j := range e.jobs {
		if j == nil || j.State == Done || listed[j.Spec.Nodes] {
			continue
		}
		set := e.shapes.NodeSet(j.Spec.Nodes)
		if set == nil {
			continue
		}
		listed[j.Spec.Nodes] = true
		spec := cluster.NodeSet{Name: j.Spec.Nodes}
		for _, id := range set.Nodes {
			spec.Nodes = append(spec.Nodes, e.st.Nodes()[id].Spec().Name)
		}
		list = append(list, spec)
	}
	return list
}

// blockNodes closes the nodes of a blocked shape's set to all that come after it (strict order).
func (e *Engine) blockNodes(p *passState, s *shape.Shape) {
	for _, id := range s.Most.Within.Nodes {
		if s.Any.Has(e.st.Nodes()[id].Class()) {
			p.shut.Add(id)
		}
	}
}

// shutOut reports whether all nodes of the shape's set are closed to it in this pass.
func (e *Engine) shutOut(p *passState, s *shape.Shape) bool {
	set := s.Most.Within
	if set == nil || len(p.shut) == 0 {
		return false
	}
	for _, id := range set.Nodes {
		class := e.st.Nodes()[id].Class()
		if s.Any.Has(class) && !p.shut.Has(id) && !p.blocked.Has(class) {
			return false
		}
	}
	return true
}
