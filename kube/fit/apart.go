package fit

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// apart is required pod anti-affinity, also that of pods with a place towards those
// that come.
type apart struct{ having[apartNeed] }

// apartNeed is the pods that it wants to be apart from.
type apartNeed []term

// Read reads the terms.
func (f *apart) Read(obj *v1.Pod, _ v1.ResourceList) (Need, bool, error) {
	a := obj.Spec.Affinity
	if a == nil || a.PodAntiAffinity == nil {
		return nil, false, nil
	}
	terms, err := termsOf(obj, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	if terms == nil || err != nil {
		return nil, false, err
	}
	return apartNeed(terms), own(terms, obj), nil
}

// Key is nothing: labels and affinity are compared as they are.
func (f *apart) Key(*Neighbour) string { return "" }

// Active reports whether a pod keeps others away.
func (f *apart) Active() bool { return len(f.having) > 0 }

// Limit closes the domains of those that want no such pod near, and of those that the pod does not want near.
func (f *apart) Limit(l *Look, p *Neighbour) {
	near := domains{}
	for q := range f.having {
		terms, _ := Of[apartNeed](q)
		for i := range terms {
			if l.means(&terms[i], p.Obj) {
				near.add(l.World, terms[i].key, q.Where)
			}
		}
	}
	l.shutDomains("a pod that wants none like it near", near)
	terms, _ := Of[apartNeed](p)
	if len(terms) == 0 {
		return
	}
	near = domains{}
	l.Each(func(q *Neighbour) {
		for i := range terms {
			if l.means(&terms[i], q.Obj) {
				near.add(l.World, terms[i].key, q.Where)
			}
		}
	})
	l.shutDomains("its pod anti-affinity", near)
}

// Together keeps those apart from each other that want to be.
func (f *apart) Together(l *Look) {
	keys := map[string]bool{}
	for i, p := range l.Pods {
		terms, ok := Of[apartNeed](p)
		for k := 0; ok && k < len(l.Pods); k++ {
			for t := range terms {
				if i != k && l.means(&terms[t], l.Pods[k].Obj) {
					keys[terms[t].key] = true
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if key == v1.LabelHostname {
			l.Apart()
			continue
		}
		for _, nodes := range l.byDomain(key) {
			l.Group(nodes, 1)
		}
	}
}

// Blocks lists the labels by which one of two pods wants to be apart from the other.
func (f *apart) Blocks(w *World, p, q *Neighbour) (keys []string) {
	from := func(p, other *Neighbour) {
		terms, _ := Of[apartNeed](p)
		for i := range terms {
			if w.means(&terms[i], other.Obj) {
				keys = append(keys, terms[i].key)
			}
		}
	}
	from(q, p)
	from(p, q)
	return keys
}
