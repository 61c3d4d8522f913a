package fit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/kube/gpus"
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
	all := NewNodes(&gpus.Names{GPUs: []string{"nvidia.com/gpu"}}, "own")
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
	all := NewNodes(&gpus.Names{GPUs: []string{"nvidia.com/gpu", "amd.com/gpu"}})
	no, shy := v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
	n.Status.Capacity = list("nvidia.com/gpu", "nvidia.com/mig-1g.10gb")
	n.Spec.Taints = []v1.Taint{{Key: "team", Effect: no}, {Key: "node.kubernetes.io/not-ready", Effect: no},
		{Key: "shy", Effect: shy}}
	tolerates := []v1.Toleration{{Key: "team", Operator: v1.TolerationOpExists}}
	pod := func(tolerations []v1.Toleration, zone map[string]string, asks ...v1.ResourceName) Pod {
		obj := &v1.Pod{Spec: v1.PodSpec{Tolerations: tolerations, NodeSelector: zone}}
		return Pod{Obj: obj, Requests: list(asks...)}
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

// What is settled of a pod after it was read tells it apart from others like it, and keeps it off nodes.
func TestSettled(t *testing.T) {
	all := NewNodes(&gpus.Names{GPUs: []string{"nvidia.com/gpu"},
		Labels: gpus.Labels{Stated: gpus.Stated{Replicas: "of"}}})
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"of": "4"}}}
	n.Status.Capacity = list("nvidia.com/gpu.shared")
	p := Pod{Obj: &v1.Pod{}, Requests: list("nvidia.com/gpu.shared"),
		Replica: gpus.Replica{Name: "nvidia.com/gpu.shared", N: 1, One: true}}
	if text := all.Settled(&p); text != "" || all.Suits(&p, n) != "" {
		t.Errorf("nothing is settled of it: %q, and it is kept off by %q", text, all.Suits(&p, n))
	}
	p.Replica.Settled, p.Replica.Of = true, 2
	if got := all.Suits(&p, n); all.Settled(&p) == "" || got != "4 replicas of a GPU, not 2" {
		t.Errorf("%q: %q", all.Settled(&p), got)
	}
	p.Replica.Of, p.Want.Cores = 4, 500
	if got := all.Suits(&p, n); got != "a replica there is 25 % of a GPU's compute, not 50 %" {
		t.Errorf("%q: %q", all.Settled(&p), got)
	}
}
