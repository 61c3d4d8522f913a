package fit

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// spread is topology spread.
type spread struct{}

// spreadNeed is a pod's constraints.
type spreadNeed struct {
	hard []constraint
	even []constraint // with ScheduleAnyway
}

// constraint is one of them.
type constraint struct {
	key            string
	pods           labels.Selector
	skew, domains  int // domains: at least so many, else the least counts as none; 0: any
	honourAffinity bool
	honourTaints   bool
	matches        bool // the pod counts itself
}

// tooMany is what keeps a pod off domains that have more of its kind than others.
const tooMany = "its topology spread"

// Read reads the constraints.
func (spread) Read(obj *v1.Pod, _ v1.ResourceList) (Need, bool, error) {
	var n spreadNeed
	serial := false
	for i := range obj.Spec.TopologySpreadConstraints {
		c := &obj.Spec.TopologySpreadConstraints[i]
		s, err := constraintOf(obj, c)
		if err != nil {
			return nil, false, fmt.Errorf("topologySpreadConstraints: %w", err)
		}
		serial = serial || s.matches
		if c.WhenUnsatisfiable == v1.DoNotSchedule {
			n.hard = append(n.hard, s)
		} else {
			n.even = append(n.even, s)
		}
	}
	if n.hard == nil && n.even == nil {
		return nil, false, nil
	}
	return n, serial, nil
}

func constraintOf(obj *v1.Pod, c *v1.TopologySpreadConstraint) (s constraint, err error) {
	s = constraint{key: c.TopologyKey, skew: int(c.MaxSkew)}
	s.honourAffinity = c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor
	s.honourTaints = c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor
	if c.MinDomains != nil {
		s.domains = int(*c.MinDomains)
	}
	if s.pods, err = selectorOf(obj, c.LabelSelector, c.MatchLabelKeys, nil); err != nil {
		return s, err
	}
	if s.pods.Empty() { // kube-scheduler counts no pods for one that selects all
		s.pods = labels.Nothing()
	}
	s.matches = s.pods.Matches(labels.Set(obj.Labels))
	return s, nil
}

// Key is nothing: labels and constraints are compared as they are.
func (spread) Key(*Neighbour) string { return "" }

// Limit bounds the domains. One pod may go where its domain is then
// at most skew above the least. A gang is thought to fill the domains from the
// lowest up; what it comes out as is judged when it is placed (Verify).
func (spread) Limit(l *Look, p *Neighbour) {
	need, _ := Of[spreadNeed](p)
	for i := range need.hard {
		s := &need.hard[i]
		count := l.countSpread(p, s, l.Ask.Nodes)
		l.ShutIf(tooMany, func(n *v1.Node) bool { _, ok := n.Labels[s.key]; return !ok })
		least, own := leastOf(count, s.domains), 0
		if s.matches {
			own = 1
		}
		if len(l.Pods) == 1 || !s.matches {
			l.ShutIf(tooMany, func(n *v1.Node) bool {
				return count[n.Labels[s.key]]+own-least > s.skew
			})
			continue
		}
		if p == l.Pods[0] { // all count: once for the gang
			s.fill(l, count)
		}
	}
}

// countSpread counts the pods that a constraint is about, by domain; domains
// without any are there with none. Those of nodes that do not count are not.
func (w *World) countSpread(p *Neighbour, s *constraint, nodes []string) map[string]int {
	count := map[string]int{}
	need, _ := Of[spreadNeed](p)
	required := nodeaffinity.GetRequiredNodeAffinity(p.Obj)
	for _, name := range nodes {
		n := w.nodes[name]
		if n == nil || n.obj == nil || !s.spansNode(p.Obj, need.hard, required, n.obj) {
			continue
		}
		v := n.obj.Labels[s.key]
		count[v] += 0
		for q := range n.pods {
			if q != p && q.Obj.DeletionTimestamp == nil && s.means(p, q) {
				count[v]++
			}
		}
	}
	return count
}

// means reports whether a constraint of p is about q.
func (s *constraint) means(p, q *Neighbour) bool {
	return q.Obj.Namespace == p.Obj.Namespace && s.pods.Matches(labels.Set(q.Obj.Labels))
}

// spansNode reports whether a node counts for a constraint: it has the labels
// of all of the pod's constraints, and suits the pod as far as they say.
func (s *constraint) spansNode(obj *v1.Pod, all []constraint, required nodeaffinity.RequiredNodeAffinity,
	n *v1.Node) bool {
	for i := range all {
		if _, ok := n.Labels[all[i].key]; !ok {
			return false
		}
	}
	if s.honourAffinity {
		if ok, err := required.Match(n); err != nil || !ok {
			return false
		}
	}
	if s.honourTaints {
		counts := func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
		}
		tolerated := obj.Spec.Tolerations
		_, bad := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, tolerated, counts, false)
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
func (s *constraint) fill(l *Look, count map[string]int) {
	now, top := maps.Clone(count), 0
	keys := slices.Sorted(maps.Keys(now))
	for range l.Pods {
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
	nodes := l.byDomain(s.key)
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		most := top + s.skew - 1 - count[v]
		if l.Careful {
			most = now[v] - count[v]
		}
		if most = max(0, most); most < len(l.Pods) {
			l.Group(nodes[v], most)
		}
	}
}

// Verify says that a gang of several pods would stand less evenly than it asks
// for; "": it would not.
func (spread) Verify(w *World, ask *Ask, on map[string]int) string {
	if len(ask.Pods) < 2 {
		return ""
	}
	first := ask.Pods[0]
	need, _ := Of[spreadNeed](first)
	for i := range need.hard {
		s := &need.hard[i]
		count := w.countSpread(first, s, ask.Nodes)
		if !s.matches {
			continue
		}
		for name, n := range on {
			if v, ok := w.Domain(name, s.key); ok {
				count[v] += n
			}
		}
		least := leastOf(count, s.domains)
		for name := range on {
			if v, ok := w.Domain(name, s.key); ok && count[v]-least > s.skew {
				return fmt.Sprintf("%s %s would have %d more of these pods than another; %d are allowed",
					s.key, v, count[v]-least, s.skew)
			}
		}
	}
	return ""
}

// Blocks lists the labels by which q is counted where p would be.
func (spread) Blocks(_ *World, p, q *Neighbour) (keys []string) {
	need, _ := Of[spreadNeed](p)
	for i := range need.hard {
		s := &need.hard[i]
		if s.means(p, q) {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// Alike holds for those that are spread nowhere.
func (spread) Alike(p, q *Neighbour) bool {
	a, _ := Of[spreadNeed](p)
	b, _ := Of[spreadNeed](q)
	return len(a.hard)+len(b.hard) == 0
}
