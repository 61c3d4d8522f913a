package fit

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// taints are those that keep a pod off a node unless it tolerates them. Those
// that stand for conditions are no part of it: they pass, and the node is closed
// meanwhile.
type taints struct{}

// Key is what the pod tolerates.
func (taints) Key(p *Pod) any { return p.Obj.Spec.Tolerations }

// Suits looks for a taint that the pod does not tolerate.
func (taints) Suits(p *Pod, n *v1.Node) string {
	counts := func(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule && !Passing(t) }
	tolerated := p.Obj.Spec.Tolerations
	taint, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, tolerated, counts,
		false)
	if found {
		return "taint " + taint.Key
	}
	return ""
}

// Passing reports whether a taint is Kubernetes' own word for a condition.
func Passing(t *v1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") }

// Differs compares those that count, and those that a pod would rather avoid.
func (taints) Differs(a, b *v1.Node) bool { return standing(a) != standing(b) }

// standing is a node's taints as text, without those that stand for conditions.
func standing(n *v1.Node) string {
	var list []string
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; !Passing(t) {
			list = append(list, t.ToString())
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
