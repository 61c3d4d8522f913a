package claims

import (
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/cluster"
)

func counter(text string) resourceapi.Counter {
	return resourceapi.Counter{Value: resource.MustParse(text)}
}

func TestFraction(t *testing.T) {
	have := map[string]resourceapi.Counter{"memory": counter("40Gi"), "slices": counter("7")}
	draws := map[string]resourceapi.Counter{"memory": counter("5Gi"), "slices": counter("1"), "unknown": counter("1")}
	if got := fraction(draws, have); got != 142 {
		t.Errorf("a seventh of the slices and an eighth of the memory are %d milli-GPU", got)
	}
	if got := (Size{Whole: 1, Milli: 1500}).Add(cluster.Request{GPUs: 1}); got.GPUs != 4 || got.Share != 0 {
		t.Errorf("two GPUs and one and a half in parts count as %+v", got)
	}
	if got := (Size{Milli: 500}).Add(cluster.Request{CPU: 1}); got.GPUs != 1 || got.Share != 500 || got.CPU != 1 {
		t.Errorf("half a GPU counts as %+v", got)
	}
}

const driver, node = "gpu.example.com", "n1"

// published is a node with some GPUs of four memory slices each: a quarter may be any of these, a half the
// first two, and a whole takes all.
func published(gpus int) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{}
	at := node
	s.Spec.Driver, s.Spec.Pool.Name, s.Spec.NodeName = driver, node, &at
	for gpu := range gpus {
		set := resourceapi.CounterSet{Name: fmt.Sprint("gpu-", gpu), Counters: map[string]resourceapi.Counter{}}
		part := func(profile string, slots ...int) {
			draws := map[string]resourceapi.Counter{}
			for _, k := range slots {
				draws[fmt.Sprint("slice-", k)] = counter("1")
			}
			s.Spec.Devices = append(s.Spec.Devices,
				resourceapi.Device{Name: fmt.Sprintf("%s-%s-%d", set.Name, profile, slots[0]),
					Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
						"profile": {StringValue: &profile}},
					ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: draws}}})
		}
		for k := range 4 {
			set.Counters[fmt.Sprint("slice-", k)] = counter("1")
			part("quarter", k)
		}
		part("half", 0, 1)
		part("whole", 0, 1, 2, 3)
		s.Spec.SharedCounters = append(s.Spec.SharedCounters, set)
	}
	return s
}

// GPUs are counted by what their parts draw on, and each part for its size; only those that are large enough fit.
func TestRead(t *testing.T) {
	f := Read(map[string]*resourceapi.ResourceSlice{"s": published(2)}, []string{driver})
	id := structured.MakeDeviceID(driver, node, "gpu-1-half-0")
	p, ok := f.Part(id)
	if f.GPUs(node) != 2 || !f.Cut() || !ok || p.Milli != 500 || p.Node != node {
		t.Errorf("%d GPUs, in parts: %v; a half is %+v", f.GPUs(node), f.Cut(), p)
	}
	if small := f.Unfit(0, 400, node); len(small) != 8 || slices.Contains(small, id) {
		t.Errorf("less than 400 milli-GPU of the compute: %v", small)
	}
	if other := Read(map[string]*resourceapi.ResourceSlice{"s": published(2)}, nil); other.GPUs(node) != 0 {
		t.Error("devices of a driver that is not listed count as GPUs")
	}
}

// The partition that is chosen of those that are alike is the one that shuts out least: not the first quarter, which a
// half needs. What a full GPU loses first, another that is cut already does not. What is published stays as it is.
func TestLeastFirst(t *testing.T) {
	s := published(2)
	f := Read(map[string]*resourceapi.ResourceSlice{"s": s}, []string{driver})
	used := sets.New[structured.DeviceID]()
	first := func(profile string) string {
		free := sets.New[structured.DeviceID]()
		for _, g := range f.divided[Pool{driver, node}] {
			g.losses(used, func(c *cutPart, _ int64) { free.Insert(c.id) })
		}
		for _, d := range f.leastFirst([]*resourceapi.ResourceSlice{s}, used)[0].Spec.Devices {
			if id := structured.MakeDeviceID(driver, node, d.Name); *d.Attributes["profile"].StringValue == profile &&
				free.Has(id) {
				used.Insert(id)
				return d.Name
			}
		}
		return "none"
	}
	for _, c := range []struct{ profile, want string }{
		{"quarter", "gpu-0-quarter-2"}, {"quarter", "gpu-0-quarter-3"}, {"half", "gpu-0-half-0"},
		{"whole", "gpu-1-whole-0"}, {"half", "none"},
	} {
		if got := first(c.profile); got != c.want {
			t.Errorf("%s: %s, want %s", c.profile, got, c.want)
		}
	}
	if s.Spec.Devices[0].Name != "gpu-0-quarter-0" {
		t.Error("what is published was changed")
	}
}
