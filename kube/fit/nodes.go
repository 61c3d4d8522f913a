// Package fit says on which nodes pods may be: what a pod can ask for, one file
// each.
package fit

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Pod is what a predicate sees of a pod.
type Pod struct {
	Obj      *v1.Pod
	Requests v1.ResourceList // in all
}

// NodePredicate looks at a pod and a node, and at nothing else: which nodes suit
// a pod changes with these only.
type NodePredicate interface {
	// Key is what of a pod it goes by, as JSON can write it: pods with the same
	// key suit the same nodes.
	Key(p *Pod) any
	// Suits says why a pod may not be on a node, whatever is free there; "": it may.
	Suits(p *Pod, n *v1.Node) string
	// Differs reports whether two states of a node differ in what it looks at.
	Differs(a, b *v1.Node) bool
}

// Nodes are the predicates of a scheduler.
type Nodes []NodePredicate

// NewNodes lists them all; what counts as GPUs is the devices' matter, and own are
// labels of nodes that the scheduler writes itself.
func NewNodes(d Devices, own ...string) Nodes { return Nodes{affinity{own}, taints{}, features{}, d} }

// Key is what of a pod decides which nodes suit it, as text.
func (list Nodes) Key(p *Pod) string {
	keys := make([]any, len(list))
	for i, f := range list {
		keys[i] = f.Key(p)
	}
	text, err := json.Marshal(keys)
	if err != nil {
		panic(err) // it came as JSON
	}
	return string(text)
}

// Suits says why a pod may not be on a node; "": it may.
func (list Nodes) Suits(p *Pod, n *v1.Node) string {
	for _, f := range list {
		if why := f.Suits(p, n); why != "" {
			return why
		}
	}
	return ""
}

// Differ reports whether two states of a node differ in what any of them looks at.
func (list Nodes) Differ(a, b *v1.Node) bool {
	return slices.ContainsFunc(list, func(f NodePredicate) bool { return f.Differs(a, b) })
}
