package mig

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
)

// pack puts slices together on as few GPUs as could have them: the largest first,
// each where there is the most room, as administrators partition all GPUs alike.
func pack(model *cluster.GPUModel, count map[string]int, most int) (devices [][]cluster.Instance) {
	var profiles []*cluster.SliceProfile
	slots, compute := 0, 0
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if p, ok := model.Profile(name); ok && p.Name == name && count[name] > 0 {
			profiles = append(profiles, p)
			slots, compute = slots+p.Slots*count[name], compute+p.Compute*count[name]
		}
	}
	if profiles == nil {
		return nil
	}
	least := max((slots+model.MemSlots-1)/model.MemSlots, (compute+model.Compute-1)/model.Compute)
	devices = make([][]cluster.Instance, min(least, most))
	slices.SortStableFunc(profiles, func(a, b *cluster.SliceProfile) int {
		return cmp.Compare(b.Slots*8+b.Compute, a.Slots*8+a.Compute)
	})
	for _, p := range profiles {
		for range count[p.Name] {
			if putIn(model, devices, p) {
				continue
			}
			if len(devices) == most {
				return devices
			}
			devices = append(devices, nil)
			putIn(model, devices[len(devices)-1:], p)
		}
	}
	return slices.DeleteFunc(devices, func(list []cluster.Instance) bool { return list == nil })
}

// putIn adds an instance to the emptiest device that can have it, at the last
// start where it can be.
func putIn(model *cluster.GPUModel, devices [][]cluster.Instance, p *cluster.SliceProfile) bool {
	best, used := -1, 0
	var with []cluster.Instance
	for i := range devices {
		n := 0
		for _, in := range devices[i] {
			q, _ := model.Profile(in.Profile)
			n += q.Slots
		}
		if best >= 0 && n >= used {
			continue
		}
		for k := len(p.Starts) - 1; k >= 0; k-- {
			list := append(slices.Clip(devices[i]), cluster.Instance{Profile: p.Name, Start: p.Starts[k]})
			one := cluster.Node{GPUs: 1, MIG: cluster.GeometryText([][]cluster.Instance{list})}
			if _, _, err := one.Geometry(model); err == nil {
				best, used, with = i, n, list
				break
			}
		}
	}
	if best < 0 {
		return false
	}
	devices[best] = with
	return true
}

// TakeSlices gives the slices that a job holds instances that no other has: which they are matters to the books only,
// and the geometry of nodes may be another now. used is the memory slices that are in use, by node and device, as far
// as they are known; of another node, others says it.
func TakeSlices(r *engine.JobRecord, spec *cluster.Spec, used map[int32][]uint8,
	others func(node int32, gpus int) []uint8) error {
	for k := range r.Allocs {
		a := &r.Allocs[k]
		name := holds.Profile(r, a)
		if name == "" {
			continue
		}
		n := &spec.Nodes[a.Node]
		model, _ := spec.Model(n.Model)
		geometry, _, err := n.Geometry(&model)
		if err != nil {
			return &engine.NodeError{Node: n.Name, Text: "mig: " + err.Error()}
		}
		if used[a.Node] == nil {
			used[a.Node] = others(a.Node, n.GPUs)
		}
		takeSlice(a, &model, name, geometry, used[a.Node])
	}
	return nil
}

// takeSlice gives an allocation the first free instance of a profile; without one
// it keeps what it has, and the engine finds that it is lost.
func takeSlice(a *engine.Alloc, model *cluster.GPUModel, name string, geometry [][]cluster.Instance, used []uint8) {
	p, ok := model.Profile(name)
	if !ok {
		return
	}
	for dev, list := range geometry {
		for _, in := range list {
			if in.Profile != p.Name || used[dev]&p.Mask(in.Start) != 0 {
				continue
			}
			used[dev] |= p.Mask(in.Start)
			a.GPUs, a.Slots, a.Compute, a.Media = 1<<dev, p.Mask(in.Start), uint8(p.Compute), p.Media()
			a.Share, a.Mem = int32(p.Compute*int(cluster.Whole)/model.Compute), p.Memory
			return
		}
	}
}
