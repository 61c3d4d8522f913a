package kube

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/plans"
)

// inUse is what of a node's devices is given away in the engine's books.
type inUse struct {
	devices uint64
	parts   [cluster.MaxGPUsPerNode]int32 // milli-GPU of those that are shared
}

// inUse is that of all nodes, by name.
func (d *Driver) inUse(snap *engine.Snapshot) map[string]inUse {
	list := map[string]inUse{}
	for name, h := range d.helds(snap) {
		list[name] = inUse{devices: h.gpus}
	}
	for i := range snap.Jobs {
		r := &snap.Jobs[i]
		for k := range r.Allocs {
			a := &r.Allocs[k]
			if u := list[d.order[a.Node]]; a.Share > 0 && u.devices&a.GPUs != 0 {
				u.parts[firstOf(a.GPUs)] += a.Share
				list[d.order[a.Node]] = u
			}
		}
	}
	return list
}

func firstOf(devices uint64) int {
	for i := range cluster.MaxGPUsPerNode {
		if devices>>i&1 != 0 {
			return i
		}
	}
	return cluster.MaxGPUsPerNode
}

// take gives away the first device that no job has, or for a share the first that is shared already and has as much
// left; false: there is none.
func (u *inUse) take(share int32) (device uint64, ok bool) {
	dev := firstOf(^u.devices)
	for i := range u.parts {
		if share > 0 && u.parts[i] > 0 && u.parts[i]+share <= int32(cluster.Whole) {
			dev = i
			break
		}
	}
	if dev == cluster.MaxGPUsPerNode {
		return 0, false
	}
	u.devices |= uint64(1) << dev
	u.parts[dev] += share
	return uint64(1) << dev, true
}

// allocs gives a plan devices: which ones, only the node or the claims know, so
// the first that are not given away will do.
func (d *Driver) allocs(p *plans.Plan, taken map[string]inUse) (list []engine.Alloc, err error) {
	mine := maps.Clone(taken)
	for _, on := range p.On {
		at := slices.Index(d.order, on.Node)
		if at < 0 { // it is gone: the engine learns that in a moment
			at = len(d.order)
			d.order = append(d.order, on.Node)
			d.number[on.Node] = at
			d.noteLeft(on.Node)
		}
		r, use := p.Tasks[on.Set].Request, mine[on.Node]
		a := engine.Alloc{Node: int32(at), Set: int32(on.Set), Tasks: int32(on.Tasks),
			CPU: r.CPU * cluster.Milli(on.Tasks), RAM: r.RAM * cluster.MiB(on.Tasks)}
		if r.Fractional() { // each share is an allocation of its own
			a.Tasks, a.CPU, a.RAM, a.Share = 1, r.CPU, r.RAM, int32(r.Share)
		}
		if r.Profile != "" {
			a.Tasks, a.CPU, a.RAM = 1, r.CPU, r.RAM
			list = append(list, slices.Repeat([]engine.Alloc{a}, on.Tasks)...) // reslice says which they are
			continue
		}
		for range on.Tasks * r.GPUs {
			dev, ok := use.take(a.Share)
			if !ok {
				return nil, fmt.Errorf("node %s: %w", on.Node, errNoRoom)
			}
			if a.GPUs |= dev; a.Share > 0 {
				list, a.GPUs = append(list, a), 0
			}
		}
		if a.Share == 0 {
			list = append(list, a)
		}
		mine[on.Node] = use
	}
	maps.Copy(taken, mine)
	return list, nil
}
