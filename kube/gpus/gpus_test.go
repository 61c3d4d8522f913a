package gpus

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
)

func names() *Names {
	return &Names{GPUs: []string{"nvidia.com/gpu"}, Labels: Labels{Stated: Stated{Product: "product", Memory: "memory",
		Replicas: "replicas", Sharing: "sharing"}}}
}

func node(labels map[string]string, have ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	n.Status.Capacity = list(have...)
	n.Status.Allocatable = n.Status.Capacity
	return n
}

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// The device plugin's names of models are ours where we know them.
func TestModels(t *testing.T) {
	c := names()
	for _, k := range []struct{ product, memory, want string }{
		{"NVIDIA-H100-80GB-HBM3", "81559", "H100-80GB"},
		{"NVIDIA-A100-SXM4-40GB", "40960", "A100-40GB"},
		{"Tesla-T4", "15360", "T4-16GB"},
		{"NVIDIA-H200", "143771", "H200-141GB"},
		{"AMD-Instinct-MI300X", "196608", "AMD-Instinct-MI300X"},
		{"", "", UnknownModel},
	} {
		if got := c.Model(node(map[string]string{"product": k.product, "memory": k.memory})); got != k.want {
			t.Errorf("%s with %s MiB is %s, not %s", k.product, k.memory, got, k.want)
		}
	}
	c.Published = func(string) (int, string) { return 8, "NVIDIA H100 80GB HBM3" }
	if got := c.Model(node(nil)); got != "H100-80GB" {
		t.Errorf("a node without the label, whose driver names its product, has %s", got)
	}
}

// What a resource's name says of GPUs.
func TestNames(t *testing.T) {
	c := names()
	for name, want := range map[v1.ResourceName]bool{"nvidia.com/gpu.shared": true, "nvidia.com/gpu": false,
		"amd.com/gpu.shared": false, "nvidia.com/mig-1g.5gb.shared": false} {
		if c.Shared(name) != want {
			t.Errorf("%s counts as replicas of GPUs: %v", name, !want)
		}
	}
	for name, want := range map[v1.ResourceName]string{"nvidia.com/mig-3g.40gb": "3g.40gb",
		"nvidia.com/mig-1g.10gb.me": "1g.10gb+me", "nvidia.com/mig-1g.5gb.shared": "", "amd.com/mig-1g.5gb": ""} {
		if got, ok := c.Slice(name); got != want || ok != (want != "") {
			t.Errorf("%s is the slice %q", name, got)
		}
	}
	for _, k := range []struct {
		asks   v1.ResourceList
		counts cluster.Request
		rest   int // what the engine does not count
	}{
		{list("nvidia.com/gpu", "2", "cpu", "1"), cluster.Request{GPUs: 2, CPU: 1000}, 0},
		{list("nvidia.com/mig-1g.10gb", "1"), cluster.Request{GPUs: 1, Profile: "1g.10gb"}, 0},
		{list("nvidia.com/mig-1g.10gb", "2"), cluster.Request{}, 1},
		{list("nvidia.com/mig-1g.10gb", "1", "nvidia.com/gpu", "1"), cluster.Request{GPUs: 1}, 1},
		{list("nvidia.com/gpu.shared", "1"), cluster.Request{}, 0},
		{list("nvidia.com/gpu.shared", "2"), cluster.Request{}, 1},
		{list("rdma/hca", "1"), cluster.Request{}, 1},
	} {
		if got := c.RequestIn(k.asks); got != k.counts {
			t.Errorf("%v counts for %+v", k.asks, got)
		}
		if got := c.Uncounted(&v1.Pod{}, k.asks); len(got) != k.rest {
			t.Errorf("of %v the engine does not count %v", k.asks, got)
		}
	}
}

// Replicas are as many GPUs as their label says, less those that nothing healthy is left of.
func TestReplicas(t *testing.T) {
	c := names()
	n := node(map[string]string{"replicas": "4"}, "nvidia.com/gpu.shared", "8")
	n.Status.Allocatable = list("nvidia.com/gpu.shared", "7")
	s := c.ReplicasOn(n)
	s.Take(&Replica{Name: s.Name, N: 1}, true)
	s.Take(&Replica{Name: s.Name, N: 3}, false)
	s.Take(&Replica{Name: "other", N: 9}, false)
	if s.GPUs() != 2 || s.Free != 3 || s.Aside != 4 || s.Lost(2) != 1 {
		t.Errorf("%+v: %d GPUs, %d lost", s, s.GPUs(), s.Lost(2))
	}
	one := &Replica{Name: s.Name, N: 1, One: true}
	for want, n := range map[string]*v1.Node{
		"":                         n,
		"no nvidia.com/gpu.shared": node(nil, "nvidia.com/gpu", "8"),
		"GPUs that are not shared beside those that are": node(map[string]string{"replicas": "4"},
			"nvidia.com/gpu.shared", "8", "nvidia.com/gpu", "2"),
		"label replicas does not say how many replicas a GPU has (1 to 1000)": node(
			map[string]string{"replicas": "many"},
			"nvidia.com/gpu.shared", "8"),
	} {
		if got := c.Replicable(one, &Want{}, n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
