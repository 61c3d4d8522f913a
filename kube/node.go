package kube

import (
	"maps"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/power"
)

// nodes are all that the driver knows, by name; some are gone.
type nodes map[string]*node

// object finds a node; nil: it is gone, or never was.
func (all nodes) object(name string) *v1.Node { return all[name].object() }

// node is a node as the driver knows it.
type node struct {
	obj     *v1.Node      // nil: it is gone
	pods    map[*pod]bool // all that are on it, or going there
	foreign map[*pod]bool // pods on it that the engine did not put there
	power   power.Node
	mig     mig.Node
	other   struct{ cpu, ram, gpus int64 } // ... what they hold: milli-cores, MiB, devices
}

// addForeign books what a pod that is not ours holds of a node.
func (d *Driver) addForeign(name string, p *pod) {
	n := d.nodes.named(name)
	if n.foreign[p] {
		return
	}
	n.foreign[p] = true
	n.count(p, 1)
	d.nodesDirty, d.sizesDirty = true, true
}

func (d *Driver) dropForeign(name string, p *pod) {
	n := d.nodes[name]
	if n == nil || !n.foreign[p] {
		return
	}
	delete(n.foreign, p)
	n.count(p, -1)
	d.nodesDirty, d.sizesDirty = true, true
	d.dropNode(name)
}

func (n *node) count(p *pod, by int64) {
	n.other.cpu += by * p.request.CPU
	n.other.ram += by * p.request.RAM
	if p.request.Profile == "" {
		n.other.gpus += by * int64(p.request.GPUs)
	}
}

func (all nodes) named(name string) *node {
	n := all[name]
	if n == nil {
		n = &node{foreign: map[*pod]bool{}, pods: map[*pod]bool{}}
		all[name] = n
	}
	return n
}

// state says what may be done with a node. One that is not ready keeps what
// runs there: Kubernetes evicts that itself when it has been away for long.
func (n *node) state() cluster.NodeState {
	switch {
	case n.obj == nil:
		return cluster.Down
	case n.power.Sleeps(): // it is there for gangs that need it
		return cluster.Up
	case n.obj.Spec.Unschedulable || n.obj.DeletionTimestamp != nil || n.mig.Shut():
		return cluster.Draining
	}
	for i := range n.obj.Spec.Taints {
		if t := &n.obj.Spec.Taints[i]; fit.Passing(t) && t.Effect != v1.TaintEffectPreferNoSchedule {
			return cluster.Draining
		}
	}
	for _, c := range n.obj.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return cluster.Up
		}
	}
	return cluster.Draining
}

// nodeSpec describes a node to the engine. What our gangs hold there always fits: what is running is not lost because
// others took what was left.
func (d *Driver) nodeSpec(name string, n *node, h holds.Of) cluster.Node {
	s := cluster.Node{Name: name, CPU: max(1, h.CPU), RAM: max(1, h.RAM), GPUs: bits.Len64(h.GPUs)}
	if n == nil || n.obj == nil {
		return d.sliced(s, n, &h)
	}
	have := n.obj.Status.Allocatable
	s.CPU = max(s.CPU, amount.Milli(have.Cpu())-n.other.cpu)
	s.RAM = max(s.RAM, amount.MiB(have.Memory(), false)-n.other.ram)
	replicas, _ := d.onlyReplicas(n)
	s.GPUs = min(max(s.GPUs, d.gpus.Count(n.obj.Status.Capacity), d.gpus.Count(have), d.publishedGPUs(name),
		replicas.GPUs()), cluster.MaxGPUsPerNode)
	s = d.sliced(s, n, &h)
	s.NVLink, s.Rack, s.Fabric, s.Cores = d.opt.Labels.Place(n.obj.Labels)
	return s
}

// sliced adds the GPUs of a node that are partitioned, and says of what model all are.
func (d *Driver) sliced(s cluster.Node, n *node, h *holds.Of) cluster.Node {
	name := d.gpus.Model(n.object())
	model, known := d.modelsKnown[name]
	if !known {
		model, _ = cluster.FindModel(name)
		d.modelsKnown[name] = model
	}
	if s.MIG, s.GPUs = d.migOf(n, &model, s.GPUs, h.Slices); d.aside.nodes[s.Name] != "" {
		s.MIG, s.GPUs = "", 0
	}
	if s.GPUs > 0 {
		s.Model = name
	}
	return s
}

// badGPUs says which devices of a node are not for us: those that are not
// healthy, and those of foreign pods. Only counts are known, so those that our
// gangs hold are never among them.
func (d *Driver) badGPUs(n *node, s *cluster.Node, h holds.Of) uint64 {
	if n == nil || n.obj == nil {
		return 0
	}
	whole := gpus.Whole(s)
	want := whole - max(d.gpus.Count(n.obj.Status.Allocatable), d.publishedGPUs(s.Name)) + int(n.other.gpus) +
		d.claims.Others(s.Name)
	if replicas, ok := d.onlyReplicas(n); ok {
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

// models defines the models that Muster does not know.
func (d *Driver) models(nodes []cluster.Node) (list []cluster.GPUModel) {
	for i := range nodes {
		name := nodes[i].Model
		if _, known := cluster.FindModel(name); known || name == "" ||
			slices.ContainsFunc(list, func(m cluster.GPUModel) bool { return m.Name == name }) {
			continue
		}
		m := cluster.GPUModel{Name: name}
		if n := d.nodes[nodes[i].Name]; n != nil && n.obj != nil {
			m.Memory = d.gpus.Memory(n.obj)
		}
		list = append(list, m)
	}
	return list
}

// object is the node's object; nil: it is gone, or never was.
func (n *node) object() *v1.Node {
	if n == nil {
		return nil
	}
	return n.obj
}

// replicas is what replicas of shared GPUs a node has, and what pods hold of them.
func (n *node) replicas(names *gpus.Names) gpus.Replicas {
	s := names.ReplicasOn(n.object())
	if s.Name != "" {
		for p := range n.pods {
			s.Take(&p.Replica, p.counted())
		}
	}
	return s
}

// onlyReplicas is what replicas a node has, if none of its GPUs are given away whole.
func (d *Driver) onlyReplicas(n *node) (s gpus.Replicas, ok bool) {
	if !d.gpus.OnlyShared(n.object()) {
		return s, false
	}
	return n.replicas(d.gpus), true
}

// asked is a pod as node predicates see it.
func (p *pod) asked() fit.Pod {
	return fit.Pod{Obj: p.obj, Requests: gpus.Requests(p.obj), Replica: p.Replica, Want: p.Want}
}

// sign writes down what decides on which nodes a pod may run.
func (p *pod) sign(nodes fit.Nodes) {
	p.signature = p.base + nodes.Settled(&fit.Pod{Obj: p.obj, Replica: p.Replica, Want: p.Want})
}

// key is what of a pod decides which nodes suit it, but for what is settled with its gang.
func (p *pod) key(nodes fit.Nodes) string {
	asked := p.asked()
	return nodes.Key(&asked)
}

// objects lists the nodes that there are, by name.
func (all nodes) objects() (list []*v1.Node) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if obj := all[name].obj; obj != nil {
			list = append(list, obj)
		}
	}
	return list
}
