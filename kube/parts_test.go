package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// slots is a GPU of a model as its driver publishes it: a device for each start of each
// profile, which draws on the memory slices that it covers.
func slots(gpu int, model string) (list []resourceapi.Device, set resourceapi.CounterSet) {
	m, _ := cluster.FindModel(model)
	one := resourceapi.Counter{Value: resource.MustParse("1")}
	set = resourceapi.CounterSet{Name: fmt.Sprintf("gpu-%d", gpu), Counters: map[string]resourceapi.Counter{"compute": {Value: *resource.NewQuantity(int64(m.Compute), resource.DecimalSI)}}}
	for k := range m.MemSlots {
		set.Counters[fmt.Sprintf("memory-slice-%d", k)] = one
	}
	for i := range m.Profiles {
		p := &m.Profiles[i]
		if p.Media() {
			continue
		}
		for _, start := range p.Starts {
			draws := map[string]resourceapi.Counter{"compute": {Value: *resource.NewQuantity(int64(p.Compute), resource.DecimalSI)}}
			for k := range p.Slots {
				draws[fmt.Sprintf("memory-slice-%d", start+k)] = one
			}
			list = append(list, resourceapi.Device{Name: fmt.Sprintf("gpu-%d-mig-%s-%d", gpu, strings.ReplaceAll(p.Name, ".", "-"), start),
				Attributes:       map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"profile": {StringValue: &p.Name}},
				ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: draws}}})
		}
	}
	return list, set
}

// The partition that is chosen of those that are alike is the one that shuts out least: of
// the first 1g of an H100 not the memory slice that a 4g needs. What a full GPU loses first,
// another that is cut already does not.
func TestLeastFirst(t *testing.T) {
	f := &pools{slices: map[pool][]*resourceapi.ResourceSlice{}, near: map[string][]pool{}, parts: map[structured.DeviceID]part{}, gpus: map[string]int{}, product: map[string]string{}, divided: map[pool][]*cutGPU{}}
	node := "n1"
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{Driver: testDriver, Pool: resourceapi.ResourcePool{Name: node}, NodeName: &node}}
	for gpu := range 2 {
		list, set := slots(gpu, "H100-80GB")
		s.Spec.Devices, s.Spec.SharedCounters = append(s.Spec.Devices, list...), append(s.Spec.SharedCounters, set)
	}
	f.count([]*resourceapi.ResourceSlice{s})
	used := sets.New[structured.DeviceID]()
	first := func(profile string) string {
		ordered := f.leastFirst([]*resourceapi.ResourceSlice{s}, used)
		for i := range ordered[0].Spec.Devices {
			d := &ordered[0].Spec.Devices[i]
			if free := f.openTo(pool{testDriver, node}, used); *d.Attributes["profile"].StringValue == profile && free.Has(structured.MakeDeviceID(testDriver, node, d.Name)) {
				used.Insert(structured.MakeDeviceID(testDriver, node, d.Name))
				return d.Name
			}
		}
		return "none"
	}
	for _, c := range []struct{ profile, want string }{
		{"1g.10gb", "gpu-0-mig-1g-10gb-6"}, {"1g.10gb", "gpu-0-mig-1g-10gb-"}, {"4g.40gb", "gpu-0-mig-4g-40gb-0"}, {"7g.80gb", "gpu-1-mig-7g-80gb-0"}, {"4g.40gb", "none"},
	} {
		if got := first(c.profile); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.profile, got, c.want)
		}
	}
	if s.Spec.Devices[0].Name != "gpu-0-mig-1g-10gb-0" && !slices.ContainsFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return d.Name == "gpu-0-mig-1g-10gb-0" }) {
		t.Error("what is published was changed")
	}
}

// openTo is the partitions of a pool that could be given away.
func (f *pools) openTo(p pool, used sets.Set[structured.DeviceID]) sets.Set[structured.DeviceID] {
	open := sets.New[structured.DeviceID]()
	for _, g := range f.divided[p] {
		g.losses(used, func(c *cutPart, _ int64) { open.Insert(c.id) })
	}
	return open
}

// On a real API server: a pod with a 1g leaves room on its GPU for one with a 4g.
func testDevicesGeometry(b *bench) {
	b.classes()
	b.nodes(0, "n1")
	list, set := slots(0, "H100-80GB")
	b.publish("n1", list, []resourceapi.CounterSet{set})
	_, stop := b.schedule()
	defer stop()
	for _, profile := range []string{"1g.10gb", "4g.40gb"} {
		b.template(profile, asks(1, fmt.Sprintf(`device.attributes["gpu.nvidia.com"].profile == %q`, profile)))
	}
	b.create(with("", "1g.10gb", controlplane.Pod("small-0", 0, nil), controlplane.Pod("small-1", 0, nil), controlplane.Pod("small-2", 0, nil))...)
	b.runs("small-0", "small-1", "small-2")
	b.create(with("", "4g.40gb", controlplane.Pod("large", 0, nil))...)
	b.runs("large")
}
