package gpus

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Where a node is comes from the stated labels, else from those that Topograph and Kueue's examples use.
func TestPlace(t *testing.T) {
	l := &Labels{Clique: "nvidia.com/gpu.clique", Rack: "my/rack"}
	for _, c := range []struct {
		labels map[string]string
		want   [3]string
	}{
		{map[string]string{"nvidia.com/gpu.clique": "c", "my/rack": "r", "network.topology.nvidia.com/leaf": "other"},
			[3]string{"c", "r", ""}},
		{map[string]string{"network.topology.nvidia.com/accelerator": "a", "network.topology.nvidia.com/leaf": "l",
			"network.topology.nvidia.com/spine": "s", "network.topology.nvidia.com/core": "x"},
			[3]string{"a", "l", "s"}},
		{map[string]string{"accelerator.topograph.run/domain": "a", "fabric.topograph.run/tier-0": "l",
			"fabric.topograph.run/tier-1": "s"}, [3]string{"a", "l", "s"}},
		{map[string]string{"cloud.provider.com/topology-rack": "l", "cloud.provider.com/topology-block": "s"},
			[3]string{"", "l", "s"}},
		{nil, [3]string{}},
	} {
		var got [3]string
		if got[0], got[1], got[2] = l.Place(c.labels); got != c.want {
			t.Errorf("%v: %v, want %v", c.labels, got, c.want)
		}
	}
	for label, want := range map[string]cluster.Level{"my/rack": cluster.LevelRack,
		"nvidia.com/gpu.clique":             cluster.LevelNVLink,
		"cloud.provider.com/topology-block": cluster.LevelFabric, "kubernetes.io/hostname": cluster.LevelNode,
		"": cluster.LevelAny, "x": cluster.LevelAny} {
		if got, known := l.Level(label); got != want || known != (want != cluster.LevelAny) {
			t.Errorf("%q: %v %v, want %v", label, got, known, want)
		}
	}
}
