package claims

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/kube/kubetest"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gpus"
)

// How pods share a claim's devices is what the last configuration says that holds for them:
// of their driver, their request and their kind, the claim's after its class's.
func TestClaimWay(t *testing.T) {
	d := New([]string{kubetest.Driver}, Books{})
	turns, mps := `{"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}`,
		`{"kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10Gi"}}}`
	mig := strings.ReplaceAll(mps, "GpuConfig", "MigDeviceConfig")
	small, free := strings.ReplaceAll(mps, "10Gi", "4Gi"), `{"kind": "GpuConfig", "sharing": {"strategy": "MPS"}}`
	config := func(source resourceapi.AllocationConfigSource, text string,
		requests ...string) resourceapi.DeviceAllocationConfiguration {
		return resourceapi.DeviceAllocationConfiguration{Source: source, Requests: requests,
			DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: kubetest.Driver,
					Parameters: runtime.RawExtension{Raw: []byte(text)}}}}
	}
	const class, claim = resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim
	foreign := config(claim, mps)
	foreign.Opaque.Driver = "nic.example.com"
	type list = []resourceapi.DeviceAllocationConfiguration
	limited := func(memory cluster.MiB) Way { return Way{cluster.MPS, memory} }
	one := []string{"gpu"}
	for name, c := range map[string]struct {
		requests []string
		configs  list
		want     Way
	}{
		"none":                  {one, nil, Way{}},
		"class":                 {one, list{config(class, mps)}, limited(10240)},
		"claim":                 {one, list{config(claim, mps)}, limited(10240)},
		"claim over class":      {one, list{config(class, mps), config(claim, turns)}, Way{}},
		"in whatever order":     {one, list{config(claim, turns), config(class, mps)}, Way{}},
		"MPS of the claim":      {one, list{config(class, turns), config(claim, small)}, limited(4096)},
		"the last":              {one, list{config(claim, mps), config(claim, turns)}, Way{}},
		"the last has no limit": {one, list{config(claim, mps), config(claim, free)}, limited(0)},
		"unreadable":            {one, list{config(claim, mps), config(claim, "[")}, Way{}},
		"another request":       {one, list{config(claim, mps, "other")}, Way{}},
		"not for this request": {one, list{config(claim, mps, "gpu"), config(claim, turns, "other")},
			limited(10240)},
		"another driver":          {one, list{foreign}, Way{}},
		"another kind":            {one, list{config(claim, mig)}, Way{}},
		"alternative by its name": {[]string{"gpu/large"}, list{config(claim, mps, "gpu/large")}, limited(10240)},
		"alternative by request":  {[]string{"gpu/large"}, list{config(claim, mps, "gpu")}, limited(10240)},
		"the other alternative":   {[]string{"gpu/large"}, list{config(claim, mps, "gpu/small")}, Way{}},
		"the weakest of requests": {[]string{"gpu", "other"},
			list{config(claim, mps, "gpu"), config(claim, small, "other")}, limited(4096)},
		"of one request of several": {[]string{"gpu", "other"}, list{config(claim, mps, "other")}, Way{}},
		"of no devices":             {nil, list{config(claim, mps)}, Way{}},
	} {
		a := &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Config: c.configs,
				Results: []resourceapi.DeviceRequestAllocationResult{{Request: "nic", Driver: "nic.example.com"}}}}
		for _, r := range c.requests {
			a.Devices.Results = append(a.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{Request: r, Driver: kubetest.Driver, Pool: "n1", Device: r})
		}
		d.claims["default/c"] = &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: a}}
		// the allocation's count
		d.claims["default/c"].Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
			{DeviceConfiguration: config(claim, mps).DeviceConfiguration}}
		if got := d.way("default/c", d.claims["default/c"]); got != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
	}
}

// Of a claim that has no devices yet it is the weakest way of those that it may get, with
// what its class says; requests for devices of others do not count.
func TestClaimWayOpen(t *testing.T) {
	d := New([]string{kubetest.Driver}, Books{Changed: func(bool) {},
		Nodes: func() []*v1.Node { return []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n0000"}}} }})
	const nic = "nic.example.com"
	for _, driver := range []string{kubetest.Driver, nic} {
		d.classes[driver] = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver},
			Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{
					{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}}}}}
		d.slices[driver] = &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driver},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: ptr.To("n0000"),
				Pool:    resourceapi.ResourcePool{Name: driver, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "a"}, {Name: "b"}}}}
	}
	d.found = nil
	mps := kubetest.ByMPS(resourceapi.ResourceClaimSpec{}, "10Gi").Devices.Config[0]
	way := func(text string, requests ...string) Way {
		spec := kubetest.Asks(1, "")
		spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
			{Requests: requests, DeviceConfiguration: mps.DeviceConfiguration}}
		for _, driver := range strings.Fields(text) {
			more := kubetest.Asks(1, "").Devices.Requests[0]
			more.Name, more.Exactly.DeviceClassName = "more", driver
			spec.Devices.Requests = append(spec.Devices.Requests, more)
		}
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: spec}
		d.claims["default/c"] = c
		for range 2 { // looked for, and remembered
			if _, err := d.sizeOf("default/c", &gpus.Want{}); err != nil {
				t.Fatal(err)
			}
		}
		return d.way("default/c", c)
	}
	limited := Way{cluster.MPS, 10240}
	if got := []Way{way(""), way("", "gpu"), way("", "other"), way(nic, "gpu"), way(kubetest.Driver, "gpu"),
		way(kubetest.Driver)}; !slices.Equal(got, []Way{limited, limited, {}, limited, {}, limited}) {
		t.Errorf("%+v", got)
	}
	class := d.classes[kubetest.Driver]
	class.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: mps.DeviceConfiguration}}
	if got := way("", "other"); got != (Way{}) {
		t.Errorf("the class was not read yet: %+v", got)
	}
	d.Changed(class)
	if got := way("", "other"); got != limited {
		t.Errorf("by its class: %+v", got)
	}
}

func TestNewer(t *testing.T) {
	if newer("9", "10") || !newer("10", "9") || newer("10", "10") || !newer("11", "10") {
		t.Error("resource versions are numbers")
	}
}
