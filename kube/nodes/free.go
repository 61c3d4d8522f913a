package nodes

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/holds"
)

// FreeGPUs is how many GPUs of a node no pod has.
func (r *Room) FreeGPUs(name string) int {
	free := r.opt.GPUs.Count(r.nodes[name].Obj.Status.Allocatable)
	for p := range r.World.On(name) {
		free -= holds.WholeGPUs(&podOf(p).Request)
	}
	return max(0, free)
}

// FreeFor is how often a node has so much of its GPUs left.
func (r *Room) FreeFor(need cluster.Milli, name string) int {
	count := max(r.opt.GPUs.Count(r.nodes[name].Obj.Status.Allocatable), r.opt.Published(name)) - r.opt.Claimed(name)
	free := cluster.Milli(count) * cluster.Whole
	for p := range r.World.On(name) {
		free -= podOf(p).Request.Milli()
	}
	return int(max(0, free) / need)
}

// GPUsUp counts the GPUs of nodes that take pods.
func (r *Room) GPUsUp() (n int) {
	for _, node := range r.nodes {
		if node.Up() {
			n += r.opt.GPUs.Count(node.Obj.Status.Allocatable)
		}
	}
	return n
}

// Users lists the pods on a node that have, or will have, anything of its GPUs, in their order.
func (r *Room) Users(name string) (list []*Pod) {
	for q := range r.World.On(name) {
		if p := podOf(q); !p.Over() && r.opt.GPUs.Asked(p.Obj) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Pod) int { return fit.Order(a.Obj, b.Obj) })
	return list
}

// CountUsers counts them.
func (r *Room) CountUsers(name string) int { return len(r.Users(name)) }

// Occupied reports whether a pod is on a node that does not just go where its node goes.
func (r *Room) Occupied(name string) bool {
	for q := range r.World.On(name) {
		if !podOf(q).followsNode() {
			return true
		}
	}
	return false
}
