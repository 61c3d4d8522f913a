package kube

import (
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
)

// zones puts the nodes of a driver into zones of so many, with a label.
func zones(d *Driver, each int) {
	for i, name := range d.nodes.Order() {
		n := d.nodes.Node(name).Obj.DeepCopy()
		n.Labels["zone"] = fmt.Sprint("z", i/each)
		d.nodeChanged(n)
	}
}

// likes makes pods prefer a zone, by a weight.
func likes(zone string, weight int32, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		a := affinityOf(p)
		if a.NodeAffinity == nil {
			a.NodeAffinity = &v1.NodeAffinity{}
		}
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			v1.PreferredSchedulingTerm{Weight: weight, Preference: v1.NodeSelectorTerm{
				MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}})
	}
	return pods
}

func affinityOf(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	return p.Spec.Affinity
}

// nearTo are terms that mean pods with a label, in a zone.
func nearTo(app string, weight int32) []v1.WeightedPodAffinityTerm {
	return []v1.WeightedPodAffinityTerm{{Weight: weight, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: "zone",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}
}

// comeAndLook lets pods come, and looks for places until they have been tried on all that they like.
func comeAndLook(t *testing.T, d *Driver, now *time.Time, pods ...*v1.Pod) {
	t.Helper()
	at := *now
	d.come(t, now, pods...)
	for *now = at; len(d.agenda.later) > 0; steps(t, d) {
		d.agenda.due(d.clock())
	}
	*now = at.Add(time.Minute)
}

// Pods are where they prefer to be, if there is room; else anywhere that suits, and
// at once: none waits or leaves for a preference.
func TestPrefer(t *testing.T) {
	d, now := still(t, 6) // two nodes in each of three zones
	zones(d, 2)
	steps(t, d)
	expect := func(name string, want ...string) {
		t.Helper()
		got := map[string]bool{}
		for node := range d.places(name) {
			got[node] = true
		}
		list := map[string]bool{}
		for _, w := range want {
			list[w] = true
		}
		if !maps.Equal(got, list) {
			t.Errorf("%s is on %v, not %v", name, got, want)
		}
	}
	low := map[string]string{LabelTier: "best-effort"}
	comeAndLook(t, d, now, likes("z2", 10, controlplane.Gang("whole", 2, 8, low)...)...)
	expect("whole", "n0004", "n0005")
	// z2 is full of a gang that would have to leave
	comeAndLook(t, d, now,
		likes("z1", 10, likes("z2", 90, controlplane.Pod("second", 4, map[string]string{LabelTier: "critical"}))...)...)
	expect("second", "n0002")
	// in z1 there is room for one of them
	comeAndLook(t, d, now, likes("z1", 10, controlplane.Gang("large", 2, 8, low)...)...)
	expect("large", "n0000", "n0001")
	comeAndLook(t, d, now, likes("z9", 10, controlplane.Pod("nowhere", 1, nil))...)
	expect("nowhere", "n0002")
	if g := d.gangs["gang/default/whole"]; g.Phase != gang.Starting {
		t.Errorf("the gang that came first is in phase %d", g.Phase)
	}
}

// Pods that others are to be near to or far from decide, too.
func TestPreferNeighbours(t *testing.T) {
	d, now := still(t, 3)
	zones(d, 1)
	steps(t, d)
	web := controlplane.Pod("web", 1, map[string]string{"app": "web"})
	web.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n0001"}
	d.come(t, now, web)
	by := controlplane.Pod("by", 1, nil)
	affinityOf(by).PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: nearTo("web", 5)}
	far := controlplane.Pod("far", 1, nil)
	affinityOf(far).PodAntiAffinity = &v1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: nearTo("web", 5)}
	comeAndLook(t, d, now, by)
	comeAndLook(t, d, now, far)
	if on := d.places("by"); on["n0001"] != 1 {
		t.Errorf("the pod that wants to be near is on %v", on)
	}
	if on := d.places("far"); len(on) != 1 || on["n0001"] != 0 {
		t.Errorf("the pod that wants to be far is on %v", on)
	}
	if why := d.gangs["pod/far"].KeptOff; why != "1: liked less than others" {
		t.Errorf("it says %q", why)
	}
}

// rather makes pods prefer to be spread evenly over zones.
func rather(app string, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Labels["app"] = app
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	}
	return pods
}

func shy(n *v1.Node) *v1.Node {
	n = n.DeepCopy()
	n.Spec.Taints = []v1.Taint{{Key: "rather-not", Effect: v1.TaintEffectPreferNoSchedule}}
	return n
}

// Pods are on nodes that would rather not have them only if there is no room on others,
// or if they tolerate it.
func TestPreferNoSchedule(t *testing.T) {
	d, now := still(t, 2)
	d.nodeChanged(shy(d.nodes.Node("n0000").Obj))
	steps(t, d)
	comeAndLook(t, d, now, controlplane.Pod("first", 5, nil))
	comeAndLook(t, d, now, controlplane.Pod("second", 5, nil))
	tolerant := controlplane.Pod("tolerant", 3, nil)
	tolerant.Spec.Tolerations = append(tolerant.Spec.Tolerations,
		v1.Toleration{Key: "rather-not", Operator: v1.TolerationOpExists})
	comeAndLook(t, d, now, tolerant)
	for name, node := range map[string]string{"first": "n0001", "second": "n0000", "tolerant": "n0000"} {
		if on := d.places(name); on[node] != 1 {
			t.Errorf("%s is on %v, not on %s", name, on, node)
		}
	}
}

// Single pods go to the emptiest zone, one after the other, and elsewhere if there is no
// room.
func TestPreferEven(t *testing.T) {
	d, now := still(t, 4)
	zones(d, 2)
	steps(t, d)
	var list []*v1.Pod
	for i := range 4 {
		list = append(list, rather("web", controlplane.Pod(fmt.Sprint("web-", i), 4, nil))...)
	}
	comeAndLook(t, d, now, list...)
	if on := d.places("web"); on["n0000"]+on["n0001"] != 2 || on["n0002"]+on["n0003"] != 2 {
		t.Errorf("four pods that come together are on %v", on)
	}
	full := controlplane.Pod("full", 8, nil)
	full.Spec.NodeSelector = map[string]string{"zone": "z1"}
	comeAndLook(t, d, now, full)
	for i := range 2 {
		comeAndLook(t, d, now, rather("web", controlplane.Pod(fmt.Sprint("more-", i), 4, nil))...)
	}
	if on := d.places("more"); on["n0000"]+on["n0001"] != 2 {
		t.Errorf("two more are on %v: there was room in the other zone", on)
	}
	for _, p := range d.pods {
		if p.Where == "" {
			t.Errorf("%s waits for a preference: %q %q", p.Obj.Name, p.Gang.Refused, p.Gang.KeptOff)
		}
	}
}

// testPrefer: where nothing else speaks for one node or another, the real kube-scheduler
// and Muster put a pod on the same.
func testPrefer(b *bench) {
	plain, second := controlplane.Node("n1", 4, map[string]string{"zone": "z1"}),
		controlplane.Node("n2", 4, map[string]string{"zone": "z2"})
	for _, n := range []*v1.Node{shy(plain), second} {
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.nodesReady()
	_, stop := b.schedule()
	defer stop()
	same := func(p *v1.Pod, want string) {
		b.Helper()
		for _, q := range []*v1.Pod{oracle(p, p.Name+"-k"), p} {
			b.create(q)
			b.wait(q.Name+" is bound", func() bool { return b.podIn(q).Spec.NodeName != "" })
			if at := b.podIn(q).Spec.NodeName; at != want {
				b.Errorf("%s is on %s, not on %s", q.Name, at, want)
			}
			b.gone(q)
		}
	}
	same(controlplane.Pod("shunned", 1, nil), "n2")
	there := controlplane.Pod("there", 1, map[string]string{"app": "web"})
	there.Spec.NodeName, there.Spec.SchedulerName = "n2", "other"
	b.create(there)
	even := rather("web", controlplane.Pod("even", 1, nil))[0]
	even.Spec.Tolerations = append(even.Spec.Tolerations,
		v1.Toleration{Key: "rather-not", Operator: v1.TolerationOpExists})
	same(even, "n1")
}
