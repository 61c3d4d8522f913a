// Package kubetest is what the tests of the rooms of package kube, and its own, have in common.
package kubetest

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-gpu/muster/perf"
)

// Tell says on a channel that holds one that something has changed, if that is not said already.
func Tell(changed chan struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// Pairs is a table of what is left of speeds, by "MODEL/BESIDE".
func Pairs(list map[string]int64) *perf.Table {
	t := &perf.Table{Pairs: map[perf.Pair]int64{}}
	for key, v := range list {
		a, b, _ := strings.Cut(key, "/")
		t.Pairs[perf.Pair{a, b}] = v
	}
	return t
}

// Labels of nodes that can be partitioned.
const (
	ConfigLabel = "nvidia.com/mig.config"
	StateLabel  = "nvidia.com/mig.config.state"
)

// MIGMap is what the ConfigMap of these tests has.
const MIGMap = `version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-1g.10gb:
  - devices: all
    mig-enabled: true
    mig-devices: {1g.10gb: 7}
  all-3g.40gb:
  - devices: all
    mig-enabled: true
    mig-devices: {3g.40gb: 2}
  half:
  - {devices: [0], mig-enabled: false}
  - {devices: [1], mig-enabled: true, mig-devices: {1g.10gb: 7}}
`

// MIGMade is what the played mig-manager makes of nodes with two GPUs.
var MIGMade = map[string]map[string]string{
	"all-disabled": {"nvidia.com/gpu": "2"}, "all-1g.10gb": {"nvidia.com/mig-1g.10gb": "14"},
	"all-3g.40gb": {"nvidia.com/mig-3g.40gb": "4"},
	"half":        {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "7"}, "someones": {"nvidia.com/gpu": "2"},
}

// Driver is the driver of dynamic resource allocation whose devices are GPUs.
const Driver = "gpu.nvidia.com"

// ByMPS has pods that use a claim share its devices by MPS, each with so much of their memory.
func ByMPS(spec resourceapi.ResourceClaimSpec, limit string) resourceapi.ResourceClaimSpec {
	text := `{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "` + limit + `"}}}`
	spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: Driver,
			Parameters: runtime.RawExtension{Raw: []byte(text)}}}}}
	return spec
}

// Asks is a claim for so many GPUs that a selector chooses; "": any.
func Asks(count int64, selector string) resourceapi.ResourceClaimSpec {
	r := resourceapi.ExactDeviceRequest{DeviceClassName: Driver,
		AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	if selector != "" {
		r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
	}
	return resourceapi.ResourceClaimSpec{
		Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &r}}}}
}
