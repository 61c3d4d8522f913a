package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
)

func apart(key string, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Labels["app"] = "apart"
		p.Spec.Affinity = &v1.Affinity{
			PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "apart"}},
				TopologyKey:   key}}}}
	}
	return pods
}

// on counts the pods of a name's prefix by a label of their nodes.
func (b *bench) on(prefix, key string) map[string]int {
	b.Helper()
	list, err := b.c.CoreV1().Nodes().List(b.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	value, count := map[string]string{}, map[string]int{}
	for _, n := range list.Items {
		value[n.Name] = n.Labels[key]
	}
	for _, p := range b.pods() {
		if strings.HasPrefix(p.Name, prefix) && live(&p) {
			count[value[p.Spec.NodeName]]++
		}
	}
	return count
}

// What pods are to each other: gangs and single pods that want to be apart, or
// together, or evenly spread; ports of the node.
func testNeighbours(b *bench) {
	for i := range 6 {
		n := controlplane.Node(fmt.Sprintf("n%d", i), 8, map[string]string{"zone": fmt.Sprintf("z%d", i%3)})
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	_, stop := b.schedule()
	defer stop()
	b.create(apart(v1.LabelHostname, controlplane.Gang("hosts", 4, 1, nil)...)...)
	b.wait("the gang is on four nodes", func() bool { return len(b.on("hosts", v1.LabelHostname)) == 4 })
	for i := range 4 { // two nodes are left for them; they come one after the other
		b.create(apart(v1.LabelHostname, controlplane.Pod(fmt.Sprintf("lone-%d", i), 1, nil))...)
	}
	b.wait("two of the lone pods have a node of their own", func() bool {
		return len(b.on("lone", v1.LabelHostname)) == 2
	})
	b.wait("the next says what keeps it off", func() bool {
		return slices.ContainsFunc(b.pods(), func(p v1.Pod) bool {
			return strings.HasPrefix(p.Name, "lone") &&
				strings.Contains(condition(&p).Message, "6: a pod that wants none like it near")
		})
	})
	b.gone(b.pod("hosts-0"))
	b.wait("a third takes the place of one that went", func() bool { return len(b.on("lone", v1.LabelHostname)) == 3 })
	b.clearPods()

	zones := controlplane.Gang("zones", 6, 1, nil)
	for _, p := range zones {
		p.Labels["app"] = "even"
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "even"}}}}
	}
	b.create(zones...)
	b.wait("two pods of the gang are in each zone", func() bool {
		on := b.on("zones", "zone")
		return on["z0"] == 2 && on["z1"] == 2 && on["z2"] == 2
	})
	b.clearPods()

	for i := range 3 { // one GPU of each zone
		p := controlplane.Pod(fmt.Sprintf("fill-%d", i), 1, nil)
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: fmt.Sprintf("n%d", i)}
		b.create(p)
	}
	b.wait("all zones are in use", func() bool { return len(b.on("fill", "zone")) == 3 })
	near := controlplane.Gang("near", 4, 4, nil)
	for _, p := range near {
		p.Labels["app"] = "near"
		p.Spec.Affinity = &v1.Affinity{
			PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "near"}},
				TopologyKey:   "zone"}}}}
	}
	b.create(near...) // 16 GPUs of one zone
	b.wait("the gang says that no zone has room for all of it", func() bool {
		return strings.Contains(condition(b.pod("near-0")).Message, "16 GPUs")
	})
	b.gone(b.pod("fill-1"))
	b.wait("the gang is in the zone that became free", func() bool { return b.on("near", "zone")["z1"] == 4 })

	meek := controlplane.Pod("meek", 8, map[string]string{LabelTier: "critical"})
	never := v1.PreemptNever
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "meek"}, Value: 1000,
		PreemptionPolicy: &never}
	b.priorityClass(class)
	meek.Spec.PriorityClassName = class.Name
	b.create(controlplane.Gang("low", 4, 6, map[string]string{LabelTier: "best-effort"})...)
	b.wait("low runs", func() bool { return len(b.on("low", v1.LabelHostname)) == 4 })
	b.create(meek)
	b.wait("meek waits", func() bool { return condition(b.pod("meek")).Status == v1.ConditionFalse })
	if n := len(b.on("low", v1.LabelHostname)); n != 4 {
		b.Errorf("low has %d pods: it was preempted for a pod that never preempts", n)
	}
}

// clearPods leaves the nodes.
func (b *bench) clearPods() {
	b.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	for _, p := range b.pods() { // of a gang that was bound a moment ago the scheduler may delete the others
		if err := b.c.CoreV1().Pods(p.Namespace).Delete(b.ctx, p.Name, now); err != nil && !apierrors.IsNotFound(err) {
			b.Fatal(err)
		}
	}
	b.wait("no pod is left", func() bool { return len(b.pods()) == 0 })
}

// What is remembered of one pod's limits is not another's that only looks like it:
// same labels, but other resources or ports.
func TestLimitsOfTwins(t *testing.T) {
	d, _ := still(t, 1)
	n := d.nodes.Node("n0000").Obj.DeepCopy()
	n.Status.Allocatable["example.com/hca"] = resource.MustParse("1")
	d.nodeChanged(n)
	steps(t, d)
	var pods []*gang.Pod
	for i, hca := range []string{"1", "2"} {
		p := controlplane.Pod(fmt.Sprintf("twin-%d", i), 0, nil)
		p.UID = types.UID(p.Name)
		p.Spec.Containers[0].Resources.Requests["example.com/hca"] = resource.MustParse(hca)
		d.podChanged(p)
		pods = append(pods, d.pods[p.UID])
	}
	one, two := d.reader.Limits(pods[:1], false, true), d.reader.Limits(pods[1:], false, true)
	if len(one.Nodes) != 0 || len(two.Nodes) != 1 {
		t.Errorf("of a node with one HCA a pod with one is told %+v, and one with two %+v", one, two)
	}
}

// A spread whose selector selects all pods counts none, as kube-scheduler has it: only
// nodes without the label are closed.
func TestSpreadEmptySelector(t *testing.T) {
	d, now := still(t, 1)
	var pods []*v1.Pod
	for i := range 3 {
		p := controlplane.Pod(fmt.Sprintf("p%d", i), 1, nil)
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: v1.LabelHostname, MinDomains: ptr.To[int32](7),
				WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}}}
		pods = append(pods, p)
	}
	d.come(t, now, pods...)
	d.expectBinding(t, "p0", "p1", "p2")
}
