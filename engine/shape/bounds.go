package shape

import (
	"math"

	"github.com/muster-gpu/muster/cluster"
)

// Bounds is the limits on the number of a job's tasks per node, besides what is free there.
type Bounds struct {
	Any    int32     // on every node; 0: no bound
	Groups []bounded // current limits
	Of     [][]int32 // by node: the groups that it belongs to
	Within *NodeSet  // the only nodes that the job may use; nil: all
}

// bounded is nodes with a joint limit on tasks.
type bounded struct {
	Most  int32
	nodes []int32
}

// Bounds returns the bounds of a job.
func (t *Table) nodeMost(j *cluster.Job) Bounds {
	m := Bounds{Any: int32(j.PerNode), Within: t.sets[j.Nodes]}
	for i := range j.NodeLimits {
		b := bounded{Most: int32(j.NodeLimits[i].Tasks)}
		for _, name := range j.NodeLimits[i].Nodes {
			id, ok := t.nodes[name]
			if !ok {
				continue // the job is refused by checkNodeLimits
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

// NodeBounds is the bounds of the shape's jobs; nil: none.
func (s *Shape) NodeBounds() *Bounds {
	if s.Most.Any == 0 && s.Most.Groups == nil && s.Most.Within == nil {
		return nil
	}
	return &s.Most
}

// Each returns the bound of every single node.
func (m *Bounds) Each() int {
	if m.Any > 0 {
		return int(m.Any)
	}
	return math.MaxInt
}

// On returns the current limit on tasks on a node.
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
