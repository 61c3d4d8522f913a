package fit

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// affinity is a pod's node selector and its required node affinity.
type affinity struct {
	own []string // labels that the scheduler writes itself: what they say of a node it knows already
}

// Key is what the pod requires.
func (affinity) Key(p *Pod) any {
	var need *v1.NodeSelector
	if a := p.Obj.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		need = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return []any{p.Obj.Spec.NodeSelector, need}
}

// Suits compares it with the node's labels and its name.
func (affinity) Suits(p *Pod, n *v1.Node) string {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p.Obj).Match(n); err != nil || !ok {
		return "its node selector or affinity"
	}
	return ""
}

// Differs compares the labels.
func (f affinity) Differs(a, b *v1.Node) bool {
	others := func(n *v1.Node) map[string]string {
		m := maps.Clone(n.Labels)
		maps.DeleteFunc(m, func(key, _ string) bool { return slices.Contains(f.own, key) })
		return m
	}
	return !maps.Equal(a.Labels, b.Labels) && !maps.Equal(others(a), others(b))
}
