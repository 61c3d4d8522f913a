package quota

import (
	"fmt"
	"math"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// Milli is an amount in milli-GPU.
type Milli = cluster.Milli

// Root is the index of the root: the whole cluster.
const Root = 0

// Boundless is the result of Available where nothing is limited. It is far below the overflow of
// int64, so callers may add to it.
const Boundless Milli = math.MaxInt64 / 4

// node is a queue with its settings, their current amounts, and its usage.
//
// The names follow Kueue's resource_node.go. What a parent sees of a child is
// only what the child may lend (subtree-local) and the usage above local.
type node struct {
	spec     cluster.Queue
	parent   int // -1: the root
	depth    int
	children []int
	path     []int // root first, itself last

	// Current amounts, set by rebuild from spec, windows and capacity.
	set       Milli // the queue's own guarantee; 0 on a group: none of its own
	guarantee Milli // of the whole subtree: set, otherwise the sum of the children's
	limit     Milli // cluster.Unlimited: none
	reserve   Milli // at most guarantee
	weight    int64 // thousandths, positive
	sumG      Milli // the children's guarantees
	sumSeen   Milli // the children's quota as seen from here
	subtree   Milli // quota visible at this level
	local     Milli // the part of it that is never lent

	// Usage.
	used Milli
	crit Milli // the part of used by the critical tier
	held Milli // kept idle for the critical tier here and below
	occ  Milli // use at this level: a leaf's used + held, a group's sum of bubbles
}

// bubble is what the parent sees as used.
func (n *node) bubble() Milli { return max(0, n.occ-n.local) }

// fill returns the change of a leaf's hold if critical jobs use m more: they take the idle reserve
// first.
func (n *node) fill(m Milli, critical bool) Milli {
	if !critical || len(n.children) > 0 {
		return 0
	}
	return max(0, n.reserve-n.crit-m) - n.held
}

// Tree is the queue tree with current usage. Amounts are milli-GPU. Node 0 is
// the root; parents come before children, children in the order of the spec.
// Reading is safe for several readers; SetCapacity, Apply and Charge write.
type Tree struct {
	nodes    []node
	index    map[string]int // looked up, never iterated
	capacity Milli
	open     bool // no queues in the spec: everything is allowed
}

// New builds the tree of a spec's queues. Capacity is the milli-GPU of the cluster;
// cluster.Unlimited means that it is not known yet: guarantees are then not checked against it, and
// nothing is available before SetCapacity. Without queues the tree has one leaf, "default", where
// everything is allowed.
//
// Windows take effect from the first Apply on.
func New(queues []cluster.Queue, capacity Milli) (*Tree, error) {
	open := len(queues) == 0
	if open {
		queues = []cluster.Queue{{Name: "default", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
	}
	t := &Tree{open: open, index: make(map[string]int, len(queues))}
	if err := t.build(queues); err != nil {
		return nil, err
	}
	t.capacity = max(0, capacity)
	if err := t.validate(capacity); err != nil {
		return nil, err
	}
	for q := 1; q < len(t.nodes); q++ {
		t.nodes[q].set, t.nodes[q].limit = t.nodes[q].spec.Guarantee, t.nodes[q].spec.Limit
	}
	t.rebuild()
	return t, nil
}

// build numbers the queues in preorder.
func (t *Tree) build(queues []cluster.Queue) error {
	names := make([]string, len(queues))
	at := make(map[string]int, len(queues))
	for i := range queues {
		name := queues[i].Name
		if name == "" {
			return fmt.Errorf("queue number %d has no name", i+1)
		}
		if _, dup := at[name]; dup {
			return fmt.Errorf("queue %q is defined twice", name)
		}
		names[i], at[name] = name, i
	}
	below := make([][]int, len(queues)+1) // the last entry: children of the root
	for i := range queues {
		p := len(queues)
		if name := queues[i].Parent; name != "" {
			var ok bool
			if p, ok = at[name]; !ok {
				return fmt.Errorf("queue %q: %w", queues[i].Name, cluster.Unknown("parent", name, names))
			}
		}
		below[p] = append(below[p], i)
	}
	t.nodes = append(t.nodes, node{parent: -1, path: []int{Root}, limit: cluster.Unlimited,
		spec: cluster.Queue{Name: "root", Limit: cluster.Unlimited, Lend: cluster.Unlimited}})
	var add func(i, parent int)
	add = func(i, parent int) {
		q := len(t.nodes)
		up := &t.nodes[parent]
		up.children = append(up.children, q)
		path := append(append(make([]int, 0, up.depth+2), up.path...), q)
		t.nodes = append(t.nodes, node{spec: queues[i], parent: parent, depth: up.depth + 1, path: path})
		t.index[queues[i].Name] = q
		for _, c := range below[i] {
			add(c, q)
		}
	}
	for _, i := range below[len(queues)] {
		add(i, Root)
	}
	return t.cycle(queues)
}

// cycle reports the queues that cannot be reached from the root.
func (t *Tree) cycle(queues []cluster.Queue) error {
	var lost []string
	for i := range queues {
		if _, ok := t.index[queues[i].Name]; !ok {
			lost = append(lost, queues[i].Name)
		}
	}
	if lost == nil {
		return nil
	}
	return fmt.Errorf("queues %s: their parents form a cycle", strings.Join(lost, ", "))
}

// Len returns the number of nodes, the root included.
func (t *Tree) Len() int { return len(t.nodes) }

// Index finds a queue by name. The root cannot be found by name.
func (t *Tree) Index(name string) (int, bool) { q, ok := t.index[name]; return q, ok }

// Submit finds the leaf for a job that names this queue. No name means the queue "default", or the
// only leaf.
func (t *Tree) Submit(name string) (int, error) {
	if name == "" {
		if len(t.nodes) == 2 {
			return 1, nil
		}
		name = "default"
	}
	q, ok := t.index[name]
	if !ok {
		return 0, cluster.Unknown("queue", name, t.Leaves())
	}
	if !t.Leaf(q) {
		var below []string
		for _, c := range t.nodes[q].children {
			below = append(below, t.Name(c))
		}
		return 0, fmt.Errorf("queue %q only groups other queues: submit to one of %s", name, strings.Join(below, ", "))
	}
	return q, nil
}

// Leaves returns the names of the queues that accept jobs, in tree order.
func (t *Tree) Leaves() []string {
	var names []string
	for q := 1; q < len(t.nodes); q++ {
		if t.Leaf(q) {
			names = append(names, t.nodes[q].spec.Name)
		}
	}
	return names
}

// Name returns the queue's name; the root's is "root".
func (t *Tree) Name(q int) string { return t.nodes[q].spec.Name }

// Spec returns the queue as configured. It must not be changed.
func (t *Tree) Spec(q int) *cluster.Queue { return &t.nodes[q].spec }

// Parent returns the parent's index, -1 for the root.
func (t *Tree) Parent(q int) int { return t.nodes[q].parent }

// Leaf reports whether jobs may be submitted to q.
func (t *Tree) Leaf(q int) bool { return q != Root && len(t.nodes[q].children) == 0 }

// Path returns the path from the root to q, both included. It must not be changed.
func (t *Tree) Path(q int) []int { return t.nodes[q].path }

// Children returns q's children in the order of the spec. It must not be changed.
func (t *Tree) Children(q int) []int { return t.nodes[q].children }

// LCA returns the lowest common ancestor of two nodes.
func (t *Tree) LCA(a, b int) int {
	pa, pb := t.nodes[a].path, t.nodes[b].path
	last := Root
	for i := 0; i < len(pa) && i < len(pb) && pa[i] == pb[i]; i++ {
		last = pa[i]
	}
	return last
}

// Capacity returns the milli-GPU of the cluster.
func (t *Tree) Capacity() Milli { return t.capacity }

// SetCapacity sets the current milli-GPU of the cluster. It may fall below the sum of the
// guarantees; Available then turns negative.
func (t *Tree) SetCapacity(m Milli) {
	t.capacity = max(0, m)
	t.rebuild()
}

// Apply activates the windows that apply at wall (local seconds: Unix seconds + Spec.Zone) and
// returns the next instant at which any queue's amounts change, math.MaxInt64 if none ever do.
//
// A change may leave a queue above its limit (see Excess) or the cluster overdrawn (Available(Root)
// < 0): the engine then preempts borrowers. To see before a window closes what will have to be
// given back, Apply its end, read, and Apply the present again: there is no other state.
func (t *Tree) Apply(wall int64) (next int64) {
	next = math.MaxInt64
	for q := 1; q < len(t.nodes); q++ {
		n := &t.nodes[q]
		var change int64
		n.set, n.limit, change = Effective(&n.spec, wall)
		next = min(next, change)
	}
	t.rebuild()
	return next
}

// rebuild derives all other amounts from the current guarantees and limits, the capacity, and the
// leaves' usage.
func (t *Tree) rebuild() {
	for q := range t.nodes {
		n := &t.nodes[q]
		n.sumG, n.sumSeen, n.held, n.occ = 0, 0, 0, 0
		if len(n.children) > 0 {
			n.used, n.crit = 0, 0
		}
	}
	for q := len(t.nodes) - 1; q >= 0; q-- {
		n := &t.nodes[q]
		n.amounts()
		if q == Root {
			n.guarantee, n.local = t.capacity, 0
			n.subtree = t.capacity - n.sumG + n.sumSeen
		}
		if q == Root {
			return
		}
		if len(n.children) == 0 {
			n.held = max(0, n.reserve-n.crit)
			n.occ = n.used + n.held
		}
		up := &t.nodes[n.parent]
		up.sumG += n.guarantee
		up.sumSeen += n.subtree - n.local
		up.used += n.used
		up.crit += n.crit
		up.held += n.held
		up.occ += n.bubble()
	}
}

// amounts derives a queue's quota from its settings and its children's sums. Kueue: subtree(CQ) =
// nominal; subtree(cohort) = own nominal + Σ (subtree - local) of the children, where Muster's own
// nominal is what is not promised to the children.
func (n *node) amounts() {
	n.guarantee = n.set
	if n.guarantee == 0 && len(n.children) > 0 {
		n.guarantee = n.sumG
	}
	n.reserve = min(n.spec.Reserve, n.guarantee)
	n.subtree = n.guarantee - n.sumG + n.sumSeen
	n.local = 0
	if n.spec.Lend != cluster.Unlimited {
		n.local = max(0, n.subtree-n.spec.Lend)
	}
	switch {
	case n.spec.Weight > 0:
		n.weight = n.spec.Weight
	case n.guarantee > 0:
		n.weight = n.guarantee // one GPU weighs 1000 thousandths
	default:
		n.weight = 1000
	}
}

// Charge adds m milli-GPU to the use of q and its ancestors; a release is the same with -m, and
// undoes it exactly. Critical says that the job is of the critical tier: it takes the idle reserve
// first.
func (t *Tree) Charge(q int, m Milli, critical bool) {
	n := &t.nodes[q]
	dHeld := n.fill(m, critical)
	dOcc := m + dHeld
	for {
		n.used += m
		if critical {
			n.crit += m
		}
		n.held += dHeld
		before := n.bubble()
		n.occ += dOcc
		if n.parent < 0 {
			return
		}
		dOcc = n.bubble() - before
		n = &t.nodes[n.parent]
	}
}

// Used returns the milli-GPU in use in q and below it.
func (t *Tree) Used(q int) Milli { return t.nodes[q].used }

// Critical returns the part of Used that the critical tier holds.
func (t *Tree) Critical(q int) Milli { return t.nodes[q].crit }

// Held returns the milli-GPU that q and everything below it currently keep idle for the critical
// tier.
func (t *Tree) Held(q int) Milli { return t.nodes[q].held }

// Guarantee returns the milli-GPU currently owed to q: its own guarantee, otherwise the sum of its
// children's. The root's is the capacity.
func (t *Tree) Guarantee(q int) Milli { return t.nodes[q].guarantee }

// Limit returns the current limit of q, cluster.Unlimited if there is none.
func (t *Tree) Limit(q int) Milli { return t.nodes[q].limit }

// Weight returns q's over-quota weight in thousandths, always positive: as configured, otherwise in
// proportion to the guarantee, otherwise 1000.
func (t *Tree) Weight(q int) int64 { return t.nodes[q].weight }

// Excess returns how far q is above its limit, after a window has closed or a limit was lowered; 0
// if it is not.
func (t *Tree) Excess(q int) Milli {
	n := &t.nodes[q]
	if n.limit == cluster.Unlimited {
		return 0
	}
	return max(0, n.used-n.limit)
}
