package kube

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/cluster"
)

// tooMany is what keeps a pod off domains that have more of its kind than others.
const tooMany = "its topology spread"

// spread adds the pod's topology spread. One pod may go where its domain is then
// at most skew above the least. A gang is thought to fill the domains from the
// lowest up; what it comes out as is judged when it is placed (uneven).
func (l *looker) spread(p *pod) {
	for i := range p.needs.spread {
		s := &p.needs.spread[i]
		count := l.d.countSpread(p, s)
		l.shutIf(tooMany, func(n *v1.Node) bool { _, ok := n.Labels[s.key]; return !ok })
		least, own := leastOf(count, s.domains), 0
		if s.matches {
			own = 1
		}
		if len(l.pods) == 1 || !s.matches {
			l.shutIf(tooMany, func(n *v1.Node) bool {
				return count[n.Labels[s.key]]+own-least > s.skew
			})
			continue
		}
		if p == l.pods[0] { // all count: once for the gang
			l.fill(s, count)
		}
	}
}

// countSpread counts the pods that a constraint is about, by domain; domains
// without any are there with none. Those of nodes that do not count are not.
func (d *Driver) countSpread(p *pod, s *spread) map[string]int {
	count := map[string]int{}
	for _, name := range d.order {
		n := d.nodes[name]
		if n == nil || n.obj == nil || !p.spreadsOver(n.obj, s) {
			continue
		}
		v := n.obj.Labels[s.key]
		count[v] += 0
		for q := range n.pods {
			if q != p && q.obj.Namespace == p.obj.Namespace && q.obj.DeletionTimestamp == nil && s.pods.Matches(labels.Set(q.obj.Labels)) {
				count[v]++
			}
		}
	}
	return count
}

// spreadsOver reports whether a node counts for a constraint: it has the labels
// of all of the pod's constraints, and suits the pod as far as they say.
func (p *pod) spreadsOver(n *v1.Node, s *spread) bool {
	for i := range p.needs.spread {
		if _, ok := n.Labels[p.needs.spread[i].key]; !ok {
			return false
		}
	}
	if s.honourAffinity {
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(p.obj).Match(n); err != nil || !ok {
			return false
		}
	}
	if s.honourTaints {
		_, bad := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, p.obj.Spec.Tolerations, func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
		}, false)
		return !bad
	}
	return true
}

// leastOf is the least count of the domains, none if there are too few of them.
func leastOf(count map[string]int, domains int) int {
	if len(count) == 0 || len(count) < domains {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(count)))
}

// fill bounds what domains take of the gang: one pod after the other goes where
// there are the fewest. Unless that was tried in vain, all domains may have as
// much as the highest, and more where the skew allows it.
func (l *looker) fill(s *spread, count map[string]int) {
	now, top := maps.Clone(count), 0
	keys := slices.Sorted(maps.Keys(now))
	for range l.pods {
		low := ""
		for i, v := range keys {
			if i == 0 || now[v] < now[low] {
				low = v
			}
		}
		if len(keys) == 0 {
			return
		}
		now[low]++
		top = max(top, now[low])
	}
	nodes := l.domains(s.key, nil)
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		most := top + s.skew - 1 - count[v]
		if l.careful {
			most = now[v] - count[v]
		}
		if most = max(0, most); most < len(l.pods) {
			l.groups = append(l.groups, cluster.NodeLimit{Nodes: nodes[v], Tasks: most})
		}
	}
}

// uneven says that a gang of several pods would stand less evenly than it asks
// for, where the engine placed it; "": it does not.
func (d *Driver) uneven(pods []*pod, on map[string]int) string {
	if len(pods) < 2 || pods[0].needs == nil {
		return ""
	}
	for i := range pods[0].needs.spread {
		s := &pods[0].needs.spread[i]
		count := d.countSpread(pods[0], s)
		if !s.matches {
			continue
		}
		for name, n := range on {
			if v, ok := d.domain(name, s.key); ok {
				count[v] += n
			}
		}
		least := leastOf(count, s.domains)
		for name := range on {
			if v, ok := d.domain(name, s.key); ok && count[v]-least > s.skew {
				return fmt.Sprintf("%s %s would have %d more of these pods than another; %d are allowed", s.key, v, count[v]-least, s.skew)
			}
		}
	}
	return ""
}
