package kube

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// migPod asks for a slice.
func migPod(name, profile string, more map[string]string) *v1.Pod {
	p := controlplane.Pod(name, 0, more)
	one := *resource.NewQuantity(1, resource.DecimalSI)
	r := &p.Spec.Containers[0].Resources
	r.Limits = v1.ResourceList{v1.ResourceName("nvidia.com/mig-" + profile): one}
	r.Requests[v1.ResourceName("nvidia.com/mig-"+profile)] = one
	return p
}

// smallQueue has a queue with a limit, in milli-GPU, and one for all others.
func smallQueue(limit cluster.Milli) func(*Options) {
	return func(o *Options) {
		o.Rules.Spec.Queues = []cluster.Queue{{Name: "small", Limit: limit, Lend: cluster.Unlimited},
			{Name: "rest", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
		o.DefaultQueue = "rest"
	}
}

// gangOf is a gang of the lowest tier, each of whose pods is made by a function.
func gangOf(size int, pod func(name string, labels map[string]string) *v1.Pod) (gang []*v1.Pod) {
	for _, p := range controlplane.Gang("gang", size, 0, map[string]string{LabelTier: "best-effort"}) {
		g := pod(p.Name, p.Labels)
		g.Annotations = p.Annotations
		gang = append(gang, g)
	}
	return gang
}

// MIG slices: single pods and gangs get them, whole GPUs beside them; a higher
// tier takes them; queues count them for what they are; a scheduler that comes
// later knows whose they are.
func testSlices(b *bench) {
	for i := range 2 {
		n := controlplane.Node(fmt.Sprintf("n%d", i), 2, nil)
		n.Labels["nvidia.com/gpu.product"], n.Labels["nvidia.com/gpu.memory"] = "NVIDIA-A100-SXM4-40GB", "40960"
		n.Status.Allocatable["nvidia.com/mig-3g.20gb"] = resource.MustParse("4")
		n.Status.Allocatable["nvidia.com/mig-1g.5gb"] = resource.MustParse("7")
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, n, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	limits := smallQueue(1500)
	_, stop := b.schedule(limits)
	b.create(gangOf(8, func(name string, labels map[string]string) *v1.Pod {
		return migPod(name, "3g.20gb", labels)
	})...)
	b.create(controlplane.Gang("whole", 2, 2, nil)...)
	b.wait("the gang has all slices of its profile", func() bool {
		return len(b.on("gang", v1.LabelHostname)) == 2 && b.on("gang", v1.LabelHostname)["n0"] == 4
	})
	b.wait("whole GPUs are used beside them", func() bool { return len(b.on("whole", v1.LabelHostname)) == 2 })
	for i := range 5 { // 3/7 of a GPU each: three are 1284 thousandths
		b.create(migPod(fmt.Sprintf("small-%d", i), "3g.20gb", map[string]string{LabelQueue: "small"}))
	}
	b.wait("a higher tier takes the gang's slices, as many as its queue may have", func() bool {
		on := b.on("small", v1.LabelHostname)
		return on["n0"]+on["n1"] == 3 && len(b.on("gang", v1.LabelHostname)) == 0
	})
	b.wait("the others say that the queue is full", func() bool {
		waits := 0
		for _, p := range b.pods() {
			if p.Labels[LabelQueue] == "small" && p.Spec.NodeName == "" && condition(&p).Status == v1.ConditionFalse {
				waits++
			}
		}
		return waits == 2
	})
	stop()
	_, stop = b.schedule(limits)
	defer stop()
	for i := range 14 {
		b.create(migPod(fmt.Sprintf("ones-%d", i), "1g.5gb", nil))
	}
	b.wait("all slices of the small profile are used", func() bool {
		on := b.on("ones", v1.LabelHostname)
		return on["n0"] == 7 && on["n1"] == 7
	})
	late := migPod("late", "1g.5gb", nil)
	b.create(late)
	b.wait("one more waits", func() bool { return condition(b.pod("late")).Status == v1.ConditionFalse })
	b.gone(b.pod("ones-3"))
	b.wait("it gets the one that became free", func() bool { return b.pod("late").Spec.NodeName != "" })
	on := b.on("small", v1.LabelHostname)
	if on["n0"]+on["n1"] != 3 {
		b.Errorf("%v of queue small run: a scheduler that came later lost count", on)
	}
}
