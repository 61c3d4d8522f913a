package found

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Changed says why a node cannot become another; "": it can.
func (b *Books) Changed(n *cluster.Node) string {
	id, ok := b.Nodes[n.Name]
	if !ok {
		return "there is no such node"
	}
	was := b.World.Store.Nodes()[id].Spec()
	switch {
	case n.GPUs < 0 || n.GPUs > cluster.MaxGPUsPerNode:
		return fmt.Sprintf("%d GPUs; between 0 and %d are supported", n.GPUs, cluster.MaxGPUsPerNode)
	case n.CPU < 0 || n.RAM < 0:
		return "CPU or RAM is negative"
	}
	model, ok := b.Model(n)
	if !ok {
		return fmt.Sprintf("GPU model %q is not known", n.Model)
	}
	if _, _, err := n.Geometry(&model); err != nil {
		return "mig: " + err.Error()
	}
	if !inventory.SameHardware(was, n) && !b.canEmpty(id) {
		return "a job has a GPU of it"
	}
	return ""
}

// Model is the model of a node's GPUs.
func (b *Books) Model(n *cluster.Node) (model cluster.GPUModel, ok bool) {
	if n.GPUs == 0 {
		return model, true
	}
	return b.Spec.Model(n.Model)
}

// Clients is how many processes MPS serves on a GPU of a model; 0: GPUs are not shared by MPS.
func (b *Books) Clients(model *cluster.GPUModel) int {
	if b.Spec.Sharing != cluster.MPS {
		return 0
	}
	return model.MPSClients()
}

// canEmpty reports whether no job has a device of a node, but for those that were promised one and have not started.
func (b *Books) canEmpty(id int32) bool {
	n := &b.World.Store.Nodes()[id]
	if len(n.Stopping()) > 0 || n.Frozen() > 0 {
		return false
	}
	mark := b.World.Store.Mark()
	defer b.World.Store.Rollback(mark)
	for _, j := range b.Running.Placed() {
		if inventory.OnNode(j.Allocs, id) {
			b.World.Store.ReleaseAll(j.Allocs)
		}
	}
	return n.Idle()
}
