package fit

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/amount"
)

// extended is what nodes have of any resource, and pods take, besides what the engine counts.
type extended struct {
	besides func(obj *v1.Pod, requests v1.ResourceList) map[v1.ResourceName]int64 // of what a pod asks for
}

type extendedNeed map[v1.ResourceName]int64

// Read is what of a pod's requests the engine does not count.
func (f extended) Read(obj *v1.Pod, requests v1.ResourceList) (Need, bool, error) {
	if list := f.besides(obj, requests); len(list) > 0 {
		return extendedNeed(list), false, nil
	}
	return nil, false, nil
}

// Key is that.
func (f extended) Key(p *Neighbour) string {
	if list, ok := Of[extendedNeed](p); ok {
		return fmt.Sprint(list)
	}
	return ""
}

// Limit bounds nodes by what is left there.
func (f extended) Limit(l *Look, p *Neighbour) {
	need, _ := Of[extendedNeed](p)
	for _, name := range slices.Sorted(maps.Keys(need)) {
		for _, node := range l.Ask.Nodes {
			n := l.nodes[node]
			if n == nil || n.obj == nil {
				continue
			}
			have := n.obj.Status.Allocatable[name]
			left := amount.Count(&have)
			for q := range n.pods {
				takes, _ := Of[extendedNeed](q)
				left -= takes[name]
				if q.Counted == name {
					left--
				}
			}
			l.Most(node, max(0, left)/need[name], "too little "+string(name))
		}
	}
}

// Blocks reports whether both take some of one resource.
func (f extended) Blocks(_ *World, p, q *Neighbour) []string {
	a, _ := Of[extendedNeed](p)
	b, _ := Of[extendedNeed](q)
	for name := range a {
		if b[name] > 0 {
			return []string{""}
		}
	}
	return nil
}
