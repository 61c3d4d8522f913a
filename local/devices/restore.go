//go:build linux

package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

const metaDevices = "devices"

// Restore keeps every GPU at the place by which the engine knows it: the driver counts again when one is gone. While
// jobs hold devices, one that is gone keeps its place, as unhealthy, and new ones come last. The node of the
// cluster's description gets the GPUs.
func (g *GPUs) Restore(ctx context.Context, st *store.Store, held bool, spec *cluster.Spec) error {
	var old []show.GPU
	text, err := st.Meta(ctx, metaDevices)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, &old); err != nil {
			return fmt.Errorf("the stored devices: %w", err)
		}
	}
	if held {
		g.List = inOrder(old, g.List)
	}
	nodes := slices.Clone(spec.Nodes)
	if model, ok := spec.Model(nodes[0].Model); ok {
		for i := range g.List {
			known(&model, &g.List[i])
		}
	}
	nodes[0].GPUs, nodes[0].MIG = len(g.List), g.geometry(spec.MIG)
	spec.Nodes = nodes
	g.faults = make([]string, len(g.List))
	for i := range g.List {
		g.faults[i] = g.List[i].Fault
	}
	if text, err = json.Marshal(g.List); err != nil {
		return err
	}
	return st.Write(ctx, func(t *store.Tx) error { return t.PutMeta(metaDevices, text) })
}

// geometry is what the engine knows of the instances that there are.
func (g *GPUs) geometry(way cluster.MIGWay) string {
	if way == cluster.DynamicMIG {
		return ""
	}
	list := slices.Clone(g.List)
	for i := range list {
		if list[i].MIG && way == cluster.InstancesMIG {
			list[i].Instances = []show.MIG{{Profile: cluster.AsNeeded}}
		}
	}
	return geometry(list)
}

// geometry is the MIG instances of devices, as cluster.Node has it.
func geometry(gpus []show.GPU) string {
	list := make([][]cluster.Instance, len(gpus))
	for i, g := range gpus {
		if g.MIG {
			list[i] = []cluster.Instance{}
		}
		for _, in := range g.Instances {
			list[i] = append(list[i], cluster.Instance{Profile: in.Profile, Start: in.Start})
		}
	}
	return cluster.GeometryText(list)
}

// known keeps those of a GPU's instances that can be what they say.
func known(model *cluster.GPUModel, g *show.GPU) {
	all := g.Instances
	g.Instances = nil
	for _, in := range all {
		g.Instances = append(g.Instances, in)
		node := cluster.Node{GPUs: 1, MIG: geometry([]show.GPU{*g})}
		if _, _, err := node.Geometry(model); err != nil {
			g.Instances = g.Instances[:len(g.Instances)-1]
		}
	}
}

// inOrder lists the devices that there are in the order of an earlier list.
func inOrder(old, now []show.GPU) (list []show.GPU) {
	for _, o := range old {
		i := slices.IndexFunc(now, func(g show.GPU) bool { return g.UUID == o.UUID })
		if i >= 0 {
			list = append(list, now[i])
			continue
		}
		o.Healthy, o.Fault = false, "it is not there any more"
		list = append(list, o)
	}
	for _, g := range now {
		if !slices.ContainsFunc(old, func(o show.GPU) bool { return o.UUID == g.UUID }) &&
			len(list) < cluster.MaxGPUsPerNode {
			list = append(list, g)
		}
	}
	return list
}
