package kube

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/perf"
)

// says puts annotations on a pod.
func saying(p *v1.Pod, says map[string]string) *v1.Pod {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	for key, value := range says {
		p.Annotations[key] = value
	}
	return p
}

// byMPS has pods that use a claim share its devices by MPS, each with so much of their memory.
func byMPS(spec resourceapi.ResourceClaimSpec, limit string) resourceapi.ResourceClaimSpec {
	text := `{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "` + limit + `"}}}`
	spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: testDriver,
			Parameters: runtime.RawExtension{Raw: []byte(text)}}}}}
	return spec
}

// A claim that is open gets devices that have what its pod wants. Who wants to be kept apart
// from others is not on the devices of a claim with them, unless they share as it wants,
// whoever was there first; nor is who would be slower there than it accepts.
func testDevicesWanted(b *bench) {
	b.classes()
	b.gpuNodes(4, "n1") // two with 80 GiB, two with 40
	_, stop := b.schedule(func(o *Options) {
		table := pairs(map[string]int64{"a/b": 900_000})
		table.Slicing = &perf.TimeSlicing{Duty: map[string]int64{"a": 700_000, "b": 700_000}}
		o.Rules.Perf = table
	})
	defer stop()
	b.template("any", asks(1, ""))
	memory := map[string]string{AnnotationMemory: "60GiB"}
	for _, name := range []string{"large-0", "large-1", "large-2"} {
		b.create(saying(with("", "any", controlplane.Pod(name, 0, nil))[0], memory))
	}
	b.wait("the GPUs with so much memory are given away", func() bool {
		count := 0
		for _, name := range []string{"large-0", "large-1", "large-2"} {
			for _, dev := range b.devicesOf(name) {
				if count++; dev != "n1/gpu-0" && dev != "n1/gpu-1" {
					b.Fatalf("pod %s has %s", name, dev)
				}
			}
		}
		return count == 2
	})
	b.create(saying(with("", "any", controlplane.Pod("huge", 0, nil))[0],
		map[string]string{AnnotationMemory: "100GiB"}))
	b.says("huge", "asks for devices that no node has with what its pod wants (102400 MiB of GPU memory)")

	b.resourceClaim("turns", asks(1, ""))
	use := func(claim, name string, says map[string]string) {
		b.create(saying(with(claim, "", controlplane.Pod(name, 0, nil))[0], says))
	}
	use("turns", "first", map[string]string{AnnotationModel: "a"})
	b.runs("first")
	use("turns", "apart", map[string]string{AnnotationIsolation: "full"})
	b.says("apart", "resource claim turns is for 2 pods at a time, which share by time-slicing: that is not enough for isolation full of pod apart")
	use("turns", "fast", map[string]string{AnnotationModel: "b", AnnotationSpeed: "0.8"})
	b.says("fast", "pod fast would be at 0.71 of its speed beside others on the devices of resource claim turns, and asks for 0.8")
	b.gone(b.pod("first"))
	b.wait("one of them is alone there, the other waits", func() bool {
		return (b.pod("apart").Spec.NodeName == "") != (b.pod("fast").Spec.NodeName == "")
	})
	if b.pod("apart").Spec.NodeName == "" {
		b.gone(b.pod("fast"))
		b.runs("apart")
	} else {
		b.gone(b.pod("fast"))
	}
	use("turns", "late", nil)
	b.says("late", "is not enough for isolation full of pod apart")

	b.resourceClaim("mps", byMPS(asks(1, ""), "20Gi"))
	use("mps", "kept-0", map[string]string{AnnotationIsolation: "memory", AnnotationMemory: "16GiB"})
	use("mps", "kept-1", map[string]string{AnnotationIsolation: "memory", AnnotationModel: "b", AnnotationSpeed: "0.9"})
	use("mps", "kept-2", map[string]string{AnnotationModel: "a"}) // under MPS they do not take turns
	b.runs("kept-0", "kept-1", "kept-2")
	use("mps", "more", map[string]string{AnnotationMemory: "24GiB"})
	b.says("more", "that is not enough for 24576 MiB of GPU memory of pod more")
}

// How pods share a claim's devices is what the last configuration says that holds for them:
// of their driver, their request and their kind, the claim's after its class's.
func TestClaimWay(t *testing.T) {
	d, _ := still(t, 0)
	turns, mps := `{"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}`,
		`{"kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10Gi"}}}`
	mig := strings.ReplaceAll(mps, "GpuConfig", "MigDeviceConfig")
	small, free := strings.ReplaceAll(mps, "10Gi", "4Gi"), `{"kind": "GpuConfig", "sharing": {"strategy": "MPS"}}`
	config := func(source resourceapi.AllocationConfigSource, text string,
		requests ...string) resourceapi.DeviceAllocationConfiguration {
		return resourceapi.DeviceAllocationConfiguration{Source: source, Requests: requests,
			DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: testDriver,
					Parameters: runtime.RawExtension{Raw: []byte(text)}}}}
	}
	const class, claim = resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim
	foreign := config(claim, mps)
	foreign.Opaque.Driver = "nic.example.com"
	type list = []resourceapi.DeviceAllocationConfiguration
	limited := func(memory cluster.MiB) claimWay { return claimWay{cluster.MPS, memory} }
	one := []string{"gpu"}
	for name, c := range map[string]struct {
		requests []string
		configs  list
		want     claimWay
	}{
		"none":                  {one, nil, claimWay{}},
		"class":                 {one, list{config(class, mps)}, limited(10240)},
		"claim":                 {one, list{config(claim, mps)}, limited(10240)},
		"claim over class":      {one, list{config(class, mps), config(claim, turns)}, claimWay{}},
		"in whatever order":     {one, list{config(claim, turns), config(class, mps)}, claimWay{}},
		"MPS of the claim":      {one, list{config(class, turns), config(claim, small)}, limited(4096)},
		"the last":              {one, list{config(claim, mps), config(claim, turns)}, claimWay{}},
		"the last has no limit": {one, list{config(claim, mps), config(claim, free)}, limited(0)},
		"unreadable":            {one, list{config(claim, mps), config(claim, "[")}, claimWay{}},
		"another request":       {one, list{config(claim, mps, "other")}, claimWay{}},
		"not for this request": {one, list{config(claim, mps, "gpu"), config(claim, turns, "other")},
			limited(10240)},
		"another driver":          {one, list{foreign}, claimWay{}},
		"another kind":            {one, list{config(claim, mig)}, claimWay{}},
		"alternative by its name": {[]string{"gpu/large"}, list{config(claim, mps, "gpu/large")}, limited(10240)},
		"alternative by request":  {[]string{"gpu/large"}, list{config(claim, mps, "gpu")}, limited(10240)},
		"the other alternative":   {[]string{"gpu/large"}, list{config(claim, mps, "gpu/small")}, claimWay{}},
		"the weakest of requests": {[]string{"gpu", "other"},
			list{config(claim, mps, "gpu"), config(claim, small, "other")}, limited(4096)},
		"of one request of several": {[]string{"gpu", "other"}, list{config(claim, mps, "other")}, claimWay{}},
		"of no devices":             {nil, list{config(claim, mps)}, claimWay{}},
	} {
		a := &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Config: c.configs,
				Results: []resourceapi.DeviceRequestAllocationResult{{Request: "nic", Driver: "nic.example.com"}}}}
		for _, r := range c.requests {
			a.Devices.Results = append(a.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{Request: r, Driver: testDriver, Pool: "n1", Device: r})
		}
		d.dra.claims["default/c"] = &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: a}}
		// the allocation's count
		d.dra.claims["default/c"].Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
			{DeviceConfiguration: config(claim, mps).DeviceConfiguration}}
		if got := d.claimWay("default/c", d.dra.claims["default/c"]); got != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
	}
}

// Of a claim that has no devices yet it is the weakest way of those that it may get, with
// what its class says; requests for devices of others do not count.
func TestClaimWayOpen(t *testing.T) {
	d, _ := still(t, 1)
	const nic = "nic.example.com"
	for _, driver := range []string{testDriver, nic} {
		d.dra.classes[driver] = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver},
			Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{
					{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}}}}}
		d.dra.slices[driver] = &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driver},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: ptr.To("n0000"),
				Pool:    resourceapi.ResourcePool{Name: driver, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "a"}, {Name: "b"}}}}
	}
	d.dra.found = nil
	mps := byMPS(resourceapi.ResourceClaimSpec{}, "10Gi").Devices.Config[0]
	way := func(text string, requests ...string) claimWay {
		spec := asks(1, "")
		spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
			{Requests: requests, DeviceConfiguration: mps.DeviceConfiguration}}
		for _, driver := range strings.Fields(text) {
			more := asks(1, "").Devices.Requests[0]
			more.Name, more.Exactly.DeviceClassName = "more", driver
			spec.Devices.Requests = append(spec.Devices.Requests, more)
		}
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: spec}
		d.dra.claims["default/c"] = c
		for range 2 { // looked for, and remembered
			if _, err := d.sizeOf("default/c", &gpus.Want{}); err != nil {
				t.Fatal(err)
			}
		}
		return d.claimWay("default/c", c)
	}
	limited := claimWay{cluster.MPS, 10240}
	if got := []claimWay{way(""), way("", "gpu"), way("", "other"), way(nic, "gpu"), way(testDriver, "gpu"),
		way(testDriver)}; !slices.Equal(got, []claimWay{limited, limited, {}, limited, {}, limited}) {
		t.Errorf("%+v", got)
	}
	class := d.dra.classes[testDriver]
	class.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: mps.DeviceConfiguration}}
	if got := way("", "other"); got != (claimWay{}) {
		t.Errorf("the class was not read yet: %+v", got)
	}
	d.onClass(nil, class)
	for _, f := range d.inbox.Take() {
		f()
	}
	if got := way("", "other"); got != limited {
		t.Errorf("by its class: %+v", got)
	}
}
