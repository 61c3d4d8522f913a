package controlplane

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a node with GPUs for KWOK to simulate, with labels as NVIDIA's plugin sets them.
func Node(name string, gpus int, labels map[string]string) *v1.Node {
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse("96"), v1.ResourceMemory: resource.MustParse("1Ti"),
		v1.ResourcePods: resource.MustParse("110")}
	l := map[string]string{"kubernetes.io/hostname": name}
	if gpus > 0 {
		size["nvidia.com/gpu"] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		l["nvidia.com/gpu.product"], l["nvidia.com/gpu.memory"] = "NVIDIA-H100-80GB-HBM3", "81559"
	}
	for k, v := range labels {
		l[k] = v
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l},
		Status: v1.NodeStatus{Capacity: size, Allocatable: size}}
}

// Pod is a pod for Muster with this many GPUs. more are labels, and annotations where a "!" precedes the key.
func Pod(name string, gpus int, more map[string]string) *v1.Pod {
	grace := int64(1)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{},
		Annotations: map[string]string{}},
		Spec: Spec(gpus)}
	p.Spec.TerminationGracePeriodSeconds = &grace
	for k, v := range more {
		if a, ok := strings.CutPrefix(k, "!"); ok {
			p.Annotations[a] = v
		} else {
			p.Labels[k] = v
		}
	}
	return p
}

// Spec is the spec of Pod.
func Spec(gpus int) v1.PodSpec {
	c := v1.Container{Name: "main", Image: "none",
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}
	if gpus > 0 {
		q := *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		c.Resources.Limits = v1.ResourceList{"nvidia.com/gpu": q}
		c.Resources.Requests["nvidia.com/gpu"] = q
	}
	return v1.PodSpec{SchedulerName: "muster", RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{c},
		Tolerations: []v1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: v1.TolerationOpExists}}}
}

// Gang is the pods of a gang that is defined by label.
func Gang(name string, size, gpus int, more map[string]string) (list []*v1.Pod) {
	for i := range size {
		p := Pod(fmt.Sprintf("%s-%d", name, i), gpus, more)
		p.Labels["muster.sh/gang"], p.Annotations["muster.sh/gang-size"] = name, fmt.Sprint(size)
		list = append(list, p)
	}
	return list
}
