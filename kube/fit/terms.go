package fit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// term is one term of pod affinity or anti-affinity.
type term struct {
	spaces  []string        // namespaces of the pods that it means
	inSpace labels.Selector // ... and those that it selects; nil: none
	pods    labels.Selector
	key     string // label of nodes that makes a domain
}

func termsOf(obj *v1.Pod, list []v1.PodAffinityTerm) (terms []term, err error) {
	for i := range list {
		t, err := termOf(obj, &list[i])
		if err != nil {
			return nil, fmt.Errorf("pod affinity: %w", err)
		}
		terms = append(terms, t)
	}
	return terms, nil
}

func termOf(obj *v1.Pod, a *v1.PodAffinityTerm) (t term, err error) {
	t = term{spaces: a.Namespaces, key: a.TopologyKey}
	if t.pods, err = selectorOf(obj, a.LabelSelector, a.MatchLabelKeys, a.MismatchLabelKeys); err != nil {
		return t, err
	}
	switch {
	case a.NamespaceSelector != nil:
		if t.inSpace, err = metav1.LabelSelectorAsSelector(a.NamespaceSelector); err != nil {
			return t, fmt.Errorf("namespaceSelector: %w", err)
		}
	case len(t.spaces) == 0:
		t.spaces = []string{obj.Namespace}
	}
	return t, nil
}

// selectorOf is a label selector with the keys whose values have to be, or not
// to be, those of the pod itself. No selector selects nothing.
func selectorOf(obj *v1.Pod, sel *metav1.LabelSelector, same, other []string) (labels.Selector, error) {
	if sel == nil {
		return labels.Nothing(), nil
	}
	sel = sel.DeepCopy()
	add := func(keys []string, op metav1.LabelSelectorOperator) {
		for _, k := range keys {
			if v, ok := obj.Labels[k]; ok {
				more := metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}}
				sel.MatchExpressions = append(sel.MatchExpressions, more)
			}
		}
	}
	add(same, metav1.LabelSelectorOpIn)
	add(other, metav1.LabelSelectorOpNotIn)
	return metav1.LabelSelectorAsSelector(sel)
}

// own reports whether one of the terms means the pod itself. Namespaces that it selects
// by label are not looked at: then pods go one after the other, which is right
// either way.
func own(terms []term, obj *v1.Pod) bool {
	return slices.ContainsFunc(terms, func(t term) bool {
		return t.pods.Matches(labels.Set(obj.Labels)) && (t.inSpace != nil || slices.Contains(t.spaces, obj.Namespace))
	})
}

// means reports whether a term is about a pod.
func (w *World) means(t *term, obj *v1.Pod) bool {
	if !t.pods.Matches(labels.Set(obj.Labels)) {
		return false
	}
	return slices.Contains(t.spaces, obj.Namespace) ||
		t.inSpace != nil && t.inSpace.Matches(labels.Set(w.spaces[obj.Namespace]))
}

// domains are values of labels of nodes, by label.
type domains map[string]map[string]bool

// add adds that of a node, if it has the label.
func (list domains) add(w *World, key, name string) {
	v, ok := w.Domain(name, key)
	if !ok {
		return
	}
	if list[key] == nil {
		list[key] = map[string]bool{}
	}
	list[key][v] = true
}

// shutDomains closes all nodes of some domains.
func (l *Look) shutDomains(why string, list domains) {
	if len(list) == 0 {
		return
	}
	l.ShutIf(why, func(n *v1.Node) bool {
		for key, values := range list {
			if v, ok := n.Labels[key]; ok && values[v] {
				return true
			}
		}
		return false
	})
}
