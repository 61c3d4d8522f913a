package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/kubetest"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/perf"
)

// says puts annotations on a pod.
func saying(p *v1.Pod, says map[string]string) *v1.Pod {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	for key, value := range says {
		p.Annotations[key] = value
	}
	return p
}

// A claim that is open gets devices that have what its pod wants. One that wants to be kept apart
// from others is not on the devices of a claim with them, unless they share as it wants,
// whichever was there first; nor is one that would be slower there than it accepts.
func testDevicesWanted(b *bench) {
	b.classes()
	b.gpuNodes(4, "n1") // two with 80 GiB, two with 40
	_, stop := b.schedule(func(o *Options) {
		table := kubetest.Pairs(map[string]int64{"a/b": 900_000})
		table.Slicing = &perf.TimeSlicing{Duty: map[string]int64{"a": 700_000, "b": 700_000}}
		o.Rules.Perf = table
	})
	defer stop()
	b.template("any", kubetest.Asks(1, ""))
	memory := map[string]string{AnnotationMemory: "60GiB"}
	for _, name := range []string{"large-0", "large-1", "large-2"} {
		b.create(saying(with("", "any", controlplane.Pod(name, 0, nil))[0], memory))
	}
	b.wait("the GPUs with so much memory are given away", func() bool {
		count := 0
		for _, name := range []string{"large-0", "large-1", "large-2"} {
			for _, dev := range b.devicesOf(name) {
				if count++; dev != "n1/gpu-0" && dev != "n1/gpu-1" {
					b.Fatalf("pod %s has %s", name, dev)
				}
			}
		}
		return count == 2
	})
	b.create(saying(with("", "any", controlplane.Pod("huge", 0, nil))[0],
		map[string]string{AnnotationMemory: "100GiB"}))
	b.says("huge", "asks for devices that no node has with what its pod wants (102400 MiB of GPU memory)")

	b.resourceClaim("turns", kubetest.Asks(1, ""))
	use := func(claim, name string, says map[string]string) {
		b.create(saying(with(claim, "", controlplane.Pod(name, 0, nil))[0], says))
	}
	use("turns", "first", map[string]string{AnnotationModel: "a"})
	b.runs("first")
	use("turns", "apart", map[string]string{AnnotationIsolation: "full"})
	b.says("apart", "resource claim turns is for 2 pods at a time, which share by time-slicing: that is not enough for isolation full of pod apart")
	use("turns", "fast", map[string]string{AnnotationModel: "b", AnnotationSpeed: "0.8"})
	b.says("fast", "pod fast would be at 0.71 of its speed beside others on the devices of resource claim turns, and asks for 0.8")
	b.gone(b.pod("first"))
	b.wait("one of them is alone there, the other waits", func() bool {
		return (b.pod("apart").Spec.NodeName == "") != (b.pod("fast").Spec.NodeName == "")
	})
	if b.pod("apart").Spec.NodeName == "" {
		b.gone(b.pod("fast"))
		b.runs("apart")
	} else {
		b.gone(b.pod("fast"))
	}
	use("turns", "late", nil)
	b.says("late", "is not enough for isolation full of pod apart")

	b.resourceClaim("mps", kubetest.ByMPS(kubetest.Asks(1, ""), "20Gi"))
	use("mps", "kept-0", map[string]string{AnnotationIsolation: "memory", AnnotationMemory: "16GiB"})
	use("mps", "kept-1", map[string]string{AnnotationIsolation: "memory", AnnotationModel: "b", AnnotationSpeed: "0.9"})
	use("mps", "kept-2", map[string]string{AnnotationModel: "a"}) // under MPS they do not take turns
	b.runs("kept-0", "kept-1", "kept-2")
	use("mps", "more", map[string]string{AnnotationMemory: "24GiB"})
	b.says("more", "that is not enough for 24576 MiB of GPU memory of pod more")
}
