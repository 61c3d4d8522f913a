package fit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Affinity is a pod's node selector and its required node affinity.
type Affinity struct{}

// Key is what the pod requires.
func (Affinity) Key(p *Pod) any {
	var need *v1.NodeSelector
	if a := p.Obj.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		need = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return []any{p.Obj.Spec.NodeSelector, need}
}

// Suits compares it with the node's labels and its name.
func (Affinity) Suits(p *Pod, n *v1.Node) string {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p.Obj).Match(n); err != nil || !ok {
		return "its node selector or affinity"
	}
	return ""
}
