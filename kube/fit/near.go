package fit

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// near is required pod affinity.
type near struct {
	free func(node string) int // GPUs that are free there
}

// nearNeed is the pods that it wants near; all terms have to hold.
type nearNeed []term

// farAway is what keeps a pod off nodes where the pods are not that it wants near.
const farAway = "its pod affinity"

// Read reads the terms.
func (f near) Read(obj *v1.Pod, _ v1.ResourceList) (Need, bool, error) {
	a := obj.Spec.Affinity
	if a == nil || a.PodAffinity == nil {
		return nil, false, nil
	}
	terms, err := termsOf(obj, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	if terms == nil || err != nil {
		return nil, false, err
	}
	return nearNeed(terms), own(terms, obj), nil
}

// Key is nothing: labels and affinity are compared as they are.
func (f near) Key(*Neighbour) string { return "" }

// Limit closes nodes where not all terms hold, each with a pod that all
// terms mean. If there is none at all and the pod means itself, it begins
// somewhere, and the others of its gang with it.
func (f near) Limit(l *Look, p *Neighbour) {
	terms, _ := Of[nearNeed](p)
	if len(terms) == 0 {
		return
	}
	all := func(q *v1.Pod) bool {
		for i := range terms {
			if !l.means(&terms[i], q) {
				return false
			}
		}
		return true
	}
	open, found := make([]map[string]bool, len(terms)), false
	for i := range terms {
		open[i] = map[string]bool{}
	}
	l.Each(func(q *Neighbour) {
		if !all(q.Obj) {
			return
		}
		for i := range terms {
			if v, ok := l.Domain(q.Where, terms[i].key); ok {
				open[i][v], found = true, true
			}
		}
	})
	if !found && all(p.Obj) {
		f.begin(l, terms)
		return
	}
	l.ShutIf(farAway, func(n *v1.Node) bool {
		for i := range terms {
			if v, ok := n.Labels[terms[i].key]; !ok || !open[i][v] {
				return true
			}
		}
		return false
	})
}

// begin is for the first of pods that want to be together: in one domain of
// each key, for a gang the one with the most GPUs free.
func (f near) begin(l *Look, terms []term) {
	for i := range terms {
		key := terms[i].key
		l.ShutIf(farAway, func(n *v1.Node) bool { _, ok := n.Labels[key]; return !ok })
		if len(l.Pods) == 1 {
			continue
		}
		free := map[string]int{}
		l.Open(func(name string, n *v1.Node) {
			if v, ok := n.Labels[key]; ok {
				free[v] += f.free(name)
			}
		})
		best := ""
		for _, v := range slices.Sorted(maps.Keys(free)) {
			if best == "" || free[v] > free[best] {
				best = v
			}
		}
		l.ShutIf(farAway, func(n *v1.Node) bool { return n.Labels[key] != best })
	}
}
