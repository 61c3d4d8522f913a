package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// TestState plays what tenants and nodes can write against a real API server.
func TestState(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sub("hostile", testHostile)
	b.sub("resized", testResized)
	b.sub("waiting", testWaitingChanges)
	b.sub("volumes", testVolumesChange)
	b.sub("nodes", testNodesLeave)
	b.sub("said", testSaid)
}

// areBound waits until pods are bound.
func (b *bench) areBound(names ...string) {
	b.Helper()
	for _, name := range names {
		b.wait("pod "+name+" is bound", func() bool { return b.pod(name).Spec.NodeName != "" })
	}
}

// saysWhy waits until the condition of a pod that waits says something.
func (b *bench) saysWhy(name, text string) {
	b.Helper()
	b.wait(fmt.Sprintf("pod %s waits and says %q", name, text), func() bool {
		p := b.pod(name)
		c := condition(p)
		return p.Spec.NodeName == "" && c.Status == v1.ConditionFalse && strings.Contains(c.Message, text)
	})
}

// event waits until there is an event about an object.
func (b *bench) event(name, reason string) {
	b.Helper()
	b.wait("there is an event "+reason+" about "+name, func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
		return err == nil &&
			slices.ContainsFunc(list.Items, func(e v1.Event) bool {
				return e.Reason == reason && e.InvolvedObject.Name == name
			})
	})
}

func (b *bench) patch(name, patch string, subresource ...string) {
	b.Helper()
	if _, err := b.c.CoreV1().Pods("default").Patch(b.ctx, name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresource...); err != nil {
		b.Fatal(err)
	}
}

func sealed(o *Options) { o.Seal = []byte("a key that tenants do not have") }

// What one tenant's pods claim about themselves does not end the scheduler, at its start or later, and holds
// nothing that they do not have: pods of others get all the rest. A gang that the scheduler bound is found
// again by the next one.
func testHostile(b *bench) {
	b.nodes(8, "n1", "n2", "n3")
	bound := func(name, node, plan string) *v1.Pod {
		return boundWith(controlplane.Pod(name, 0, nil), node, plan)
	}
	slice := bound("slice", "n1", "")
	slice.Spec.Containers[0].Resources.Limits = v1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1")}
	huge := controlplane.Pod("huge", 0, nil)
	huge.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("9223372036854775807")
	b.create(bound("absurd", "n1",
		`{"tasks":[{"count":1,"request":{"cpu":4611686018427387904}}],"on":[{"node":"n1","tasks":1}]}`),
		bound("everything", "n1",
			`{"tasks":[{"count":3,"request":{"gpus":8,"cpu":1000}}],"on":[{"node":"n1","tasks":1},{"node":"n2","tasks":1},{"node":"n3","tasks":1}]}`), slice, huge)
	_, stop := b.schedule(sealed)
	b.create(controlplane.Gang("g", 2, 8, nil)...)
	b.areBound("g-0", "g-1")
	b.event("absurd", "SetAside")
	b.event("everything", "SetAside")
	b.create(bound("later", "n2",
		`{"tasks":[{"count":1,"request":{"gpus":1,"share":-7}}],"on":[{"node":"n2","tasks":1}]}`),
		controlplane.Pod("a", 4, nil))
	b.areBound("a")
	b.event("later", "SetAside")
	stop()
	_, stop = b.schedule(sealed)
	defer stop()
	b.create(controlplane.Pod("b", 4, nil))
	b.areBound("b")
	b.create(controlplane.Pod("c", 4, nil))
	b.saysWhy("c", "GPU")
	if p := b.pod("huge"); p.Spec.NodeName != "" {
		b.Errorf("a pod that asks for more CPU than there is anywhere is bound to %s", p.Spec.NodeName)
	}
}

// Pods that are resized in place count for what they have, before and after a restart; and one whose node lost a GPU
// meanwhile does not keep the scheduler from starting.
func testResized(b *bench) {
	b.nodes(4, "n1")
	_, stop := b.schedule()
	for i := range 4 {
		b.create(controlplane.Pod(fmt.Sprint("p", i), 1, nil))
	}
	b.areBound("p0", "p1", "p2", "p3")
	resize := func(cpu string) {
		b.patch("p2", fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q}}}]}}`, cpu),
			"resize")
	}
	resize("60")
	b.create(cpus(controlplane.Pod("large", 0, nil), "50"))
	b.saysWhy("large", "50 CPU cores")
	n, err := b.c.CoreV1().Nodes().Get(b.ctx, "n1", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("3")
	if _, err := b.c.CoreV1().Nodes().UpdateStatus(b.ctx, n, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	stop()
	_, stop = b.schedule()
	defer stop()
	b.create(cpus(controlplane.Pod("small", 0, nil), "10"))
	b.areBound("small")
	if p := b.pod("large"); p.Spec.NodeName != "" {
		b.Error("large is bound beside a pod that was resized to 60 CPUs of 96")
	}
	resize("1")
	b.areBound("large")
	n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("4")
	if n, err = b.c.CoreV1().Nodes().Get(b.ctx, "n1", metav1.GetOptions{}); err == nil {
		n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("4")
		_, err = b.c.CoreV1().Nodes().UpdateStatus(b.ctx, n, metav1.UpdateOptions{})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// A pod that waits is looked at again when it tolerates more, names another queue or has fewer gates, with nothing else
// happening in the cluster.
func testWaitingChanges(b *bench) {
	tainted := controlplane.Node("n1", 8, nil)
	tainted.Spec.Taints = []v1.Taint{{Key: "team", Value: "a", Effect: v1.TaintEffectNoSchedule}}
	if _, err := b.c.CoreV1().Nodes().Create(b.ctx, tainted, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	_, stop := b.schedule(func(o *Options) {
		o.Rules.Spec.Queues = []cluster.Queue{{Name: "a", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
	})
	defer stop()
	gated := controlplane.Pod("gated", 1, map[string]string{LabelQueue: "a"})
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
	gated.Spec.Tolerations = []v1.Toleration{{Key: "team", Operator: v1.TolerationOpExists}}
	wrong := controlplane.Pod("wrong", 1, map[string]string{LabelQueue: "b"})
	wrong.Spec.Tolerations = gated.Spec.Tolerations
	b.create(controlplane.Pod("taint", 1, map[string]string{LabelQueue: "a"}), wrong, gated)
	b.saysWhy("taint", "taint team")
	b.saysWhy("wrong", `"b"`)
	b.patch("taint", `{"spec":{"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists"},{"key":"team","operator":"Exists"}]}}`)
	b.patch("wrong", `{"metadata":{"labels":{"muster.sh/queue":"a"}}}`)
	b.patch("gated", `{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/wait"}],"nodeSelector":{"kubernetes.io/hostname":"n1"}}}`)
	b.areBound("taint", "wrong", "gated")
}

// A pod that waits for its volume claim is looked at again when the claim, the volume or the class comes to be.
func testVolumesChange(b *bench) {
	b.nodes(8, "n1", "n2")
	_, stop := b.schedule()
	defer stop()
	p := controlplane.Pod("p", 1, nil)
	p.Spec.Volumes = []v1.Volume{
		{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	b.create(p)
	b.saysWhy("p", "volume claim c does not exist")
	class, size := "slow", v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class,
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: size}}}
	if _, err := b.c.CoreV1().PersistentVolumeClaims("default").Create(b.ctx, c, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.saysWhy("p", "volume claim c is not bound yet")
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"},
		Spec: v1.PersistentVolumeSpec{StorageClassName: class, Capacity: size, AccessModes: c.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/v"}},
			NodeAffinity: &v1.VolumeNodeAffinity{
				Required: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
						{Key: "kubernetes.io/hostname", Operator: v1.NodeSelectorOpIn, Values: []string{"n2"}}}}}}}}}
	if _, err := b.c.CoreV1().PersistentVolumes().Create(b.ctx, v, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.areBound("p")
	if at := b.pod("p").Spec.NodeName; at != "n2" {
		b.Errorf("it is on %s, and its volume on n2", at)
	}
	_ = b.c.CoreV1().PersistentVolumeClaims("default").Delete(b.ctx, "c", metav1.DeleteOptions{})
	_ = b.c.CoreV1().PersistentVolumes().Delete(b.ctx, "v", metav1.DeleteOptions{})
}

// Nodes that come and go are forgotten, and no text counts them.
func testNodesLeave(b *bench) {
	b.nodes(1, "n1")
	d, stop := b.schedule()
	for i := range 30 {
		b.nodes(1, fmt.Sprint("spot", i))
	}
	known := func() (n, order int) {
		done := make(chan bool)
		d.inbox.Put(func() { n, order = d.nodes.Kept().Known, len(d.nodes.Order()); close(done) })
		<-done
		return n, order
	}
	b.wait("all nodes are known", func() bool { n, order := known(); return n == 31 && order == 31 })
	for i := range 30 {
		if err := b.c.CoreV1().Nodes().Delete(b.ctx, fmt.Sprint("spot", i), metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.wait("one node is known", func() bool { n, order := known(); return n == 1 && order == 1 })
	b.create(controlplane.Pod("p", 2, nil))
	b.saysWhy("p", "2 GPUs")
	if text := condition(b.pod("p")).Message; strings.Contains(text, "31") || strings.Contains(text, "spot") {
		b.Errorf("it says %q", text)
	}
	stop()
}

// What is said: pods beyond their gang's size, slips in keys, evictions that a budget keeps.
func testSaid(b *bench) {
	b.nodes(2, "n1")
	_, stop := b.schedule()
	defer stop()
	five := controlplane.Gang("g", 2, 1, nil)
	extra := controlplane.Pod("extra", 1, map[string]string{LabelGang: "g", "!" + AnnotationSize: "2"})
	b.create(five...)
	b.areBound("g-0", "g-1")
	b.create(extra, controlplane.Pod("slip", 0, map[string]string{"muster.sh/teir": "critical"}))
	b.saysWhy("extra", "this one is beyond them")
	b.saysWhy("slip", `did you mean "muster.sh/tier"?`)
	b.patch("slip", `{"metadata":{"labels":{"muster.sh/teir":null}}}`)
	b.areBound("slip")
	for _, p := range append(five, extra) {
		_ = b.c.CoreV1().Pods("default").Delete(b.ctx, p.Name, metav1.DeleteOptions{})
	}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "keep"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "low"}}}}
	if _, err := b.c.PolicyV1().PodDisruptionBudgets("default").Create(b.ctx, budget,
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.create(controlplane.Pod("low", 2, map[string]string{"app": "low", LabelTier: "best-effort"}))
	b.wait("low runs", func() bool { p := b.pod("low"); return p.Status.Phase == v1.PodRunning })
	b.create(controlplane.Pod("high", 2, map[string]string{LabelTier: "critical"}))
	b.event("low", "EvictionRefused")
	list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == "Preempted" && e.InvolvedObject.Name == "low" {
			b.Errorf("low is told %q, and its budget keeps it", e.Message)
		}
	}
	if err := b.c.PolicyV1().PodDisruptionBudgets("default").Delete(b.ctx, "keep", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.event("low", "Preempted")
	b.areBound("high")
}
