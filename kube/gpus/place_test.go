package gpus

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Where a node is comes from the stated labels, else from those that Topograph and Kueue's examples use.
func TestPlace(t *testing.T) {
	l := &Labels{Stated: Stated{Clique: "nvidia.com/gpu.clique", Rack: "my/rack"}}
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
		if got[0], got[1], got[2], _ = l.Place(c.labels); got != c.want {
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

// A topology's levels say where nodes are, after stated labels and before well-known ones.
func TestTopologies(t *testing.T) {
	l := &Labels{Stated: Stated{Clique: "my/clique"}}
	if !l.SetTopologies([][]string{{"far", "block", "rack", "my/clique", "kubernetes.io/hostname"}, {"other"}, {}}) ||
		l.SetTopologies([][]string{{"far", "block", "rack"}, {"other"}}) {
		t.Error("what changes is not noticed, or what does not is")
	}
	place := func(labels map[string]string) (p [3]string) {
		p[0], p[1], p[2], _ = l.Place(labels)
		return p
	}
	const known = "network.topology.nvidia.com/leaf"
	if got := place(map[string]string{"far": "f", "block": "b", "rack": "r", "my/clique": "c", known: "x"}); got !=
		[3]string{"c", "r", "b"} {
		t.Errorf("by levels: %q", got)
	}
	if got := place(map[string]string{"other": "o", known: "x"}); got != [3]string{"", "o", ""} {
		t.Errorf("by the other's only level: %q", got)
	}
	if level, _ := l.Level("block"); level != cluster.LevelFabric {
		t.Errorf("block is %v", level)
	}
	l.Rack = "my/rack"
	if got := place(map[string]string{"my/rack": "m", "rack": "r"}); got != [3]string{"", "m", ""} {
		t.Errorf("by a stated label: %q", got)
	}
	if l.SetTopologies(nil); place(map[string]string{"rack": "r"}) != [3]string{} {
		t.Error("a topology that is gone counts")
	}
}

// What is above fabrics comes from Topograph's label of the core, from its tiers, from the levels of a topology above
// two, or from a stated label; and gangs may ask for it by these labels.
func TestCores(t *testing.T) {
	l := &Labels{}
	above := func(labels map[string]string) string {
		_, _, _, list := l.Place(labels)
		return strings.Join(list, ">")
	}
	for want, labels := range map[string]map[string]string{
		"":  {"network.topology.nvidia.com/spine": "s"},
		"x": {"network.topology.nvidia.com/spine": "s", "network.topology.nvidia.com/core": "x"},
		"x>y": {"fabric.topograph.run/tier-1": "s", "fabric.topograph.run/tier-2": "x",
			"fabric.topograph.run/tier-3": "y"},
	} {
		if got := above(labels); got != want {
			t.Errorf("%v: %q, want %q", labels, got, want)
		}
	}
	if !l.SetTopologies([][]string{{"site", "hall", "block", "rack", "kubernetes.io/hostname"}}) ||
		l.SetTopologies([][]string{{"site", "hall", "block", "rack"}}) ||
		!l.SetTopologies([][]string{{"other", "hall", "block", "rack"}}) ||
		!l.SetTopologies([][]string{{"site", "hall", "block", "rack"}}) {
		t.Error("what changes is not noticed, or what does not is")
	}
	if got := above(map[string]string{"site": "s", "hall": "h", "block": "b"}); got != "h>s" {
		t.Errorf("by a topology's levels: %q", got)
	}
	for label, want := range map[string]cluster.Level{"hall": cluster.LevelCore, "site": cluster.LevelCore + 1,
		"network.topology.nvidia.com/core": cluster.LevelCore} {
		if got, known := l.Level(label); !known || got != want {
			t.Errorf("%s is %v", label, got)
		}
	}
	l.Core = "my/core"
	if got := above(map[string]string{"my/core": "m", "hall": "h"}); got != "m" {
		t.Errorf("by a stated label: %q", got)
	}
}
