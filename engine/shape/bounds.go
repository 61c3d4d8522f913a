package shape

import (
	"math"

	"github.com/muster-gpu/muster/cluster"
)

// Bounds is how many tasks of a job nodes take, beside what is free there.
type Bounds struct {
	Any    int32     // on every node; 0: no bound
	Groups []bounded // as things are now
	Of     [][]int32 // by node: the groups that it is in
	Within *NodeSet  // the nodes that take any at all; nil: all
}

// bounded is nodes that take so many together.
type bounded struct {
	Most  int32
	nodes []int32
}

// Bounds is the bounds of a job.
func (t *Table) nodeMost(j *cluster.Job) Bounds {
	m := Bounds{Any: int32(j.PerNode), Within: t.sets[j.Nodes]}
	for i := range j.NodeLimits {
		b := bounded{Most: int32(j.NodeLimits[i].Tasks)}
		for _, name := range j.NodeLimits[i].Nodes {
			id, ok := t.nodes[name]
			if !ok {
				continue // checkNodeLimits says so, and the job is refused for it
			}
			for int(id) >= len(m.Of) {
				m.Of = append(m.Of, nil)
			}
			m.Of[id] = append(m.Of[id], int32(len(m.Groups)))
			b.nodes = append(b.nodes, id)
		}
		m.Groups = append(m.Groups, b)
	}
	return m
}

// NodeBounds is what nodes take of the shape's jobs; nil: whatever fits.
func (s *Shape) NodeBounds() *Bounds {
	if s.Most.Any == 0 && s.Most.Groups == nil && s.Most.Within == nil {
		return nil
	}
	return &s.Most
}

// Each returns the bound that every node has.
func (m *Bounds) Each() int {
	if m.Any > 0 {
		return int(m.Any)
	}
	return math.MaxInt
}

// On returns how many tasks a node takes at most as things are now.
func (m *Bounds) On(node int32) int {
	if m.Within != nil && !m.Within.In.Has(node) {
		return 0
	}
	most := m.Each()
	if int(node) < len(m.Of) {
		for _, g := range m.Of[node] {
			most = min(most, int(m.Groups[g].Most))
		}
	}
	return most
}
