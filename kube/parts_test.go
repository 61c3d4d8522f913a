package kube

import (
	"fmt"
	"strings"

	"github.com/muster-gpu/muster/kube/kubetest"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// slots is a GPU of a model as its driver publishes it: a device for each start of each
// profile, which draws on the memory slices that it covers.
func slots(gpu int, model string) (list []resourceapi.Device, set resourceapi.CounterSet) {
	m, _ := cluster.FindModel(model)
	one := resourceapi.Counter{Value: resource.MustParse("1")}
	set = resourceapi.CounterSet{Name: fmt.Sprintf("gpu-%d", gpu),
		Counters: map[string]resourceapi.Counter{
			"compute": {Value: *resource.NewQuantity(int64(m.Compute), resource.DecimalSI)}}}
	for k := range m.MemSlots {
		set.Counters[fmt.Sprintf("memory-slice-%d", k)] = one
	}
	for i := range m.Profiles {
		p := &m.Profiles[i]
		if p.Media() {
			continue
		}
		for _, start := range p.Starts {
			draws := map[string]resourceapi.Counter{
				"compute": {Value: *resource.NewQuantity(int64(p.Compute), resource.DecimalSI)}}
			for k := range p.Slots {
				draws[fmt.Sprintf("memory-slice-%d", start+k)] = one
			}
			list = append(list, resourceapi.Device{
				Name: fmt.Sprintf("gpu-%d-mig-%s-%d", gpu, strings.ReplaceAll(p.Name, ".", "-"), start),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"profile": {StringValue: &p.Name}},
				ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: draws}}})
		}
	}
	return list, set
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
		b.template(profile, kubetest.Asks(1, fmt.Sprintf(`device.attributes["gpu.nvidia.com"].profile == %q`, profile)))
	}
	b.create(with("", "1g.10gb", controlplane.Pod("small-0", 0, nil), controlplane.Pod("small-1", 0, nil),
		controlplane.Pod("small-2", 0, nil))...)
	b.runs("small-0", "small-1", "small-2")
	b.create(with("", "4g.40gb", controlplane.Pod("large", 0, nil))...)
	b.runs("large")
}
