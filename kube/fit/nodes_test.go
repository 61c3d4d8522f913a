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

// What any predicate looks at makes two states of a node differ, and nothing else does.
func TestDiffer(t *testing.T) {
	all := NewNodes(Devices{GPUs: []string{"nvidia.com/gpu"}, Slice: func(v1.ResourceName) bool { return false },
		Shared: func(v1.ResourceName) bool { return false }}, "own")
	for _, c := range []struct {
		change func(n *v1.Node)
		want   bool
	}{
		{func(*v1.Node) {}, false},
		{func(n *v1.Node) { n.Labels["zone"] = "b" }, true},
		{func(n *v1.Node) { n.Labels["own"] = "b" }, false},
		{func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}} }, true},
		{func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "node.kubernetes.io/not-ready"}} }, false},
		{func(n *v1.Node) { n.Status.Capacity = list("nvidia.com/gpu") }, true},
		{func(n *v1.Node) { n.Status.Capacity = list("cpu") }, false},
		{func(n *v1.Node) { n.Status.Phase = v1.NodeRunning }, false},
	} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "a"}}}
		is := n.DeepCopy()
		c.change(is)
		if got := all.Differ(n, is); got != c.want {
			t.Errorf("%+v: %v", is, got)
		}
	}
}

// Each predicate keeps a pod off a node for its own reason, and what it goes by makes another key.
func TestNodes(t *testing.T) {
	all := NewNodes(Devices{GPUs: []string{"nvidia.com/gpu", "amd.com/gpu"},
		Slice:  func(n v1.ResourceName) bool { return strings.Contains(string(n), "/mig-") },
		Shared: func(n v1.ResourceName) bool { return strings.HasSuffix(string(n), ".shared") }})
	no, shy := v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
	n.Status.Capacity = list("nvidia.com/gpu", "nvidia.com/mig-1g.10gb")
	n.Spec.Taints = []v1.Taint{{Key: "team", Effect: no}, {Key: "node.kubernetes.io/not-ready", Effect: no},
		{Key: "shy", Effect: shy}}
	tolerates := []v1.Toleration{{Key: "team", Operator: v1.TolerationOpExists}}
	pod := func(tolerations []v1.Toleration, zone map[string]string, asks ...v1.ResourceName) Pod {
		return Pod{&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerations, NodeSelector: zone}}, list(asks...)}
	}
	seen := map[string]bool{}
	for _, c := range []struct {
		pod  Pod
		want string
	}{
		{pod(tolerates, nil, "nvidia.com/gpu"), ""},
		{pod(tolerates, nil, "nvidia.com/mig-1g.10gb"), ""},
		{pod(tolerates, nil, "nvidia.com/gpu.shared"), ""}, // another predicate's matter
		{pod(nil, nil, "nvidia.com/gpu"), "taint team"},
		{pod(tolerates, map[string]string{"zone": "b"}), "its node selector or affinity"},
		{pod(tolerates, nil, "amd.com/gpu"), "no amd.com/gpu"},
		{pod(tolerates, nil, "nvidia.com/mig-2g.20gb"), "no nvidia.com/mig-2g.20gb"},
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
