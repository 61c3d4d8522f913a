package engine

import (
	"fmt"
	"math"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// nodeMost is how many tasks of a job nodes take, beside what is free there.
type nodeMost struct {
	any    int32     // on every node; 0: no bound
	groups []bounded // as things are now
	of     [][]int32 // by node: the groups that it is in
	within *nodeSet  // the nodes that take any at all; nil: all
}

// bounded is nodes that take so many together.
type bounded struct {
	most  int32
	nodes []int32
}

func (e *Engine) nodeMost(j *cluster.Job) nodeMost {
	m := nodeMost{any: int32(j.PerNode), within: e.sets[j.Nodes]}
	for i := range j.NodeLimits {
		b := bounded{most: int32(j.NodeLimits[i].Tasks)}
		for _, name := range j.NodeLimits[i].Nodes {
			id, ok := e.nodeID[name]
			if !ok {
				continue // checkNodeLimits says so, and the job is refused for it
			}
			for int(id) >= len(m.of) {
				m.of = append(m.of, nil)
			}
			m.of[id] = append(m.of[id], int32(len(m.groups)))
			b.nodes = append(b.nodes, id)
		}
		m.groups = append(m.groups, b)
	}
	return m
}

// bounds is what nodes take of the shape's jobs; nil: whatever fits.
func (s *shape) bounds() *nodeMost {
	if s.most.any == 0 && s.most.groups == nil && s.most.within == nil {
		return nil
	}
	return &s.most
}

// each returns the bound that every node has.
func (m *nodeMost) each() int {
	if m.any > 0 {
		return int(m.any)
	}
	return math.MaxInt
}

// on returns how many tasks a node takes at most as things are now.
func (m *nodeMost) on(node int32) int {
	if m.within != nil && !m.within.in.has(node) {
		return 0
	}
	most := m.each()
	if int(node) < len(m.of) {
		for _, g := range m.of[node] {
			most = min(most, int(m.groups[g].most))
		}
	}
	return most
}

// bounded is how many more tasks a node takes of the job for its own bounds.
func (s *Site) bounded(node int32) int {
	if s.most.within != nil && !s.most.within.in.has(node) {
		return 0
	}
	left := s.most.each()
	if left < math.MaxInt {
		left -= s.tasksOn(func(id int32) bool { return id == node })
	}
	if s.ignoreUsage || int(node) >= len(s.most.of) {
		return max(0, left)
	}
	for _, g := range s.most.of[node] {
		b := &s.most.groups[g]
		if left = min(left, int(b.most)); left <= 0 {
			return 0
		}
		left = min(left, int(b.most)-s.tasksOn(func(id int32) bool {
			return int(id) < len(s.most.of) && has(s.most.of[id], g)
		}))
	}
	return max(0, left)
}

// tasksOn counts the tasks that the job has on some nodes so far.
func (s *Site) tasksOn(among func(node int32) bool) (n int) {
	for _, list := range [][]inventory.Alloc{s.allocs, s.has} {
		for i := range list {
			if among(list[i].Node) {
				n += int(list[i].Tasks)
			}
		}
	}
	return n
}

func has(list []int32, v int32) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// checkNodeLimits says what is wrong with bounds of nodes.
func (e *Engine) checkNodeLimits(limits []cluster.NodeLimit) string {
	for i := range limits {
		l := &limits[i]
		if len(l.Nodes) == 0 || l.Tasks < 0 || l.Tasks > cluster.MaxTasks {
			return fmt.Sprintf("node limits: %d tasks on %d nodes; between 0 and %d on at least one are possible", l.Tasks, len(l.Nodes), cluster.MaxTasks)
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
