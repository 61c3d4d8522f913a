//go:build linux

// Package devices is the GPUs of this machine: the place at which the engine knows each, their faults and instances,
// and what allocations hold of them.
package devices

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/show"
)

// GPUs are those of this machine. List and faults belong to the step of the machine's loop.
type GPUs struct {
	List   []show.GPU // in the order of the node's devices
	faults []string   // of each; "": none
	source gpu.Source // nil: nothing is measured or changed

	cutting sync.Mutex                            // held while they are partitioned
	seen    atomic.Pointer[map[string]gpu.Sample] // by UUID
}

// New takes GPUs as they were found.
func New(list []show.GPU, source gpu.Source) *GPUs {
	return &GPUs{List: list, faults: make([]string, len(list)), source: source}
}

// Describe lists devices as the interface shows them.
func Describe(devices []gpu.Device) (list []show.GPU) {
	for _, d := range devices {
		g := show.GPU{Index: d.Index, UUID: d.UUID, Model: d.Model, Memory: d.Memory, Simulated: d.Simulated,
			MIG: d.MIG, Healthy: true}
		for _, in := range d.Instances {
			g.Instances = append(g.Instances, show.MIG{Profile: in.Profile, Start: in.Start, UUID: in.UUID})
		}
		list = append(list, g)
	}
	return list
}

// Simulated reports whether the GPUs are simulated ones.
func (g *GPUs) Simulated() bool { return len(g.List) > 0 && g.List[0].Simulated }

// toBeMade begins the UUID of an instance that does not exist yet.
const toBeMade = "MIG-to-be-made/"

// Held lists what allocations hold of the GPUs.
func (g *GPUs) Held(spec *cluster.Spec, allocs []engine.Alloc) (list []show.Device) {
	for i := range allocs {
		a := &allocs[i]
		for slot := range g.List {
			if a.GPUs>>slot&1 == 1 && !slices.ContainsFunc(list,
				func(d show.Device) bool { return d.Index == g.List[slot].Index && d.Share == 0 }) {
				list = append(list, g.held(spec, slot, a))
			}
		}
	}
	return list
}

// held is what an allocation holds of a GPU.
func (g *GPUs) held(spec *cluster.Spec, slot int, a *engine.Alloc) show.Device {
	of := &g.List[slot]
	d := show.Device{Index: of.Index, UUID: of.UUID, Share: int64(a.Share)}
	model, _ := spec.Model(spec.Nodes[0].Model)
	p, start, ok := model.Held(a.Slots, int(a.Compute), a.Media)
	if !ok {
		return d
	}
	d.UUID, d.Profile, d.Parent = fmt.Sprintf("%s%s/%d", toBeMade, of.UUID, start), p.Name, of.UUID
	for _, in := range of.Instances {
		if q, ok := model.Profile(in.Profile); ok && q == p && in.Start == start {
			d.UUID = in.UUID
		}
	}
	return d
}

// Show lists the GPUs as the interface shows them; bad has those that the engine takes for unhealthy.
func (g *GPUs) Show(spec *cluster.Spec, bad uint64, holders []engine.Belief) []show.GPU {
	list := slices.Clone(g.List)
	for i := range list {
		v := &list[i]
		v.Instances = slices.Clone(v.Instances)
		v.Healthy, v.Free, v.Fault = bad>>i&1 == 0, cluster.Whole, g.faults[i]
		g.measured(v)
		for _, b := range holders {
			for _, a := range b.Allocs {
				if a.GPUs>>i&1 == 0 {
					continue
				}
				id := int(b.Job)
				if !slices.Contains(v.Jobs, id) { // two tasks of it
					v.Jobs = append(v.Jobs, id)
				}
				d := g.held(spec, i, &a)
				for k := range v.Instances {
					if v.Instances[k].UUID == d.UUID {
						v.Instances[k].Job = &id
					}
				}
				if v.Free -= cluster.Milli(a.Share); a.Share == 0 {
					v.Free = 0
				}
			}
		}
	}
	return list
}

// SetSeen keeps the last sample of the source's devices.
func (g *GPUs) SetSeen(values []gpu.Sample) {
	seen := map[string]gpu.Sample{}
	for i, d := range g.source.Devices() {
		seen[d.UUID] = values[i]
	}
	g.seen.Store(&seen)
}

// measured fills in the last sample of a GPU.
func (g *GPUs) measured(v *show.GPU) {
	if seen := g.seen.Load(); seen != nil {
		s := (*seen)[v.UUID]
		v.Utilisation, v.MemoryUsed, v.Power, v.Temperature = s.Utilisation, s.MemoryUsed, s.Power, s.Temperature
	}
}

// Others are the minor numbers of the GPUs of which none of a task's devices is a part.
func (g *GPUs) Others(own []show.Device) (minors []int64) {
	if g.source == nil {
		return nil
	}
	for _, d := range g.source.Devices() {
		if d.Minor >= 0 && !slices.ContainsFunc(own, func(o show.Device) bool { return o.GPU() == d.UUID }) {
			minors = append(minors, int64(d.Minor))
		}
	}
	return minors
}
