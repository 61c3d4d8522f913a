package kube

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// What pods prefer (preferredDuringScheduling... of node affinity, pod affinity and
// anti-affinity; no node with a taint PreferNoSchedule that they do not tolerate; of
// single pods the emptiest domain of a spread with ScheduleAnyway) decides among nodes that
// suit a gang at the moment: it is looked for places on the nodes that are liked best, then
// on these and the next, then anywhere. Nobody leaves for a preference, and nobody waits
// for one.

// mostWishes bounds how many sets of nodes a gang is tried on before it may be
// anywhere: each is a step of the engine.
const mostWishes = 3

// What a preference without a weight counts for; weights are between 1 and 100.
const (
	shunWeight = 100 // a taint
	evenWeight = 10  // each pod that a domain has more than the emptiest
)

// wish is what a gang would like.
type wish struct {
	of []types.UID // the pods that it was asked for
}

// wishes finds where a gang is looked for places first. What was tried in vain is
// not tried again.
func (d *Driver) wishes(g *gang, pods []*pod) {
	if g.repair.patch || !slices.ContainsFunc(pods, d.prefers) {
		return
	}
	if of := uids(pods); g.home == 0 || !slices.Equal(of, g.wish.of) {
		g.wish.of, g.home, g.homes = of, 0, d.likedBest(pods)
	}
}

// prefers reports whether a pod says what it prefers, or nodes whom they prefer.
func (d *Driver) prefers(p *pod) bool {
	if p.needs != nil && len(p.needs.even) > 0 || slices.ContainsFunc(d.shy, func(t v1.Taint) bool { return shuns(p.obj, &t) }) {
		return true
	}
	a := p.obj.Spec.Affinity
	return a != nil && (a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAffinity != nil && len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0)
}

// likedBest lists the sets of nodes that these pods like best, each with those
// before it; not the set of all.
func (d *Driver) likedBest(pods []*pod) (homes []home) {
	names := d.nodesFor(pods).names
	likes := map[string]int64{}
	for _, p := range pods {
		d.like(p.obj, names, likes)
		d.likeUntainted(p.obj, names, likes)
		if len(pods) == 1 { // a gang would fill the emptiest domain
			d.likeEven(p, names, likes)
		}
	}
	byLike := map[int64][]string{}
	for _, name := range names {
		byLike[likes[name]] = append(byLike[likes[name]], name)
	}
	levels := slices.SortedFunc(maps.Keys(byLike), func(a, b int64) int { return cmp.Compare(b, a) })
	liked := map[string]bool{}
	for _, level := range levels[:min(mostWishes, max(0, len(levels)-1))] {
		liked = maps.Clone(liked)
		for _, name := range byLike[level] {
			liked[name] = true
		}
		homes = append(homes, home{liked: liked})
	}
	return homes
}

// like adds to what nodes are worth to a pod: the weights of the terms that they
// meet, those of anti-affinity negative.
func (d *Driver) like(obj *v1.Pod, names []string, likes map[string]int64) {
	a := obj.Spec.Affinity
	if a == nil {
		return
	}
	if a.NodeAffinity != nil {
		terms, err := nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		for _, name := range names {
			if n := d.nodes[name]; err == nil && n != nil && n.obj != nil {
				likes[name] += terms.Score(n.obj)
			}
		}
	}
	if a.PodAffinity != nil {
		d.likeNear(obj, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1, names, likes)
	}
	if a.PodAntiAffinity != nil {
		d.likeNear(obj, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1, names, likes)
	}
}

// likeNear adds the weights of terms for each pod that they mean, in its domain.
func (d *Driver) likeNear(obj *v1.Pod, list []v1.WeightedPodAffinityTerm, sign int64, names []string, likes map[string]int64) {
	for i := range list {
		var n needs
		t := n.terms(obj, []v1.PodAffinityTerm{list[i].PodAffinityTerm})[0]
		if n.err != nil {
			continue // it prefers what cannot be read
		}
		count := map[string]int64{} // pods by domain
		d.each(func(q *pod) {
			if v, ok := d.domain(q.where, t.key); ok && d.means(&t, q.obj) {
				count[v]++
			}
		})
		for _, name := range names {
			if v, ok := d.domain(name, t.key); ok {
				likes[name] += sign * int64(list[i].Weight) * count[v]
			}
		}
	}
}

// shyNodes notes the taints with PreferNoSchedule that nodes have.
func (d *Driver) shyNodes() {
	d.shy = nil
	for _, name := range d.order {
		n := d.nodes[name]
		if n == nil || n.obj == nil {
			continue
		}
		for _, t := range n.obj.Spec.Taints {
			t.TimeAdded = nil
			if t.Effect == v1.TaintEffectPreferNoSchedule && !slices.Contains(d.shy, t) {
				d.shy = append(d.shy, t)
			}
		}
	}
}

// shuns reports whether a pod would rather not be where there is a taint.
func shuns(obj *v1.Pod, t *v1.Taint) bool {
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), []v1.Taint{*t}, obj.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectPreferNoSchedule
	}, false)
	return found
}

func (d *Driver) likeUntainted(obj *v1.Pod, names []string, likes map[string]int64) {
	if len(d.shy) == 0 {
		return
	}
	for _, name := range names {
		n := d.nodes[name]
		if n == nil || n.obj == nil {
			continue
		}
		for i := range n.obj.Spec.Taints {
			if shuns(obj, &n.obj.Spec.Taints[i]) {
				likes[name] -= shunWeight
			}
		}
	}
}

// likeEven takes off as much as a node's domain has more than the emptiest; a node that
// does not count is like one of a domain beyond the fullest.
func (d *Driver) likeEven(p *pod, names []string, likes map[string]int64) {
	if p.needs == nil {
		return
	}
	for i := range p.needs.even {
		s := &p.needs.even[i]
		count := d.countSpread(p, s)
		if len(count) == 0 {
			continue
		}
		all := slices.Sorted(maps.Values(count))
		for _, name := range names {
			more := all[len(all)-1] + 1
			v, _ := d.domain(name, s.key)
			if have, ok := count[v]; ok {
				more = have
			}
			likes[name] -= evenWeight * int64(more-all[0])
		}
	}
}
