package kube

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/show"
)

// sharedNode is a node whose GPUs are shared.
func sharedNode(name string, replicas, of int) *v1.Node {
	n := controlplane.Node(name, 0,
		map[string]string{"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360",
			"nvidia.com/gpu.replicas": strconv.Itoa(of)})
	n.Status.Allocatable["nvidia.com/gpu.shared"] = *resource.NewQuantity(int64(replicas), resource.DecimalSI)
	return n
}

// replicaPod asks for so many replicas.
func replicaPod(name string, n int64, more map[string]string) *v1.Pod {
	p := controlplane.Pod(name, 0, more)
	q := *resource.NewQuantity(n, resource.DecimalSI)
	r := &p.Spec.Containers[0].Resources
	r.Limits = v1.ResourceList{"nvidia.com/gpu.shared": q}
	r.Requests["nvidia.com/gpu.shared"] = q
	return p
}

// A replica is the share of a GPU that the nodes' label says; pods are told why
// nodes do not suit that do not say it, or that have whole GPUs besides.
func TestReplicaShare(t *testing.T) {
	d, _ := still(t, 0)
	bad, both := sharedNode("bad", 8, 0), sharedNode("both", 8, 4)
	both.Status.Capacity["nvidia.com/gpu"] = resource.MustParse("2")
	for _, n := range []*v1.Node{sharedNode("three", 6, 3), bad, both} {
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		d.nodeChanged(n)
	}
	one := replicaPod("one", 1, nil)
	one.UID = "1"
	d.podChanged(one)
	steps(t, d)
	p := d.pods["1"]
	if p.Request.GPUs != 1 || p.Request.Share != 333 || p.Assumed != "three" {
		t.Errorf("one of three replicas counts for %+v, on %q", p.Request, p.Assumed)
	}
	for name, want := range map[string]string{"three": "",
		"bad":  "label nvidia.com/gpu.replicas does not say how many replicas a GPU has (1 to 1000)",
		"both": "GPUs that are not shared beside those that are"} {
		if got := d.gpus.Replicable(&p.Replica, &p.Want, d.nodes.Node(name).Obj); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Replicas of shared GPUs: queues count them as the share of a GPU that they are,
// gangs of them start together, a higher tier takes them; one that waits for those of
// one size and fits elsewhere goes there; a scheduler that comes later, and pods
// of others, leave the count right.
func testReplicas(b *bench) {
	for _, n := range []*v1.Node{sharedNode("n0", 8, 4), sharedNode("n1", 8, 4), sharedNode("n2", 10, 10)} {
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	limits := smallQueue(500)
	d, stop := b.schedule(limits)
	b.create(gangOf(16, func(name string, labels map[string]string) *v1.Pod { return replicaPod(name, 1, labels) })...)
	b.wait("the gang has all quarters", func() bool {
		on := b.on("gang", v1.LabelHostname)
		return on["n0"] == 8 && on["n1"] == 8
	})
	for i := range 10 {
		b.create(replicaPod(fmt.Sprintf("tenth-%d", i), 1, map[string]string{LabelTier: "best-effort"}))
	}
	b.wait("what is left are tenths", func() bool { return b.on("tenth", v1.LabelHostname)["n2"] == 10 })
	b.used(d, map[string]int64{"rest": 5000})
	for i := range 5 {
		b.create(replicaPod(fmt.Sprintf("small-%d", i), 1, map[string]string{LabelQueue: "small"}))
	}
	b.wait("a higher tier takes the gang's, as many as its queue may have", func() bool {
		on := b.on("small", v1.LabelHostname)
		return on["n0"]+on["n1"] == 2 && len(b.on("gang", v1.LabelHostname)) == 0
	})
	b.used(d, map[string]int64{"small": 500, "rest": 1000})
	stop()
	other := replicaPod("other", 1, nil)
	other.Spec.NodeName, other.Spec.SchedulerName = "n1", "other"
	b.create(other)
	d, stop = b.schedule(limits)
	defer stop()
	for i := range 13 {
		b.create(replicaPod(fmt.Sprintf("more-%d", i), 1, nil))
	}
	b.wait("all quarters are used", func() bool {
		on := b.on("more", v1.LabelHostname)
		return on["n0"]+on["n1"] == 13
	})
	b.create(replicaPod("late", 1, nil), replicaPod("pair", 2, map[string]string{LabelTier: "best-effort"}))
	b.wait("one more waits", func() bool { return condition(b.pod("late")).Status == v1.ConditionFalse })
	b.gone(b.pod("tenth-3"))
	b.wait("the one that waited for a quarter gets the tenth that became free", func() bool {
		return b.pod("late").Spec.NodeName == "n2"
	})
	b.used(d, map[string]int64{"small": 500, "rest": 13*250 + 1000})
	b.wait("two on one node are not free", func() bool { return condition(b.pod("pair")).Status == v1.ConditionFalse })
	var freed int
	for _, p := range b.pods() {
		if p.Spec.NodeName == "n0" && strings.HasPrefix(p.Name, "more-") && freed < 2 {
			b.gone(&p)
			freed++
		}
	}
	b.wait("two of one pod are bound where two are free, and count for nothing", func() bool {
		return b.pod("pair").Spec.NodeName == "n0"
	})
}

// used waits until the queues hold so much, milli-GPU.
func (b *bench) used(d *Driver, want map[string]int64) {
	b.Helper()
	b.wait(fmt.Sprintf("the queues hold %v", want), func() bool {
		list, err := d.View().Queues(b.ctx)
		return err == nil &&
			!slices.ContainsFunc(list, func(q show.Queue) bool { return want[q.Name] != 0 && q.Used != want[q.Name] })
	})
}
