package fit

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func list(names ...v1.ResourceName) v1.ResourceList {
	l := v1.ResourceList{}
	for _, name := range names {
		l[name] = resource.MustParse("1")
	}
	return l
}

// Each predicate keeps a pod off a node for its own reason, and what it goes by makes another key.
func TestNodes(t *testing.T) {
	all := NewNodes(Devices{GPUs: []string{"nvidia.com/gpu", "amd.com/gpu"},
		Slice:  func(n v1.ResourceName) bool { return strings.Contains(string(n), "/mig-") },
		Shared: func(n v1.ResourceName) bool { return strings.HasSuffix(string(n), ".shared") }})
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}, Status: v1.NodeStatus{Capacity: list("nvidia.com/gpu", "nvidia.com/mig-1g.10gb")},
		Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}, {Key: "node.kubernetes.io/not-ready", Effect: v1.TaintEffectNoSchedule}, {Key: "shy", Effect: v1.TaintEffectPreferNoSchedule}}}}
	tolerates := []v1.Toleration{{Key: "team", Operator: v1.TolerationOpExists}}
	seen := map[string]bool{}
	for _, c := range []struct {
		pod  Pod
		want string
	}{
		{Pod{&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerates}}, list("nvidia.com/gpu")}, ""},
		{Pod{&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerates}}, list("nvidia.com/mig-1g.10gb")}, ""},
		{Pod{&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerates}}, list("nvidia.com/gpu.shared")}, ""}, // another predicate's matter
		{Pod{&v1.Pod{}, list("nvidia.com/gpu")}, "taint team"},
		{Pod{&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerates, NodeSelector: map[string]string{"zone": "b"}}}, nil}, "its node selector or affinity"},
		{Pod{&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerates}}, list("amd.com/gpu")}, "no amd.com/gpu"},
		{Pod{&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerates}}, list("nvidia.com/mig-2g.20gb")}, "no nvidia.com/mig-2g.20gb"},
	} {
		if got := all.Suits(&c.pod, n); got != c.want {
			t.Errorf("%+v: %q, not %q", c.pod, got, c.want)
		}
		key := all.Key(&c.pod)
		if seen[key] || key != all.Key(&c.pod) {
			t.Errorf("another pod has the key %s", key)
		}
		seen[key] = true
	}
}
