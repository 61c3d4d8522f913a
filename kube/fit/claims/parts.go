package claims

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/kube/amount"
)

// Of partitions of a GPU that are alike, the allocator takes the first that is free in its
// slice. A 1g at the first memory slice shuts out a 4g, which can be nowhere else; at the
// last it does not. So the allocator is given them in another order: those first whose
// choice makes least of the others impossible, as far as the counters of the GPU say.

// cutGPU is a GPU and what it can be divided into. Amounts are those of its counters, in
// one order for all.
type cutGPU struct {
	have  []int64
	parts []cutPart
}

type cutPart struct {
	id    structured.DeviceID
	draws []int64
	milli int64
	like  string // partitions with the same differ in where they are only
}

// cuts reads the GPUs of a pool that can be divided. Devices that draw on several sets of
// counters are left where they are.
func (f *Pools) cuts(p Pool, list []*resourceapi.ResourceSlice, have map[string]map[string]resourceapi.Counter) {
	names, gpus := map[string][]string{}, map[string]*cutGPU{}
	var order []string
	for _, s := range list {
		for i := range s.Spec.Devices {
			dev := &s.Spec.Devices[i]
			if len(dev.ConsumesCounters) != 1 {
				continue
			}
			c := &dev.ConsumesCounters[0]
			g := gpus[c.CounterSet]
			if g == nil {
				g = &cutGPU{}
				names[c.CounterSet] = slices.Sorted(maps.Keys(have[c.CounterSet]))
				for _, name := range names[c.CounterSet] {
					v := have[c.CounterSet][name].Value
					g.have = append(g.have, amount.Count(&v))
				}
				gpus[c.CounterSet], order = g, append(order, c.CounterSet)
			}
			part := cutPart{id: structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, dev.Name),
				milli: max(1, fraction(c.Counters, have[c.CounterSet]))}
			for _, name := range names[c.CounterSet] {
				v := c.Counters[name].Value
				part.draws = append(part.draws, amount.Count(&v))
			}
			amounts := slices.Sorted(slices.Values(part.draws))
			part.like = fmt.Sprint(amounts)
			if a := dev.Attributes["profile"]; a.StringValue != nil {
				part.like += *a.StringValue
			}
			g.parts = append(g.parts, part)
		}
	}
	for _, set := range order {
		f.divided[p] = append(f.divided[p], gpus[set])
	}
}

func (c *cutPart) fits(free []int64) bool {
	for i, v := range c.draws {
		if v > free[i] {
			return false
		}
	}
	return true
}

// losses says of each partition that could be given away now what share of a GPU of others,
// in thousandths and added up, could not be any more.
func (g *cutGPU) losses(used sets.Set[structured.DeviceID], add func(c *cutPart, loss int64)) {
	free := slices.Clone(g.have)
	for i := range g.parts {
		if c := &g.parts[i]; used.Has(c.id) {
			for k, v := range c.draws {
				free[k] -= v
			}
		}
	}
	var open []*cutPart
	for i := range g.parts {
		if c := &g.parts[i]; !used.Has(c.id) && c.fits(free) {
			open = append(open, c)
		}
	}
	rest := make([]int64, len(free))
	for _, c := range open {
		for k, v := range c.draws {
			rest[k] = free[k] - v
		}
		loss := int64(0)
		for _, o := range open {
			if o != c && !o.fits(rest) {
				loss += o.milli
			}
		}
		add(c, loss)
	}
}

// leastFirst is the slices of a node, with partitions that are alike in the order of what
// choosing them loses. Where one is, another kind stays.
func (f *Pools) leastFirst(list []*resourceapi.ResourceSlice,
	used sets.Set[structured.DeviceID]) []*resourceapi.ResourceSlice {
	loss, like := map[structured.DeviceID]int64{}, map[structured.DeviceID]string{}
	seen := map[Pool]bool{}
	for _, s := range list {
		if p := poolOf(s); !seen[p] {
			seen[p] = true
			for _, g := range f.divided[p] {
				g.losses(used, func(c *cutPart, v int64) { loss[c.id], like[c.id] = v, c.like })
			}
		}
	}
	if len(loss) == 0 {
		return list
	}
	ordered := make([]*resourceapi.ResourceSlice, len(list))
	for i, s := range list {
		ordered[i] = reorder(s, loss, like)
	}
	return ordered
}

// reorder is a slice with that order of its devices.
func reorder(s *resourceapi.ResourceSlice, loss map[structured.DeviceID]int64,
	like map[structured.DeviceID]string) *resourceapi.ResourceSlice {
	places := map[string][]int{}
	id := func(i int) structured.DeviceID {
		return structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Devices[i].Name)
	}
	for i := range s.Spec.Devices {
		if kind, ok := like[id(i)]; ok {
			places[kind] = append(places[kind], i)
		}
	}
	if len(places) == 0 {
		return s
	}
	other := *s
	other.Spec.Devices = slices.Clone(s.Spec.Devices)
	for _, at := range places {
		best := slices.Clone(at)
		slices.SortStableFunc(best, func(a, b int) int { return cmp.Compare(loss[id(a)], loss[id(b)]) })
		for k, i := range at {
			other.Spec.Devices[i] = s.Spec.Devices[best[k]]
		}
	}
	return &other
}
