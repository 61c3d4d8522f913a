package fit

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/amount"
)

// crowd is how many pods a node takes at all.
type crowd struct {
	full map[string]bool // nodes that take only a few pods more
}

// fewPods is when a node counts as crowded: it takes no more pods than these.
const fewPods = 8

// Read is nothing: each pod is one.
func (f *crowd) Read(*v1.Pod, v1.ResourceList) (Need, bool, error) { return nil, false, nil }

// Key is nothing.
func (f *crowd) Key(*Neighbour) string { return "" }

// Put looks at the node again.
func (f *crowd) Put(w *World, p *Neighbour, _ int) { f.NodeChanged(w, p.Where) }

// NodeChanged notes whether a node takes only a few pods more.
func (f *crowd) NodeChanged(w *World, node string) {
	if n := w.nodes[node]; n == nil || n.obj == nil || n.podsLeft() >= fewPods {
		delete(f.full, node)
		return
	}
	f.full[node] = true
}

// podsLeft is how many more pods a node takes.
func (n *place) podsLeft() int {
	most, ok := n.obj.Status.Allocatable[v1.ResourcePods]
	if !ok {
		return math.MaxInt32
	}
	return int(min(amount.Count(&most), math.MaxInt32)) - len(n.pods)
}

// Active reports whether a node is crowded.
func (f *crowd) Active() bool { return len(f.full) > 0 }

// Limit does nothing for single pods: they count together.
func (f *crowd) Limit(*Look, *Neighbour) {}

// Together bounds the crowded nodes.
func (f *crowd) Together(l *Look) {
	for name := range f.full {
		l.Most(name, int64(max(0, l.nodes[name].podsLeft())), "too many pods")
	}
}

// Blocks reports whether q is on a crowded node.
func (f *crowd) Blocks(_ *World, _, q *Neighbour) []string {
	if f.full[q.Where] {
		return []string{""}
	}
	return nil
}
