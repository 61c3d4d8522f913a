package engine

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/shape"
)

// A job that names a set of nodes (Job.Nodes) runs nowhere else, and is refused if it can never be placed within it.

// checkNodes says what is wrong with the set of nodes that a job names.
func (e *Engine) checkNodes(s *cluster.Job) string {
	if s.Nodes != "" && e.shapes.NodeSet(s.Nodes) == nil {
		return fmt.Sprintf("node set %q: no set has that name", s.Nodes)
	}
	return ""
}

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

// suitableGPUs counts the GPUs of the nodes that the shape competes for.
func (e *Engine) suitableGPUs(s *shape.Shape) (n int) {
	for ci := range e.st.Classes() {
		c := &e.st.Classes()[ci]
		switch {
		case !s.Any.Has(int32(ci)):
		case s.Most.Within == nil:
			n += c.GPUs() * len(c.Nodes())
		default:
			for _, id := range c.Nodes() {
				if s.Reaches(id) {
					n += c.GPUs()
				}
			}
		}
	}
	return n
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

// checkNodeLimits says what is wrong with bounds of nodes.
func (e *Engine) checkNodeLimits(limits []cluster.NodeLimit) string {
	for i := range limits {
		l := &limits[i]
		if len(l.Nodes) == 0 || l.Tasks < 0 || l.Tasks > cluster.MaxTasks {
			return fmt.Sprintf("node limits: %d tasks on %d nodes; between 0 and %d on at least one are possible",
				l.Tasks, len(l.Nodes), cluster.MaxTasks)
		}
		for _, name := range l.Nodes {
			if _, ok := e.nodeID[name]; !ok {
				var names []string
				for k := range e.st.Nodes() {
					names = append(names, e.st.Nodes()[k].Spec().Name)
				}
				return "node limits: " + cluster.Unknown("node", name, names).Error()
			}
		}
	}
	return ""
}
