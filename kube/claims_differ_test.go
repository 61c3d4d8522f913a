package kube

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/kube/kubetest"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/patch"
)

const nicDriver = "nic.example.com"

// TestDifferentialDevices asks the real kube-scheduler and Muster about the same
// pods with resource claims on the same random clusters: does some node have the
// devices? Where Muster binds, kube-scheduler finds them, too.
func TestDifferentialDevices(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.p.Scheduler()
	_, stop := b.schedule()
	defer stop()
	var yes, no int
	rounds := differentialRounds(t)
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 0x64726164696666))
		b.deviceWorld(r, seed)
		y, n := b.compareDevices(r, seed)
		yes, no = yes+y, no+n
		b.auditDevices()
		b.clear()
	}
	t.Logf("%d pods fit, %d did not; both schedulers agreed", yes, no)
	if yes < rounds || no < rounds {
		t.Errorf("%d pods fit and %d did not: the generator has lost its balance", yes, no)
	}
}

// compareDevices asks about pods one after the other, each alone on the cluster.
func (b *bench) compareDevices(r *rand.Rand, seed int) (yes, no int) {
	b.Helper()
	type probe struct {
		name string
		spec resourceapi.ResourceClaimSpec
	}
	var refused []probe
	for i := range 12 {
		p := probe{fmt.Sprintf("probe-%d-%d", seed, i), randomClaim(r)}
		node, why := b.tried(p.name+"-k", "default-scheduler", "", p.spec, true)
		if node == "" { // it may not have heard yet of what is free again
			node, why = b.tried(p.name+"-k2", "default-scheduler", "", p.spec, true)
		}
		switch {
		case node == "" && strings.HasPrefix(why, `running "DynamicResources" filter plugin`):
			continue // its allocator fails on a node, and then it looks at no other: Muster does
		case node == "":
			refused = append(refused, p)
			continue
		}
		yes++
		node, _ = b.tried(p.name, "muster", "", p.spec, false)
		b.tried(p.name+"-at", "default-scheduler", node, p.spec, false)
	}
	for _, p := range refused {
		b.resourceClaim(p.name, p.spec)
		b.create(with(p.name, "", controlplane.Pod(p.name, 0, nil))...)
	}
	for _, p := range refused {
		b.wait("Muster says why "+p.name+" waits", func() bool {
			now := b.pod(p.name)
			if now.Spec.NodeName != "" {
				b.Fatalf("Muster bound %s to %s, where kube-scheduler finds no devices: %s", p.name, now.Spec.NodeName,
					string(patch.JSON(p.spec)))
			}
			return condition(now).Status == v1.ConditionFalse
		})
	}
	return yes, len(refused)
}

// tried is where a scheduler binds a pod with a claim, or why nowhere, where it
// may refuse it; on one node only, where that is named. Pod and claim are gone
// afterwards.
func (b *bench) tried(name, scheduler, at string, spec resourceapi.ResourceClaimSpec, mayRefuse bool) (node,
	why string) {
	b.Helper()
	b.resourceClaim(name, spec)
	p := with(name, "", controlplane.Pod(name, 0, nil))[0]
	if p.Spec.SchedulerName = scheduler; at != "" {
		pin(p, at)
	}
	b.create(p)
	b.wait(fmt.Sprintf("%s binds %s (node %q): %s", scheduler, name, at, string(patch.JSON(spec))), func() bool {
		now := b.pod(name)
		node, why = now.Spec.NodeName, condition(now).Message
		return node != "" || mayRefuse && condition(now).Status == v1.ConditionFalse
	})
	b.gone(p)
	b.wait("claim "+name+" is gone", func() bool {
		err := b.c.ResourceV1().ResourceClaims("default").Delete(b.ctx, name, metav1.DeleteOptions{})
		return apierrors.IsNotFound(err)
	})
	return node, why
}

// deviceWorld makes four nodes with GPUs, whole or in parts, and network cards, and
// pods that have some of these.
func (b *bench) deviceWorld(r *rand.Rand, seed int) {
	b.Helper()
	for name, selector := range map[string]string{kubetest.Driver: `device.driver == "` + kubetest.Driver + `"`,
		nicDriver: `device.driver == "` + nicDriver + `"`,
		"large":   largeGPU} {
		c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
				{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}}}
		if _, err := b.c.ResourceV1().DeviceClasses().Create(b.ctx, c, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	names := []string{"n0", "n1", "n2", "n3"}
	b.nodes(0, names...)
	for _, n := range names {
		if r.IntN(4) == 0 {
			list, set := halves()
			b.publish(n, list, []resourceapi.CounterSet{set})
		} else if list := randomGPUs(r); len(list) > 0 {
			b.publish(n, list, nil)
		}
		var cards []resourceapi.Device
		for i := range r.IntN(3) {
			cards = append(cards, resourceapi.Device{Name: fmt.Sprintf("nic-%d", i), Attributes: rooted(r.IntN(2))})
		}
		if len(cards) > 0 {
			b.slice(n+"-nics", resourceapi.ResourceSliceSpec{Driver: nicDriver, NodeName: &n, Devices: cards,
				Pool: resourceapi.ResourcePool{Name: n, ResourceSliceCount: 1}})
		}
	}
	b.nodesReady()
	for i := range 4 {
		name := fmt.Sprintf("there-%d-%d", seed, i)
		b.resourceClaim(name, randomClaim(r))
		p := with(name, "", controlplane.Pod(name, 0, nil))[0]
		b.create(p)
		b.wait("Muster judges "+name, func() bool {
			now := b.pod(name)
			return now.Spec.NodeName != "" || condition(now).Status == v1.ConditionFalse
		})
		if b.pod(name).Spec.NodeName == "" {
			b.gone(p)
		}
	}
}

func rooted(root int) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"example.com/root": {StringValue: ptr.To(fmt.Sprint("pci", root))}}
}

func randomGPUs(r *rand.Rand) (list []resourceapi.Device) {
	for i := range []int{0, 1, 2, 4}[r.IntN(4)] {
		dev := resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: rooted(i / 2),
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory": {Value: resource.MustParse([]string{"40Gi", "80Gi"}[r.IntN(2)])}}}
		dev.Attributes["model"] = resourceapi.DeviceAttribute{StringValue: ptr.To([]string{"a", "b"}[r.IntN(2)])}
		if r.IntN(6) == 0 {
			dev.Taints = []resourceapi.DeviceTaint{
				{Key: "sick", Value: "x", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		list = append(list, dev)
	}
	return list
}

// halves is a GPU that can be had as a whole, in halves or in quarters.
func halves() (list []resourceapi.Device, set resourceapi.CounterSet) {
	draws := func(n int64) map[string]resourceapi.Counter {
		return map[string]resourceapi.Counter{"parts": {Value: *resource.NewQuantity(n, resource.DecimalSI)}}
	}
	for k, profile := range []string{"quarter", "half", "whole"} {
		n := int64(1) << k
		for i := range 4 / n {
			list = append(list, resourceapi.Device{Name: fmt.Sprintf("%s-%d", profile, i),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"profile": {StringValue: &profile}},
				ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "gpu", Counters: draws(n)}}})
		}
	}
	return list, resourceapi.CounterSet{Name: "gpu", Counters: draws(4)}
}

// largeGPU selects GPUs of 80 GiB; like the others it can be asked of any device.
const largeGPU = `"memory" in device.capacity["` + kubetest.Driver + `"] && device.capacity["` + kubetest.Driver +
	`"].memory.compareTo(quantity("80Gi")) >= 0`

func randomClaim(r *rand.Rand) (s resourceapi.ResourceClaimSpec) {
	for i := range 1 + r.IntN(2) {
		q := resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", i)}
		if r.IntN(4) > 0 {
			q.Exactly = randomRequest(r)
		} else {
			for k := range 2 {
				e := randomRequest(r)
				q.FirstAvailable = append(q.FirstAvailable,
					resourceapi.DeviceSubRequest{Name: fmt.Sprintf("s%d", k), DeviceClassName: e.DeviceClassName,
						Selectors:      e.Selectors,
						AllocationMode: e.AllocationMode, Count: e.Count, Tolerations: e.Tolerations})
			}
		}
		s.Devices.Requests = append(s.Devices.Requests, q)
	}
	if r.IntN(3) == 0 {
		key := []resourceapi.FullyQualifiedName{"example.com/root", kubetest.Driver + "/model"}[r.IntN(2)]
		s.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &key}}
	}
	return s
}

func randomRequest(r *rand.Rand) *resourceapi.ExactDeviceRequest {
	e := &resourceapi.ExactDeviceRequest{
		DeviceClassName: []string{kubetest.Driver, kubetest.Driver, "large", nicDriver}[r.IntN(4)],
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount, Count: []int64{1, 1, 2, 3}[r.IntN(4)]}
	if r.IntN(8) == 0 {
		e.AllocationMode, e.Count = resourceapi.DeviceAllocationModeAll, 0
	}
	// whole GPUs, of one model perhaps, or parts of one size: what counts the same everywhere
	if e.DeviceClassName == kubetest.Driver {
		of := func(key, and string) string {
			return fmt.Sprintf(`%q in device.attributes[%q]`, key, kubetest.Driver) +
				strings.ReplaceAll(and, "$", fmt.Sprintf("device.attributes[%q].%s", kubetest.Driver, key))
		}
		e.Selectors = []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: []string{of("model", ""), of("model", ` && $ == "a"`),
				of("profile", ` && $ == "half"`), of("profile", ` && $ == "quarter"`)}[r.IntN(4)]}}}
	}
	if r.IntN(3) == 0 {
		e.Tolerations = []resourceapi.DeviceToleration{{Key: "sick", Operator: resourceapi.DeviceTolerationOpExists}}
	}
	return e
}
