package kube

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/kube/kubetest"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// auditDevices looks at all claims through the API: no device is given twice, no
// set of counters is overdrawn, and what is reserved for a pod that is bound can be
// used where that is.
func (b *bench) auditDevices() {
	b.Helper()
	claims, err := b.c.ResourceV1().ResourceClaims("").List(b.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	list, err := b.c.ResourceV1().ResourceSlices().List(b.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	left, draws := map[string]int64{}, map[string][]resourceapi.DeviceCounterConsumption{}
	for i := range list.Items {
		s := &list.Items[i].Spec
		for _, set := range s.SharedCounters {
			for name, c := range set.Counters {
				left[s.Pool.Name+"/"+set.Name+"/"+name] = c.Value.Value()
			}
		}
		for _, dev := range s.Devices {
			draws[s.Pool.Name+"/"+dev.Name] = dev.ConsumesCounters
		}
	}
	owner := map[string]string{}
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			dev := r.Pool + "/" + r.Device
			if was := owner[dev]; was != "" {
				b.Errorf("device %s is %s's and %s's", dev, was, c.Name)
			}
			owner[dev] = c.Name
			for _, d := range draws[dev] {
				for name, n := range d.Counters {
					key := r.Pool + "/" + d.CounterSet + "/" + name
					if left[key] -= n.Value.Value(); left[key] < 0 {
						b.Errorf("%s is overdrawn by %s of claim %s", key, r.Device, c.Name)
					}
				}
			}
		}
	}
}

// gpuNodes makes nodes whose GPUs a driver publishes, two at each PCIe root; the
// last half of them have less memory.
func (b *bench) gpuNodes(gpus int, names ...string) {
	b.Helper()
	b.nodes(0, names...)
	for _, n := range names {
		var list []resourceapi.Device
		for i := range gpus {
			memory := "80Gi"
			if i >= (gpus+1)/2 {
				memory = "40Gi"
			}
			list = append(list, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"productName": {StringValue: ptr.To("NVIDIA A100-SXM4-80GB")},
					"root":        {StringValue: ptr.To(fmt.Sprintf("pci%d", i/2))}},
				Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
					"memory": {Value: resource.MustParse(memory)}}})
		}
		b.publish(n, list, nil)
	}
}

func (b *bench) publish(node string, list []resourceapi.Device, counters []resourceapi.CounterSet) {
	b.Helper()
	spec := resourceapi.ResourceSliceSpec{Driver: kubetest.Driver, NodeName: &node, Devices: list,
		Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}}
	if counters != nil { // they are in a slice of their own
		spec.Pool.ResourceSliceCount = 2
		more := spec
		more.Devices, more.SharedCounters = nil, counters
		b.slice(node+"-counters", more)
	}
	b.slice(node, spec)
}

func (b *bench) slice(name string, spec resourceapi.ResourceSliceSpec) {
	b.Helper()
	if _, err := b.c.ResourceV1().ResourceSlices().Create(b.ctx,
		&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// clearDevices deletes all that is about devices, after the pods.
func (b *bench) clearDevices() {
	b.Helper()
	r := b.c.ResourceV1()
	for _, err := range []error{
		r.ResourceClaims("default").DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		r.ResourceClaimTemplates("default").DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		r.ResourceSlices().DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		r.DeviceClasses().DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	} {
		if err != nil {
			b.Error(err)
		}
	}
	b.wait("no claim is left", func() bool {
		list, err := r.ResourceClaims("").List(b.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

// classes makes a class of all devices of the driver.
func (b *bench) classes() {
	b.Helper()
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Driver},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + kubetest.Driver + `"`}}}}}
	if _, err := b.c.ResourceV1().DeviceClasses().Create(b.ctx, c, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) resourceClaim(name string, spec resourceapi.ResourceClaimSpec) {
	b.Helper()
	if _, err := b.c.ResourceV1().ResourceClaims("default").Create(b.ctx,
		&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec},
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) template(name string, spec resourceapi.ResourceClaimSpec) {
	b.Helper()
	t := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}
	if _, err := b.c.ResourceV1().ResourceClaimTemplates("default").Create(b.ctx, t,
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// with makes pods use a claim, or one of a template each.
func with(claim, template string, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		c := v1.PodResourceClaim{Name: "gpu"}
		if claim != "" {
			c.ResourceClaimName = &claim
		} else {
			c.ResourceClaimTemplateName = &template
		}
		p.Spec.ResourceClaims = []v1.PodResourceClaim{c}
		p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	}
	return pods
}

// devicesOf lists what a pod's claims are given, POOL/DEVICE; nothing unless all is
// reserved for the pod.
func (b *bench) devicesOf(name string) (list []string) {
	b.Helper()
	p := b.pod(name)
	for _, pc := range p.Spec.ResourceClaims {
		claim := pc.ResourceClaimName
		for _, s := range p.Status.ResourceClaimStatuses {
			if s.Name == pc.Name {
				claim = s.ResourceClaimName
			}
		}
		if claim == nil {
			return nil
		}
		c, err := b.c.ResourceV1().ResourceClaims("default").Get(b.ctx, *claim, metav1.GetOptions{})
		if err != nil || c.Status.Allocation == nil || !slices.ContainsFunc(c.Status.ReservedFor, by(p.UID)) {
			return nil
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			list = append(list, r.Pool+"/"+r.Device)
		}
	}
	return list
}

func (b *bench) says(name, text string) {
	b.Helper()
	b.wait(fmt.Sprintf("pod %s says %q", name, text), func() bool {
		c := condition(b.pod(name))
		return c.Status == v1.ConditionFalse && strings.Contains(c.Message, text)
	})
}

func (b *bench) runs(names ...string) {
	b.Helper()
	for _, n := range names {
		b.wait("pod "+n+" is bound", func() bool { return b.pod(n).Spec.NodeName != "" })
	}
}

// A claim gets a device that its selector chooses, written into its status before
// the pod is bound; one that finds none waits, and says so; a device that becomes free
// is given to the next. Pods of a higher tier get the devices of a lower.
func testDevices(b *bench) {
	b.classes()
	_, stop := b.schedule()
	defer stop()
	b.resourceClaim("early", kubetest.Asks(1, ""))
	b.create(with("early", "", controlplane.Pod("early", 0, nil))...)
	b.says("early", "asks for devices that no node has")
	b.gpuNodes(4, "n1")
	b.runs("early")
	b.resourceClaim("large",
		kubetest.Asks(1, `device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0`))
	b.create(with("large", "", controlplane.Pod("large", 0, nil))...)
	b.runs("large")
	if got := b.devicesOf("large"); len(got) != 1 || got[0] != "n1/gpu-0" && got[0] != "n1/gpu-1" {
		b.Errorf("the claim for 80 GiB got %v", got)
	}
	large := kubetest.Asks(1, `device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0`)
	b.resourceClaim("third", large)
	b.create(with("third", "", controlplane.Pod("third", 0, nil))...) // two GPUs are free, of 40 GiB
	b.says("third", "resource claims")
	b.create(with("absent", "", controlplane.Pod("absent", 0, nil))...)
	b.says("absent", "resource claim absent does not exist")
	p := b.pod("large")
	b.gone(p)
	b.runs("third")

	b.template("one", kubetest.Asks(1, ""))
	for i := range 2 {
		b.create(with("", "one",
			controlplane.Pod(fmt.Sprintf("low-%d", i), 0, map[string]string{LabelTier: "best-effort"}))...)
	}
	b.runs("low-0", "low-1")
	b.template("two", kubetest.Asks(2, ""))
	b.create(with("", "two", controlplane.Pod("high", 0, map[string]string{LabelTier: "critical"}))...)
	b.runs("high")
	b.audit()
}

// A gang of four pods with two GPUs each, and each pair at one PCIe root, is on two
// nodes; gangs that do not fit at once go one after the other.
func testDevicesGang(b *bench) {
	b.classes()
	b.gpuNodes(4, "n1", "n2")
	_, stop := b.schedule()
	defer stop()
	pair := kubetest.Asks(2, "")
	pair.Devices.Constraints = []resourceapi.DeviceConstraint{
		{Requests: []string{"gpu"}, MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(kubetest.Driver + "/root"))}}
	b.template("pair", pair)
	var names []string
	for i := range 3 {
		name := fmt.Sprintf("g%d", i)
		names = append(names, name)
		b.create(with("", "pair", controlplane.Gang(name, 4, 0, map[string]string{"!test.muster.sh/run": "3s"})...)...)
	}
	checked := map[string]bool{}
	b.wait("all gangs have run", func() bool {
		done := map[string]int{}
		for _, p := range b.pods() {
			if p.Status.Phase == v1.PodSucceeded {
				done[p.Labels[LabelGang]]++
			}
			got := b.devicesOf(p.Name)
			if p.Status.Phase != v1.PodRunning || len(got) == 0 {
				continue
			}
			checked[p.Name] = true
			if len(got) != 2 || !strings.HasPrefix(got[0], p.Spec.NodeName+"/") ||
				got[0][:len(got[0])-1] != got[1][:len(got[1])-1] ||
				(got[0][len(got[0])-1]-'0')/2 != (got[1][len(got[1])-1]-'0')/2 {
				b.Errorf("pod %s on %s has %v: two of one root were to be expected", p.Name, p.Spec.NodeName, got)
			}
		}
		b.auditDevices()
		return !slices.ContainsFunc(names, func(n string) bool { return done[n] != 4 })
	})
	if len(checked) < 4 {
		b.Errorf("only %d pods were seen with their devices", len(checked))
	}
}

// Pods that share a claim are on the node of its device; the claim is taken away
// when the last of them is gone.
func testDevicesShared(b *bench) {
	b.classes()
	b.gpuNodes(2, "n1", "n2")
	_, stop := b.schedule()
	defer stop()
	b.resourceClaim("both", kubetest.Asks(2, ""))
	b.create(with("both", "", controlplane.Gang("g", 3, 0, nil)...)...)
	b.runs("g-0", "g-1", "g-2")
	node := b.pod("g-0").Spec.NodeName
	for _, name := range []string{"g-1", "g-2"} {
		if on := b.pod(name).Spec.NodeName; on != node {
			b.Errorf("pod %s is on %s, and its claim on %s", name, on, node)
		}
	}
	b.create(with("both", "", controlplane.Pod("later", 0, nil))...)
	b.runs("later")
	if on := b.pod("later").Spec.NodeName; on != node || len(b.devicesOf("later")) != 2 {
		b.Errorf("the pod that came later is on %s with %v", on, b.devicesOf("later"))
	}
	admin := kubetest.Asks(1, "")
	admin.Devices.Requests[0].Exactly.AllocationMode,
		admin.Devices.Requests[0].Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
	b.resourceClaim("all", admin) // the other node is free
	b.create(with("all", "", controlplane.Pod("all", 0, nil))...)
	b.runs("all")
	if got := b.devicesOf("all"); len(got) != 2 {
		b.Errorf("the claim for all GPUs of a node got %v", got)
	}
	for _, name := range []string{"g-0", "g-1", "g-2", "later"} {
		b.gone(b.pod(name))
	}
	b.resourceClaim("next", kubetest.Asks(2, ""))
	b.create(with("next", "", controlplane.Pod("next", 0, nil))...)
	b.runs("next")
}

// partitionedGPU is an A100 as its driver publishes it: the whole GPU and two partitions, each
// of which draws on what the GPU has.
func partitionedGPU(gpu int) (list []resourceapi.Device, set resourceapi.CounterSet) {
	name := fmt.Sprintf("gpu-%d-counters", gpu)
	counters := func(slices, memory string) map[string]resourceapi.Counter {
		return map[string]resourceapi.Counter{"slices": {Value: resource.MustParse(slices)},
			"memory": {Value: resource.MustParse(memory)}}
	}
	add := func(profile string, n int, draws map[string]resourceapi.Counter) {
		for i := range n {
			list = append(list, resourceapi.Device{
				Name: fmt.Sprintf("gpu-%d-%s-%d", gpu, strings.ReplaceAll(profile, ".", ""), i),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"profile": {StringValue: &profile}},
				ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: name, Counters: draws}}})
		}
	}
	add("7g.40gb", 1, counters("7", "40Gi"))
	add("3g.20gb", 2, counters("3", "20Gi"))
	add("1g.5gb", 7, counters("1", "5Gi"))
	return list, resourceapi.CounterSet{Name: name, Counters: counters("7", "40Gi")}
}

// Partitions of a GPU exclude the whole of it, and count as parts of a GPU.
func testDevicesParts(b *bench) {
	b.classes()
	b.nodes(0, "n1")
	list, set := partitionedGPU(0)
	b.publish("n1", list, []resourceapi.CounterSet{set})
	d, stop := b.schedule()
	defer stop()
	for _, profile := range []string{"7g.40gb", "3g.20gb", "1g.5gb"} {
		b.template(profile, kubetest.Asks(1, fmt.Sprintf(`device.attributes["gpu.nvidia.com"].profile == %q`, profile)))
	}
	b.create(with("", "3g.20gb", controlplane.Pod("half-0", 0, nil), controlplane.Pod("half-1", 0, nil))...)
	b.runs("half-0", "half-1")
	b.create(with("", "7g.40gb", controlplane.Pod("whole", 0, nil))...)
	b.create(with("", "1g.5gb", controlplane.Pod("small", 0, nil))...) // the memory is used up
	b.says("whole", "GPU")
	b.says("small", "0.142 of a GPU")
	held := func(d *Driver) cluster.Milli {
		held := make(chan cluster.Milli, 1)
		d.inbox.Put(func() {
			sum := cluster.Milli(0)
			for _, b := range d.eng.Beliefs() {
				for _, a := range b.Allocs {
					sum += cluster.Milli(a.Share)
				}
			}
			held <- sum
		})
		return <-held
	}
	if sum := held(d); sum != 1000 {
		b.Errorf("two halves of a GPU count for %d milli-GPU", sum)
	}
	stop()
	d, stop = b.schedule()
	defer stop()
	b.wait("another scheduler has begun", d.Ready)
	if sum := held(d); sum != 1000 {
		b.Errorf("after a restart two halves of a GPU count for %d milli-GPU", sum)
	}
	b.gone(b.pod("half-0"))
	b.runs("small")
	if got := b.pod("whole").Spec.NodeName; got != "" {
		b.Errorf("the whole GPU is given away beside a half of it")
	}
	b.audit()
	b.gone(b.pod("half-1"))
	b.gone(b.pod("small"))
	b.runs("whole")
}

// A scheduler that dies between writing a claim and binding its pod is followed by
// one that uses the claim, or takes it back: no device is lost or given twice.
func testDevicesKilled(b *bench) {
	b.classes()
	b.gpuNodes(4, "n1", "n2")
	b.template("two", kubetest.Asks(2, ""))
	for i, point := range []string{"kube-reserved:1", "kube-reserved:3", "kube-binding:2", "kube-bound:2",
		"kube-bound:3"} {
		name := fmt.Sprintf("k%d", i)
		b.create(with("", "two", controlplane.Gang(name, 3, 0, nil)...)...)
		b.child(point)
		b.auditDevices()
		_, stop := b.schedule()
		b.runs(name+"-0", name+"-1", name+"-2")
		b.audit()
		stop()
		for k := range 3 {
			n := fmt.Sprintf("%s-%d", name, k)
			if got := b.devicesOf(n); len(got) != 2 {
				b.Errorf("after a death at %s pod %s has %v", point, n, got)
			}
			b.gone(b.pod(n))
		}
	}
	// What was given to a pod that goes before another follows is free again.
	b.resourceClaim("kept", kubetest.Asks(4, ""))
	b.create(with("kept", "", controlplane.Pod("kept", 0, nil))...)
	b.child("kube-reserved:1")
	_, stop := b.schedule()
	defer stop()
	b.create(with("", "two", controlplane.Gang("last", 2, 0, nil)...)...)
	b.runs("kept", "last-0", "last-1")
}

// by reports whether it is a pod that a claim is reserved for.
func by(uid types.UID) func(resourceapi.ResourceClaimConsumerReference) bool {
	return func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == uid }
}
