package main

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// TestWhyShares has muster why say what pods got that want something of their GPUs, and what
// there is for one for whom nothing is enough.
func TestWhyShares(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start()
	ann := s.p.User("ann")
	s.let(rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"})
	two := resource.MustParse("2")
	for name, how := range map[string]string{"turns": "time-slicing", "parts": "mps"} {
		n := controlplane.Node(name, 0,
			map[string]string{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED",
				"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.replicas": "2",
				"nvidia.com/gpu.sharing-strategy": how})
		n.Status.Allocatable["nvidia.com/gpu.shared"] = two
		s.create(n)
	}
	pod := func(name, isolation string) {
		p := controlplane.Pod(name, 0, map[string]string{"!muster.sh/isolation": isolation})
		r, one := &p.Spec.Containers[0].Resources, resource.MustParse("1")
		r.Requests["nvidia.com/gpu.shared"], r.Limits = one, v1.ResourceList{"nvidia.com/gpu.shared": one}
		s.create(p)
	}
	pod("first", "memory")
	pod("second", "memory")
	const got = "on parts; gets a replica by mps, 1 of 2 of a GPU (40960 MiB): enforced: memory by MPS; compute by MPS, for isolation memory"
	s.must(ann, []string{"why", "default/first"}, "running", got)
	s.must(ann, []string{"why", "default/second"}, "running", got)
	pod("third", "memory")
	s.must(ann, []string{"why", "default/third"}, "waiting", "gets what is enough for isolation memory on 1 of 2 nodes",
		"default/first")
	pod("apart", "full")
	s.must(ann, []string{"why", "default/apart"},
		"none of 2 nodes suits it (1: it shares GPUs by mps, which is not enough for isolation full; 1: it shares GPUs by time-slicing, which is not enough for isolation full)",
		"there are nvidia.com/gpu.shared by mps, 1 of 2 of a GPU with 40960 MiB (nodes: 1); nvidia.com/gpu.shared by time-slicing, 1 of 2 of a GPU with 40960 MiB (nodes: 1)")
	pod("open", "none")
	s.must(ann, []string{"why", "default/open"}, "running", "on turns; gets a replica by time-slicing",
		"declared only: neither memory nor compute is enforced")
}
