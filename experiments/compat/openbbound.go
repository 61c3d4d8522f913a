package compat

import (
	"math"
	"slices"
)

// Bound is an upper bound, in per cent, of the GPUs that any placer can have allocated when 100 %
// of them have been requested, even one that knows all arrivals in advance, may reject pods and
// move them. It is a Lagrangian dual of packing: prices per kind of pod, and per core and kind of
// machine, give a bound, and prices are optimized by subgradients. Multi-GPU pods may be split in
// it, memory and the cores of pods without GPUs are ignored, and cores may be lent between equal
// machines.
func (o *Openb) Bound(seed int64, steps int) float64 {
	pods, _ := o.arrivals(seed)
	b := &bound{o: o, come: make([]float64, len(o.kinds)), price: make([]float64, len(o.kinds))}
	asked := 0.0
	for _, p := range pods {
		k := o.kindOf[p]
		asked += float64(o.kinds[k].Milli * int64(o.kinds[k].GPUs))
		if asked >= float64(o.devices)*1005 {
			break // column 100 is the mean of the records that round to it
		}
		b.come[k] += float64(o.kinds[k].GPUs)
	}
	for i := range o.machines {
		m := &o.machines[i]
		key := machineKind{model: o.models[i], cpu: m.CPU / int64(m.GPUs)}
		at := slices.IndexFunc(b.types, func(t machineKind) bool { return t.model == key.model && t.cpu == key.cpu })
		if at < 0 {
			at = len(b.types)
			b.types = append(b.types, key)
		}
		b.types[at].devices += float64(m.GPUs)
	}
	best := math.Inf(1)
	for i := range steps {
		best = min(best, b.step(400/math.Sqrt(float64(i+1))))
	}
	return best / float64(o.devices) / 10
}

// bound is the state of the search: prices in milli-GPU per device of a pod, and per core.
type bound struct {
	o     *Openb
	come  []float64 // devices requested by the pods of a kind
	price []float64
	types []machineKind
}

// machineKind is machines of one model with equal CPU per device.
type machineKind struct {
	model   uint64
	cpu     int64 // milli-cores per device
	devices float64
	price   float64 // per milli-core
	over    float64 // excess use of its cores, in perDevice
}

// step evaluates the dual at the present prices and moves them against the subgradient: prices rise
// for what the best patterns overuse.
func (b *bound) step(pace float64) (value float64) {
	used, norm := make([]float64, len(b.price)), 1e-9
	for k := range b.price {
		value += b.price[k] * b.come[k]
	}
	for i := range b.types {
		t := &b.types[i]
		gain, counts := b.pattern(t)
		value += t.devices * (gain + t.price*float64(t.cpu))
		cpu := 0.0
		for k, n := range counts {
			used[k] += float64(n) * t.devices
			cpu += float64(n) * float64(b.o.kinds[k].CPU) / float64(b.o.kinds[k].GPUs)
		}
		t.over = t.devices * (cpu - float64(t.cpu)) / perDevice
		norm += t.over * t.over
	}
	for k := range used {
		used[k] -= b.come[k]
		norm += used[k] * used[k]
	}
	pace /= math.Sqrt(norm)
	for k := range used {
		b.price[k] = max(0, b.price[k]+pace*used[k])
	}
	for i := range b.types {
		t := &b.types[i]
		t.price = max(0, t.price+pace*t.over/perDevice)
	}
	return value
}

// perDevice is about the number of milli-cores per device: it scales prices per core and per device
// alike.
const perDevice = 12000

// pattern is the best content of one device of a kind of machine at these prices: a knapsack of the
// kinds in steps of 10 milli-GPU, sizes rounded down.
func (b *bound) pattern(t *machineKind) (gain float64, counts map[int]int) {
	const cells = 100
	var best [cells + 1]float64
	var took [cells + 1]int
	for c := 1; c <= cells; c++ {
		best[c], took[c] = best[c-1], -1
		for k := range b.o.kinds {
			kind := &b.o.kinds[k]
			size := int(kind.Milli / 10)
			if kind.GPUs == 0 || size > c || kind.Models&t.model == 0 || b.come[k] == 0 {
				continue
			}
			v := float64(kind.Milli) - b.price[k] - t.price*float64(kind.CPU)/float64(kind.GPUs)
			if v > 0 && best[c-max(1, size)]+v > best[c] {
				best[c], took[c] = best[c-max(1, size)]+v, k
			}
		}
	}
	counts = map[int]int{}
	for c := cells; c > 0; {
		if took[c] < 0 {
			c--
			continue
		}
		counts[took[c]]++
		c -= max(1, int(b.o.kinds[took[c]].Milli/10))
	}
	return best[cells], counts
}
