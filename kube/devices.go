package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
)

// Which devices a claim gets on a node, the allocator of kube-scheduler says
// (k8s.io/dynamic-resource-allocation): selectors, counts, constraints across
// requests, devices that are parts of others. Here is what it has to know, and
// what the engine counts of it.

// features are what of the interface the allocator respects.
var features = structured.Features{PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true}

// compiled remembers selectors that were compiled, those of the last claims.
var compiled = cel.NewCache(1000, cel.Features{})

// pool is a driver's devices that are published together.
type pool struct{ driver, name string }

func poolOf(s *resourceapi.ResourceSlice) pool { return pool{s.Spec.Driver, s.Spec.Pool.Name} }

// pools is what the slices of a cluster say.
type pools struct {
	slices  map[pool][]*resourceapi.ResourceSlice
	near    map[string][]pool // by node: those that it alone reaches
	far     []pool            // the others
	parts   map[structured.DeviceID]part
	gpus    map[string]int                            // by node: GPUs of our drivers
	product map[string]string                         // by node: what they are called
	cut     bool                                      // some devices are parts of a GPU
	divided map[pool][]*cutGPU                        // what those are parts of
	unfit   map[want]map[string][]structured.DeviceID // by node: those that are not what a pod wants
}

// part is what a device is of a GPU of a node, in milli-GPU.
type part struct {
	node    string
	milli   int64
	memory  cluster.MiB   // 0: nobody says
	compute cluster.Milli // of the GPU's
}

// pools reads the slices, if they changed.
func (d *Driver) pools() *pools {
	if d.dra.found != nil {
		return d.dra.found
	}
	f := &pools{slices: map[pool][]*resourceapi.ResourceSlice{}, near: map[string][]pool{}, parts: map[structured.DeviceID]part{}, gpus: map[string]int{}, product: map[string]string{},
		unfit: map[want]map[string][]structured.DeviceID{}, divided: map[pool][]*cutGPU{}}
	for _, s := range d.dra.slices {
		f.slices[poolOf(s)] = append(f.slices[poolOf(s)], s)
	}
	for p, list := range f.slices {
		slices.SortFunc(list, func(a, b *resourceapi.ResourceSlice) int { return compare(a.Name, b.Name) })
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
		if slices.Contains(d.opt.Drivers, p.driver) {
			f.count(slices.DeleteFunc(slices.Clone(list), func(s *resourceapi.ResourceSlice) bool { return s.Spec.Pool.Generation < newest }))
		}
	}
	d.dra.found = f
	return f
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// count adds the GPUs of a pool. Devices that are parts of one GPU, or the whole
// of it, draw on one set of counters.
func (f *pools) count(list []*resourceapi.ResourceSlice) {
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
			p := part{node: node, milli: milli}
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

// taken is which devices claims have.
type taken struct {
	devices map[pool]map[structured.DeviceID]bool // false: a pod that holds its place pays for it, and may leave
	others  map[string]int                        // by node: GPUs, rounded up, for which no pod of ours pays
}

// devicesTaken is that now.
func (d *Driver) devicesTaken() *taken {
	if d.dra.used != nil {
		return d.dra.used
	}
	t := &taken{devices: map[pool]map[structured.DeviceID]bool{}, others: map[string]int{}}
	milli, found := map[string]int64{}, d.pools()
	add := func(key string, a *resourceapi.AllocationResult) {
		payer := d.dra.payer[key]
		fixed := payer == nil || payer.Where == "" || payer.gang == nil
		for i := range a.Devices.Results {
			r := &a.Devices.Results[i]
			if r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			p, id := pool{r.Driver, r.Pool}, structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if t.devices[p] == nil {
				t.devices[p] = map[structured.DeviceID]bool{}
			}
			t.devices[p][id] = fixed
			if at, ok := found.parts[id]; ok && fixed {
				milli[at.node] += at.milli
			}
		}
	}
	for key := range d.dra.claims {
		if a := d.allocation(key); a != nil {
			add(key, a)
		}
	}
	for key, g := range d.dra.grants { // of claims that are gone already
		if d.dra.claims[key] == nil || d.dra.claims[key].UID != g.uid {
			add(key, g.allocation)
		}
	}
	for node, m := range milli {
		t.others[node] = int((m + cluster.Whole - 1) / cluster.Whole)
	}
	d.dra.used = t
	return t
}

// reach lists the pools that a node may reach.
func (f *pools) reach(node string) []pool { return slices.Concat(f.near[node], f.far) }

// takenOn is which devices that a node reaches are taken; ever: only those that no
// pod of ours, if it left, would free.
func (d *Driver) takenOn(node string, ever bool) sets.Set[structured.DeviceID] {
	list, t := sets.New[structured.DeviceID](), d.devicesTaken()
	for _, p := range d.pools().reach(node) {
		for id, fixed := range t.devices[p] {
			if fixed || !ever {
				list.Insert(id)
			}
		}
	}
	return list
}

// searchFor bounds how long devices are searched for in one go: constraints can
// make that very long.
const searchFor = time.Second

// errNone says that a node does not have the devices that claims ask for.
var errNone = errors.New("the devices that its resource claims ask for are not free there")

// allocate chooses devices of a node for claims, none of those that are taken.
func (d *Driver) allocate(n *v1.Node, used sets.Set[structured.DeviceID], claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	return d.search(ctx, n, used, claims)
}

func (d *Driver) search(ctx context.Context, n *v1.Node, used sets.Set[structured.DeviceID], claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var list []*resourceapi.ResourceSlice
	f := d.pools()
	for _, p := range f.reach(n.Name) {
		list = append(list, f.slices[p]...)
	}
	if len(list) == 0 {
		return nil, errNone
	}
	a, err := structured.NewAllocator(ctx, features, structured.AllocatedState{AllocatedDevices: used}, classLister(d.dra.classes), f.leastFirst(list, used), compiled)
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
		return nil, errNone
	}
	return results, nil
}

// sizeOf is what a claim counts for: what it has, or the least that it would get
// of an empty node if a pod wants so much. Counting more than that would keep it off nodes where it can
// be met; that it gets more on others, those learn who come after it.
func (d *Driver) sizeOf(key string, want *want) (size, error) {
	if a := d.allocation(key); a != nil {
		return d.weigh(a), nil
	}
	c := d.dra.claims[key]
	spec := jsonText(c.Spec)
	text := fmt.Sprint(spec, want.memory, want.cores)
	if s, ok := d.dra.sizes[text]; ok {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	best, err := (*size)(nil), errNone
	forms := formsOf(c)
	for _, name := range d.nodeNames() {
		for _, form := range forms {
			results, e := d.search(ctx, d.nodes[name].obj, sets.New(d.unfit(want, name)...), []*resourceapi.ResourceClaim{form})
			switch {
			case e == nil:
				way := d.wayOf(&results[0])
				if w, ok := d.dra.ways[spec]; ok {
					way = way.weaker(w)
				}
				d.dra.ways[spec] = way
				if s := d.weigh(&results[0]); best == nil || s.sum() < best.sum() {
					best = &s
				}
			case !errors.Is(e, errNone) && ctx.Err() == nil:
				err = e
			}
		}
		if best != nil && (!d.varies(c) || ctx.Err() != nil) {
			break
		}
	}
	switch {
	case best != nil:
		d.dra.sizes[text] = *best
		return *best, nil
	case !errors.Is(err, errNone):
		return size{}, fmt.Errorf("resource claim %s: %w", c.Name, err)
	}
	if want.memory > 0 || want.cores > 0 {
		return size{}, fmt.Errorf("resource claim %s asks for devices that no node has with what its pod wants (%s)", c.Name, want.text())
	}
	return size{}, fmt.Errorf("resource claim %s asks for devices that no node has", c.Name)
}

func (s size) sum() int64 { return s.whole*cluster.Whole + s.milli }

// varies reports whether a claim may count for more on one node than on another.
func (d *Driver) varies(c *resourceapi.ResourceClaim) bool {
	return d.pools().cut || slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return len(r.FirstAvailable) > 0 || r.Exactly != nil && r.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll
	})
}

// mostForms bounds in how many forms a claim is tried.
const mostForms = 16

// formsOf is a claim once for each choice of the alternatives that it allows: which
// of them it gets is not known before. Where there are too many, the first ones.
func formsOf(c *resourceapi.ResourceClaim) []*resourceapi.ResourceClaim {
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

// nodeNames lists the nodes that there are, by name.
func (d *Driver) nodeNames() (names []string) {
	for name, n := range d.nodes {
		if n.obj != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// weigh adds what devices count for.
func (d *Driver) weigh(a *resourceapi.AllocationResult) (s size) {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		switch at, ok := d.pools().parts[structured.MakeDeviceID(r.Driver, r.Pool, r.Device)]; {
		case !ok && slices.Contains(d.opt.Drivers, r.Driver): // its slice is gone
			s.whole++
		case !ok:
		case at.milli == cluster.Whole:
			s.whole++
		default:
			s.milli += at.milli
		}
	}
	return s
}

// limitDevices bounds nodes by on which of them the claims of the gang can be met, and of how many
// of its pods. Who would have to leave for that, the engine decides: it counts
// GPUs, so a node is closed only where it counts more than there is, because what
// is free is not what the claims ask for.
func (d *Driver) limitDevices(l *fit.Look, pods []*pod) {
	open := false
	for _, p := range pods {
		for _, key := range p.claimed.keys {
			if a := d.allocation(key); a == nil {
				open = true
			} else {
				l.ShutIf("where its resource claims are allocated", func(n *v1.Node) bool { return !reaches(a, n) })
			}
		}
	}
	if !open {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchFor)
	defer cancel()
	l.Open(func(name string, n *v1.Node) {
		most, why := d.fitting(ctx, pods, n, true)
		if most > 0 {
			if now, text := d.fitting(ctx, pods, n, false); now < most && now < d.roomFor(pods, name) {
				most, why = now, text
			}
		}
		l.Most(name, int64(most), why)
	})
}

// fitting counts how many of the gang's pods get their devices on a node, one
// after the other; ever: if all who may leave had left.
func (d *Driver) fitting(ctx context.Context, pods []*pod, n *v1.Node, ever bool) (count int, why string) {
	used := d.takenOn(n.Name, ever).Insert(d.unfit(&pods[0].want, n.Name)...)
	made, failed := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		var open []*resourceapi.ResourceClaim
		for _, key := range p.claimed.keys {
			if c := d.dra.claims[key]; c != nil && d.allocation(key) == nil && !made[key] {
				open = append(open, c)
			}
		}
		if failed[p.claimed.wants] && len(open) > 0 {
			continue
		}
		results, err := d.search(ctx, n, used, open)
		if err != nil {
			failed[p.claimed.wants], why = true, "its resource claims"
			if !errors.Is(err, errNone) {
				why += " (" + err.Error() + ")"
			}
			continue
		}
		count++
		for i := range results {
			made[open[i].Namespace+"/"+open[i].Name] = true
			for k := range results[i].Devices.Results {
				r := &results[i].Devices.Results[k]
				used.Insert(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
			}
		}
	}
	return count, why
}
