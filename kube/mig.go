package kube

import (
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/mig"
)

// MIG slices are resources of their own (nvidia.com/mig-3g.40gb): the device
// plugin says how many of each profile a node has, not on which GPU. To the engine
// such a node has GPUs whose instances stay as they are, put together so that they
// can exist; so slices count in queues for what they are, gangs of them start
// together, and they are taken from others as GPUs are. Which instance a pod gets,
// the kubelet decides.

// migOf describes the slices of a node as a geometry behind its whole GPUs: those
// that it has but for what pods hold that the engine does not count, and never
// fewer than our gangs hold.
// whole is how many GPUs the node has besides.
func (d *Driver) migOf(n *node, model *cluster.GPUModel, whole int, held map[string]int) (mig string, devices int) {
	count := map[string]int{}
	if n != nil && n.obj != nil {
		maps.Copy(count, d.gpus.Slices(n.obj.Status.Allocatable))
		for p := range n.pods {
			if p.gang != nil && p.request.Profile != "" {
				continue // the engine's own
			}
			for profile, k := range d.gpus.Slices(gpus.Requests(p.obj)) {
				count[profile] -= k
			}
		}
	}
	all := map[string]int{}
	for profile, k := range count {
		all[profile] = max(k, held[profile])
	}
	for profile, k := range held {
		all[profile] = max(k, all[profile])
	}
	geometry := make([][]cluster.Instance, whole)
	if devices := d.mig.Pack(model, all, cluster.MaxGPUsPerNode-whole); len(devices) > 0 {
		geometry = append(geometry, devices...)
	}
	return cluster.GeometryText(geometry), len(geometry)
}

// slicesAside reports whether a pod holds slices that the engine does not count.
func (d *Driver) slicesAside(p *pod) bool {
	return (p.gang == nil || p.request.Profile == "") && p.Needs != nil && len(d.gpus.Slices(gpus.Requests(p.obj))) > 0
}

// reslice gives the slices that jobs hold their instances again: which they are matters to the books only, and the
// geometry may be another now.
func (d *Driver) reslice(snap *engine.Snapshot, spec *cluster.Spec) error {
	used := map[int32][]uint8{} // by node and device: memory slices in use
	for i := range snap.Jobs {
		r := &snap.Jobs[i]
		r.Allocs = slices.Clone(r.Allocs)
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
				used[a.Node] = make([]uint8, n.GPUs)
			}
			mig.TakeSlice(a, &model, name, geometry, used[a.Node])
		}
	}
	return nil
}

// sliceFound gives the slices of a gang that is found bound instances that no job of a snapshot has.
func (d *Driver) sliceFound(rec *engine.JobRecord, snap *engine.Snapshot) {
	nodes := d.eng.Nodes()
	used := map[int32][]uint8{} // by node and device: memory slices in use
	for k := range rec.Allocs {
		a := &rec.Allocs[k]
		name := holds.Profile(rec, a)
		if name == "" {
			continue
		}
		n := &nodes[a.Node]
		model, _ := d.cfg.Spec.Model(n.Model)
		geometry, _, err := n.Geometry(&model)
		if err != nil {
			return
		}
		if used[a.Node] == nil {
			used[a.Node] = holds.SlotsInUse(snap, a.Node, n.GPUs)
		}
		mig.TakeSlice(a, &model, name, geometry, used[a.Node])
	}
}
