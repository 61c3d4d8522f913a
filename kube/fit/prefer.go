package fit

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// What a preference without a weight counts for; weights are between 1 and 100.
const (
	shunWeight = 100 // a taint
	evenWeight = 10  // each pod that a domain has more than the emptiest
)

// Pods prefer nodes by preferredDuringScheduling... of node affinity, pod affinity and anti-affinity; they would
// rather not be where a taint PreferNoSchedule is that they do not tolerate; a single pod likes the emptiest domain
// of a spread with ScheduleAnyway.

// Prefers reports whether a pod says what it prefers, or nodes which pods they prefer.
func (w *World) Prefers(p *Neighbour) bool {
	n, _ := Of[spreadNeed](p)
	if len(n.even) > 0 || slices.ContainsFunc(w.shy, func(t v1.Taint) bool { return shuns(p.Obj, &t) }) {
		return true
	}
	a := p.Obj.Spec.Affinity
	switch {
	case a == nil:
		return false
	case a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0,
		a.PodAffinity != nil && len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0,
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0:
		return true
	}
	return false
}

// Worth is what nodes are worth to pods that start together.
func (w *World) Worth(ask *Ask, names []string) map[string]int64 {
	worth := map[string]int64{}
	for _, p := range ask.Pods {
		w.like(p.Obj, names, worth)
		w.likeUntainted(p.Obj, names, worth)
		if len(ask.Pods) == 1 { // a gang would fill the emptiest domain
			w.likeEven(p, ask.Nodes, names, worth)
		}
	}
	return worth
}

// like adds to what nodes are worth to a pod: the weights of the terms that they
// meet, those of anti-affinity negative.
func (w *World) like(obj *v1.Pod, names []string, worth map[string]int64) {
	a := obj.Spec.Affinity
	if a == nil {
		return
	}
	if a.NodeAffinity != nil {
		terms, err := nodeaffinity.NewPreferredSchedulingTerms(
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		for _, name := range names {
			if n := w.Node(name); err == nil && n != nil {
				worth[name] += terms.Score(n)
			}
		}
	}
	if a.PodAffinity != nil {
		w.likeNear(obj, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1, names, worth)
	}
	if a.PodAntiAffinity != nil {
		w.likeNear(obj, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1, names, worth)
	}
}

// likeNear adds the weights of terms for each pod that they mean, in its domain.
func (w *World) likeNear(obj *v1.Pod, list []v1.WeightedPodAffinityTerm, sign int64, names []string,
	worth map[string]int64) {
	for i := range list {
		t, err := termOf(obj, &list[i].PodAffinityTerm)
		if err != nil {
			continue // it prefers what cannot be read
		}
		count := map[string]int64{} // pods by domain
		w.Each(func(q *Neighbour) {
			if v, ok := w.Domain(q.Where, t.key); ok && w.means(&t, q.Obj) {
				count[v]++
			}
		})
		for _, name := range names {
			if v, ok := w.Domain(name, t.key); ok {
				worth[name] += sign * int64(list[i].Weight) * count[v]
			}
		}
	}
}

// NoteTaints notes the taints with PreferNoSchedule that nodes have.
func (w *World) NoteTaints(nodes []string) {
	w.shy = nil
	for _, name := range nodes {
		n := w.Node(name)
		if n == nil {
			continue
		}
		for _, t := range n.Spec.Taints {
			t.TimeAdded = nil
			if t.Effect == v1.TaintEffectPreferNoSchedule && !slices.Contains(w.shy, t) {
				w.shy = append(w.shy, t)
			}
		}
	}
}

// shuns reports whether a pod would rather not be where there is a taint.
func shuns(obj *v1.Pod, t *v1.Taint) bool {
	counts := func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectPreferNoSchedule }
	tolerated := obj.Spec.Tolerations
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), []v1.Taint{*t}, tolerated, counts, false)
	return found
}

func (w *World) likeUntainted(obj *v1.Pod, names []string, worth map[string]int64) {
	if len(w.shy) == 0 {
		return
	}
	for _, name := range names {
		n := w.Node(name)
		if n == nil {
			continue
		}
		for i := range n.Spec.Taints {
			if shuns(obj, &n.Spec.Taints[i]) {
				worth[name] -= shunWeight
			}
		}
	}
}

// likeEven takes off as much as a node's domain has more than the emptiest; a node that
// does not count is like one of a domain beyond the fullest.
func (w *World) likeEven(p *Neighbour, nodes, names []string, worth map[string]int64) {
	need, _ := Of[spreadNeed](p)
	for i := range need.even {
		s := &need.even[i]
		count := w.countSpread(p, s, nodes)
		if len(count) == 0 {
			continue
		}
		all := slices.Sorted(maps.Values(count))
		for _, name := range names {
			more := all[len(all)-1] + 1
			v, _ := w.Domain(name, s.key)
			if have, ok := count[v]; ok {
				more = have
			}
			worth[name] -= evenWeight * int64(more-all[0])
		}
	}
}
