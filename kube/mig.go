package kube

import (
	"maps"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gpus"
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
