package claims

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
)

// features are what of the interface the allocator respects.
var features = structured.Features{PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true}

// compiled remembers selectors that were compiled, those of the last claims.
var compiled = cel.NewCache(1000, cel.Features{})

// Pool is a driver's devices that are published together.
type Pool struct{ Driver, Name string }

func poolOf(s *resourceapi.ResourceSlice) Pool { return Pool{s.Spec.Driver, s.Spec.Pool.Name} }

// Pools is what the slices of a cluster say.
type Pools struct {
	counted []string // drivers whose devices are GPUs
	slices  map[Pool][]*resourceapi.ResourceSlice
	near    map[string][]Pool // by node: those that it alone reaches
	far     []Pool            // the others
	parts   map[structured.DeviceID]Part
	gpus    map[string]int                             // by node: GPUs of our drivers
	product map[string]string                          // by node: what they are called
	cut     bool                                       // some devices are parts of a GPU
	divided map[Pool][]*cutGPU                         // what those are parts of
	unfit   map[least]map[string][]structured.DeviceID // by node: those that are not what a pod wants
}

// Part is what a device is of a GPU of a node, in milli-GPU.
type Part struct {
	Node    string
	Milli   int64
	Memory  cluster.MiB   // 0: that is not said
	Compute cluster.Milli // of the GPU's
}

// Read reads the slices; counted are the drivers whose devices are GPUs.
func Read(all map[string]*resourceapi.ResourceSlice, counted []string) *Pools {
	f := &Pools{counted: counted, slices: map[Pool][]*resourceapi.ResourceSlice{}, near: map[string][]Pool{},
		parts: map[structured.DeviceID]Part{}, gpus: map[string]int{}, product: map[string]string{},
		unfit: map[least]map[string][]structured.DeviceID{}, divided: map[Pool][]*cutGPU{}}
	for _, s := range all {
		f.slices[poolOf(s)] = append(f.slices[poolOf(s)], s)
	}
	for p, list := range f.slices {
		slices.SortFunc(list, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
		newest := int64(0)
		for _, s := range list {
			newest = max(newest, s.Spec.Pool.Generation)
		}
		node, alone := "", true
		for _, s := range list {
			n := ""
			if s.Spec.NodeName != nil {
				n = *s.Spec.NodeName
			}
			if node != "" && n != node {
				alone = false
			}
			node = n
			alone = alone && n != ""
		}
		if alone {
			f.near[node] = append(f.near[node], p)
		} else {
			f.far = append(f.far, p)
		}
		if slices.Contains(counted, p.Driver) {
			f.count(slices.DeleteFunc(slices.Clone(list), func(s *resourceapi.ResourceSlice) bool {
				return s.Spec.Pool.Generation < newest
			}))
		}
	}
	return f
}

// count adds the GPUs of a pool. Devices that are parts of one GPU, or the whole
// of it, draw on one set of counters.
func (f *Pools) count(list []*resourceapi.ResourceSlice) {
	have := map[string]map[string]resourceapi.Counter{}
	for _, s := range list {
		for _, c := range s.Spec.SharedCounters {
			have[c.Name] = c.Counters
		}
	}
	if len(list) > 0 {
		f.cuts(poolOf(list[0]), list, have)
	}
	cut := map[string]bool{}
	for _, s := range list {
		for i := range s.Spec.Devices {
			dev := &s.Spec.Devices[i]
			node := deviceNode(s, dev)
			if node == "" {
				continue
			}
			milli := cluster.Whole
			for k, c := range dev.ConsumesCounters {
				if k == 0 {
					milli = 1
				}
				milli = max(milli, fraction(c.Counters, have[c.CounterSet]))
				if !cut[node+"/"+c.CounterSet] {
					cut[node+"/"+c.CounterSet] = true
					f.gpus[node]++
				}
			}
			if len(dev.ConsumesCounters) == 0 {
				f.gpus[node]++
			}
			f.cut = f.cut || milli < cluster.Whole
			p := Part{Node: node, Milli: milli}
			p.sizeIn(dev, have)
			f.parts[structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, dev.Name)] = p
			if a := dev.Attributes["productName"]; a.StringValue != nil {
				f.product[node] = *a.StringValue
			}
		}
	}
}

func deviceNode(s *resourceapi.ResourceSlice, dev *resourceapi.Device) string {
	switch {
	case s.Spec.NodeName != nil:
		return *s.Spec.NodeName
	case dev.NodeName != nil:
		return *dev.NodeName
	}
	return ""
}

// fraction is the largest share that a device draws of any counter, in
// thousandths. Counters of which there is one - a memory slice each - are places: they
// count together.
func fraction(draws, have map[string]resourceapi.Counter) (milli int64) {
	places, taken := int64(0), int64(0)
	for name, all := range have {
		c := draws[name]
		total := amount.Count(&all.Value)
		switch drawn := min(amount.Count(&c.Value), total); {
		case total == 1:
			places, taken = places+1, taken+drawn
		case total > 0:
			milli = max(milli, drawn*cluster.Whole/total)
		}
	}
	if places > 0 {
		milli = max(milli, taken*cluster.Whole/places)
	}
	return min(milli, cluster.Whole)
}

// Reach lists the pools that a node may reach.
func (f *Pools) Reach(node string) []Pool { return slices.Concat(f.near[node], f.far) }

// ErrNone says that a node does not have the devices that claims ask for.
var ErrNone = errors.New("the devices that its resource claims ask for are not free there")

// Search chooses devices of a node for claims, none of those that are used.
func (f *Pools) Search(ctx context.Context, classes Classes, n *v1.Node, used sets.Set[structured.DeviceID],
	claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var list []*resourceapi.ResourceSlice
	for _, p := range f.Reach(n.Name) {
		list = append(list, f.slices[p]...)
	}
	if len(list) == 0 {
		return nil, ErrNone
	}
	a, err := structured.NewAllocator(ctx, features, structured.AllocatedState{AllocatedDevices: used}, classes,
		f.leastFirst(list, used), compiled)
	if err != nil {
		return nil, err
	}
	results, err := a.Allocate(ctx, n, claims)
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("the search for devices takes too long")
	case err != nil:
		return nil, err
	case results == nil:
		return nil, ErrNone
	}
	return results, nil
}

// Size is what devices count for in the engine: whole GPUs, and parts of GPUs.
type Size struct{ Whole, Milli int64 }

// Plus adds two.
func (s Size) Plus(o Size) Size { return Size{s.Whole + o.Whole, s.Milli + o.Milli} }

// Add makes a request of devices part of a pod's: a single part of a GPU is a
// share, several are as many GPUs as they would fill.
func (s Size) Add(r cluster.Request) cluster.Request {
	switch {
	case r.Profile != "": // a slice of another GPU: the engine counts that alone
	case r.GPUs == 0 && s.Whole == 0 && s.Milli > 0 && s.Milli < cluster.Whole:
		r.GPUs, r.Share = 1, s.Milli
	default:
		r.GPUs += int(s.Whole + (s.Milli+cluster.Whole-1)/cluster.Whole)
	}
	return r
}

// Sum is all of it in milli-GPU.
func (s Size) Sum() int64 { return s.Whole*cluster.Whole + s.Milli }

// mostForms bounds in how many forms a claim is tried.
const mostForms = 16

// Forms is a claim once for each choice of the alternatives that it allows: which
// of them it gets is not known before. Where there are too many, the first ones.
func Forms(c *resourceapi.ResourceClaim) []*resourceapi.ResourceClaim {
	forms := []*resourceapi.ResourceClaim{c}
	for i := range c.Spec.Devices.Requests {
		alternatives := c.Spec.Devices.Requests[i].FirstAvailable
		if len(alternatives) < 2 || len(forms)*len(alternatives) > mostForms {
			continue
		}
		var more []*resourceapi.ResourceClaim
		for _, form := range forms {
			for k := range alternatives {
				one := form.DeepCopy()
				one.Spec.Devices.Requests[i].FirstAvailable = one.Spec.Devices.Requests[i].FirstAvailable[k : k+1]
				more = append(more, one)
			}
		}
		forms = more
	}
	return forms
}

// Weigh adds what devices count for.
func (f *Pools) Weigh(a *resourceapi.AllocationResult) (s Size) {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		switch at, ok := f.parts[structured.MakeDeviceID(r.Driver, r.Pool, r.Device)]; {
		case !ok && slices.Contains(f.counted, r.Driver): // its slice is gone
			s.Whole++
		case !ok:
		case at.Milli == cluster.Whole:
			s.Whole++
		default:
			s.Milli += at.Milli
		}
	}
	return s
}

// Classes let the allocator read the classes.
type Classes map[string]*resourceapi.DeviceClass

// List lists them by name.
func (l Classes) List() (list []*resourceapi.DeviceClass, err error) {
	for _, name := range slices.Sorted(maps.Keys(l)) {
		list = append(list, l[name])
	}
	return list, nil
}

// Get finds one; the error is the API server's where it is not there.
func (l Classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if c := l[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

// sizeIn is what a device is of a GPU: its memory, as its driver publishes it or its counters
// draw it (0: neither says), and its part of the compute, milli-GPU.
func (p *Part) sizeIn(dev *resourceapi.Device, have map[string]map[string]resourceapi.Counter) {
	p.Compute = p.Milli
	if c, ok := dev.Capacity["memory"]; ok {
		p.Memory = amount.MiB(&c.Value, false)
	}
	for i := range dev.ConsumesCounters {
		draws := &dev.ConsumesCounters[i]
		if c, ok := draws.Counters["memory"]; ok && p.Memory == 0 {
			p.Memory = amount.MiB(&c.Value, false)
		}
		if c, ok := draws.Counters["multiprocessors"]; ok {
			only := map[string]resourceapi.Counter{"multiprocessors": c}
			p.Compute = fraction(only, have[draws.CounterSet])
		}
	}
}

// least is what a device has to have.
type least struct {
	memory  cluster.MiB
	compute cluster.Milli
}

// Enough reports whether a device has so much.
func (p *Part) Enough(memory cluster.MiB, compute cluster.Milli) bool {
	return p.Memory >= memory && p.Compute >= compute
}

// Unfit lists the devices of a node, of those that count as GPUs, that do not have so much.
func (f *Pools) Unfit(memory cluster.MiB, compute cluster.Milli, node string) []structured.DeviceID {
	want := least{memory, compute}
	if want == (least{}) {
		return nil
	}
	list, ok := f.unfit[want]
	if !ok {
		list = map[string][]structured.DeviceID{}
		for id, p := range f.parts {
			if !p.Enough(memory, compute) {
				list[p.Node] = append(list[p.Node], id)
			}
		}
		f.unfit[want] = list
	}
	return list[node]
}

// GPUs is how many of them a node has.
func (f *Pools) GPUs(node string) int { return f.gpus[node] }

// Product is what they are called there; "": that is not said.
func (f *Pools) Product(node string) string { return f.product[node] }

// Cut reports whether some devices are parts of a GPU.
func (f *Pools) Cut() bool { return f.cut }

// Part is what a device is of a GPU; false: it is none that counts.
func (f *Pools) Part(id structured.DeviceID) (Part, bool) {
	p, ok := f.parts[id]
	return p, ok
}
