package nodes

import (
	"maps"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/holds"
)

// kind is what makes the kind of a node in the engine.
type kind struct {
	model string
	gpus  int
}

func kindOf(s *cluster.Node) kind { return kind{s.Model, s.GPUs} }

// Spec describes a node to the engine. What our gangs hold there always fits: what is running is not lost because
// others took what was left.
func (r *Room) Spec(name string, h holds.Of) cluster.Node {
	return r.spec(name, r.nodes[name], r.World.On(name), h)
}

// SpecAs is what an empty node would be to the engine, were it another object; what foreign pods hold of its CPU and
// memory stays.
func (r *Room) SpecAs(name string, obj *v1.Node) cluster.Node {
	n := &Node{Obj: obj, held: r.nodes[name].held}
	n.held.GPUs = 0
	return r.spec(name, n, nil, holds.Of{})
}

func (r *Room) spec(name string, n *Node, pods map[*fit.Neighbour]bool, h holds.Of) cluster.Node {
	s := cluster.Node{Name: name, CPU: max(1, h.CPU), RAM: max(1, h.RAM), GPUs: bits.Len64(h.GPUs)}
	if n.Object() == nil {
		return r.sliced(s, n, pods, &h)
	}
	have := n.Obj.Status.Allocatable
	s.CPU = max(s.CPU, amount.Milli(have.Cpu())-n.held.CPU)
	s.RAM = max(s.RAM, amount.MiB(have.Memory(), false)-n.held.RAM)
	replicas, _ := onlyReplicas(r.opt.GPUs, n, pods)
	s.GPUs = min(max(s.GPUs, r.opt.GPUs.Count(n.Obj.Status.Capacity), r.opt.GPUs.Count(have), r.opt.Published(name),
		replicas.GPUs()), cluster.MaxGPUsPerNode)
	s = r.sliced(s, n, pods, &h)
	s.NVLink, s.Rack, s.Fabric, s.Cores = r.opt.Labels.Place(n.Obj.Labels)
	return s
}

// sliced adds the GPUs of a node that are partitioned, and says of what model all are.
func (r *Room) sliced(s cluster.Node, n *Node, pods map[*fit.Neighbour]bool, h *holds.Of) cluster.Node {
	name := r.opt.GPUs.Model(n.Object())
	model, known := r.models[name]
	if !known {
		model, _ = cluster.FindModel(name)
		r.models[name] = model
	}
	if s.MIG, s.GPUs = r.geometry(n, pods, &model, s.GPUs, h.Slices); r.Excluded(s.Name) {
		s.MIG, s.GPUs = "", 0
	}
	if s.GPUs > 0 {
		s.Model = name
	}
	return s
}

// MIG slices are resources of their own (nvidia.com/mig-3g.40gb): the device plugin says how many of each profile a
// node has, not on which GPU. To the engine such a node has GPUs whose instances stay as they are, put together so that
// they can exist; so slices count in queues for what they are, gangs of them start together, and they are taken from
// others as GPUs are. Which instance a pod gets, the kubelet decides.

// geometry describes the slices of a node as a geometry behind its whole GPUs, of which there are so many: those that
// it has but for what pods hold that the engine does not count, and never fewer than our gangs hold.
func (r *Room) geometry(n *Node, pods map[*fit.Neighbour]bool, model *cluster.GPUModel, whole int,
	held map[string]int) (mig string, devices int) {
	count := map[string]int{}
	if n.Object() != nil {
		maps.Copy(count, r.opt.GPUs.Slices(n.Obj.Status.Allocatable))
		for p := range pods {
			if q := podOf(p); q.Managed && q.Request.Profile != "" {
				continue // the engine's own
			}
			for profile, k := range r.opt.GPUs.Slices(gpus.Requests(p.Obj)) {
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
	if devices := r.MIG.Pack(model, all, cluster.MaxGPUsPerNode-whole); len(devices) > 0 {
		geometry = append(geometry, devices...)
	}
	return cluster.GeometryText(geometry), len(geometry)
}

// slicesUncounted reports whether a pod holds slices that the engine does not count.
func (r *Room) slicesUncounted(p *Pod) bool {
	return (!p.Managed || p.Request.Profile == "") && p.Needs != nil && len(r.opt.GPUs.Slices(gpus.Requests(p.Obj))) > 0
}

// Bad says which devices of a node are not for us: those that are not healthy, and those of foreign pods. Only counts
// are known, so those that our gangs hold are never among them.
func (r *Room) Bad(s *cluster.Node, h holds.Of) uint64 {
	n := r.nodes[s.Name]
	if n.Object() == nil {
		return 0
	}
	whole := gpus.Whole(s)
	want := whole - max(r.opt.GPUs.Count(n.Obj.Status.Allocatable), r.opt.Published(s.Name)) + int(n.held.GPUs) +
		r.opt.Claimed(s.Name)
	if replicas, ok := onlyReplicas(r.opt.GPUs, n, r.World.On(s.Name)); ok {
		want = replicas.Lost(whole)
	}
	var bad uint64
	for i := whole - 1; i >= 0 && want > 0; i-- {
		if dev := uint64(1) << i; h.GPUs&dev == 0 {
			bad |= dev
			want--
		}
	}
	return bad
}

// Models defines the models of nodes that Muster does not know.
func (r *Room) Models(nodes []cluster.Node) (list []cluster.GPUModel) {
	for i := range nodes {
		name := nodes[i].Model
		if _, known := cluster.FindModel(name); known || name == "" ||
			slices.ContainsFunc(list, func(m cluster.GPUModel) bool { return m.Name == name }) {
			continue
		}
		m := cluster.GPUModel{Name: name}
		if obj := r.Object(nodes[i].Name); obj != nil {
			m.Memory = r.opt.GPUs.Memory(obj)
		}
		list = append(list, m)
	}
	return list
}

// LimitKinds takes the GPUs away from nodes where they are of more kinds than an engine tells apart, and returns the
// names of these: nodes on which gangs have something come first, then the order in which nodes came.
func (r *Room) LimitKinds(nodes []cluster.Node, helds map[string]holds.Of) (beyond []string) {
	r.kinds = map[kind]bool{{}: true}
	for _, busy := range []bool{true, false} {
		for i := range nodes {
			n := &nodes[i]
			_, has := helds[n.Name]
			if has != busy || r.kinds[kindOf(n)] {
				continue
			}
			if len(r.kinds) < inventory.MaxKinds {
				r.kinds[kindOf(n)] = true
				continue
			}
			beyond = append(beyond, n.Name)
			n.MIG, n.GPUs, n.Model = "", 0, ""
		}
	}
	return beyond
}

// Replicas is what replicas of shared GPUs a node has, and what pods hold of them.
func (r *Room) Replicas(name string) gpus.Replicas {
	return replicas(r.opt.GPUs, r.nodes[name], r.World.On(name))
}

func replicas(names *gpus.Names, n *Node, pods map[*fit.Neighbour]bool) gpus.Replicas {
	s := names.ReplicasOn(n.Object())
	if s.Name != "" {
		for p := range pods {
			s.Take(&p.Replica, podOf(p).InEngine())
		}
	}
	return s
}

// onlyReplicas is what replicas a node has, if none of its GPUs are given away whole.
func onlyReplicas(names *gpus.Names, n *Node, pods map[*fit.Neighbour]bool) (s gpus.Replicas, ok bool) {
	if !names.OnlyShared(n.Object()) {
		return s, false
	}
	return replicas(names, n, pods), true
}
