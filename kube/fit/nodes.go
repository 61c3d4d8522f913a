// Package fit says on which nodes pods may be: what a pod can ask for, one file
// each.
package fit

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
)

// Pod is what a predicate sees of a pod.
type Pod struct {
	Obj      *v1.Pod
	Requests v1.ResourceList // in all
	// What it asks for of GPUs besides their names, once that is settled for its gang.
	Replica gpus.Replica
	Want    gpus.Want
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

// Settled is a predicate that goes by what is settled of a pod after it was read.
type Settled interface {
	// Settled is that, as text; "": nothing.
	Settled(p *Pod) string
}

// Nodes are the predicates of a scheduler.
type Nodes []NodePredicate

// NewNodes lists them all; own are labels of nodes that the scheduler writes itself.
func NewNodes(names *gpus.Names, own ...string) Nodes {
	return Nodes{affinity{own}, taints{}, features{}, devices{names}, replicas{names}, wanted{names}}
}

// Key is what of a pod decides which nodes suit it, as text.
func (list Nodes) Key(p *Pod) string {
	keys := make([]any, len(list))
	for i, f := range list {
		keys[i] = f.Key(p)
	}
	return string(patch.JSON(keys))
}

// Settled is what of a pod decides that besides its key, once that is settled.
func (list Nodes) Settled(p *Pod) (text string) {
	for _, f := range list {
		if s, ok := f.(Settled); ok {
			text += s.Settled(p)
		}
	}
	return text
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
