package kube

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/holds"
)

// What events tell the engine of nodes: that they join, come back, leave, are closed or broken, and are of another
// size. Where its GPUs, their model or its place in the network are others, a node is another to the engine, which
// takes that over if no job has its GPUs, and else is renewed.

// nodeEvents are what the engine missed of nodes.
func (d *Driver) nodeEvents() []engine.Event {
	d.nodesDirty = false
	d.queues.NodesChanged()
	joined, nodes := d.joinEvents()
	events, _ := driver.Diff(driver.Observed{Nodes: d.observed(nodes).Nodes}, driver.View{Nodes: nodes})
	return append(joined, events...)
}

// engineNodes are the nodes as the engine has them, or will when it has heard of those that join.
func (d *Driver) engineNodes() []cluster.Node { return append(d.eng.Nodes(), d.joining...) }

// joinEvents tell the engine of nodes that it does not have yet, and returns the nodes that it has then: these whole
// and awake. If one came back as another than it was, or cannot come by an event, the engine is renewed.
func (d *Driver) joinEvents() (events []engine.Event, nodes []cluster.Node) {
	d.joining, nodes = nil, d.eng.Nodes()
	events = d.changeEvents(nodes)
	for _, name := range slices.Sorted(maps.Keys(d.joined)) {
		n := d.nodes[name]
		if n == nil || n.obj == nil {
			continue
		}
		if i, known := d.number[name]; known {
			ev, ok := d.cameBack(i, n, nodes)
			if !ok {
				d.stale = cmp.Or(d.stale, "node joined")
				return events, withJoining(nodes, d.joining)
			}
			events = append(events, ev...)
			delete(d.goneNodes, name)
			continue
		}
		s := d.nodeSpec(name, n, holds.Of{})
		if !d.canJoin(&s) {
			d.stale = cmp.Or(d.stale, "node joined")
			return events, withJoining(nodes, d.joining)
		}
		d.order = append(d.order, name)
		d.number[name] = len(d.order) - 1
		d.kinds[kindOfNode{s.Model, s.GPUs}] = true
		d.joining = append(d.joining, s)
		events = append(events, engine.Event{Type: engine.NodeUp, Node: name, Spare: &s})
	}
	clear(d.joined)
	if len(events) > 0 {
		d.setsAt = true
		d.queues.Grown()
		d.world.NoteTaints(d.order)
		d.tellHistory(d.specNow())
	}
	return events, withJoining(nodes, d.joining)
}

func withJoining(nodes, joining []cluster.Node) []cluster.Node { return append(nodes, joining...) }

// nodeIsAnother notes that a node may be another than the engine knows.
func (d *Driver) nodeIsAnother(name string) {
	d.changed[name], d.nodesDirty = true, true
}

// changeEvents tell the engine of nodes that are others than they were, and writes them down among the engine's.
func (d *Driver) changeEvents(nodes []cluster.Node) (events []engine.Event) {
	var helds map[string]holds.Of
	for _, name := range slices.Sorted(maps.Keys(d.changed)) {
		n, i := d.nodes[name], 0
		known := false
		if i, known = d.number[name]; !known || i >= len(nodes) || n == nil || n.obj == nil {
			continue // it is told when it joins
		}
		if helds == nil {
			helds = holds.ByNode(d.heldNow(), d.order)
		}
		s := d.nodeSpec(name, n, helds[name])
		if !sameNode(s, nodes[i]) {
			ev, ok := d.changeNode(i, &s, nodes)
			if !ok {
				d.stale = cmp.Or(d.stale, "a node in use is another")
				return events
			}
			events = append(events, ev)
		}
		n.mig.Stays = false
	}
	clear(d.changed)
	if len(events) > 0 {
		d.lookAgain()
	}
	return events
}

// changeNode tells the engine that a node is another; false: it cannot take that over.
func (d *Driver) changeNode(i int, s *cluster.Node, nodes []cluster.Node) (ev engine.Event, ok bool) {
	kind := kindOfNode{s.Model, s.GPUs}
	if !d.kinds[kind] && len(d.kinds) >= engine.MaxKinds || d.eng.CheckChange(s) != "" {
		return ev, false
	}
	d.kinds[kind] = true
	was := nodes[i]
	if nodes[i] = *s; engine.SameGPUs(s, &was) {
		nodes[i].Bad = was.Bad
	}
	nodes[i].State, nodes[i].Asleep = was.State, was.Asleep
	d.nodeTurned(s.Name)
	return d.mustTake(engine.Event{Type: engine.NodeChanged, Node: s.Name, Spare: s}), true
}

// canJoin reports whether an engine that works can have a node, too.
func (d *Driver) canJoin(s *cluster.Node) bool {
	if d.loans.Any() {
		return false // partitions say which nodes are lent
	}
	if _, known := d.cfg.Spec.Model(s.Model); s.GPUs > 0 && !known {
		return false
	}
	return d.kinds[kindOfNode{s.Model, s.GPUs}] || len(d.kinds) < engine.MaxKinds
}

// cameBack tells the engine if a node that was gone is another than it knows; false: it cannot take that over.
func (d *Driver) cameBack(i int, n *node, nodes []cluster.Node) (events []engine.Event, ok bool) {
	name, believed := d.order[i], &nodes[i]
	s := d.nodeSpec(name, n, d.heldOn(name))
	d.sizesDirty = d.sizesDirty || s.CPU != believed.CPU || s.RAM != believed.RAM
	if sameNode(s, *believed) {
		return nil, true
	}
	ev, ok := d.changeNode(i, &s, nodes)
	return []engine.Event{ev}, ok
}

// sameNode reports whether a node is what the engine knows, but for its CPU and RAM.
func sameNode(s, believed cluster.Node) bool {
	s.State, s.Bad, s.Asleep, s.CPU, s.RAM = believed.State, believed.Bad, believed.Asleep, believed.CPU, believed.RAM
	return reflect.DeepEqual(s, believed)
}

// nodeDiffers books what of a node is another: its size, its labels, its taints.
func (d *Driver) nodeDiffers(old, obj *v1.Node) {
	was, is := &old.Status, &obj.Status
	sized := !equality.Semantic.DeepEqual(was.Capacity, is.Capacity) ||
		!equality.Semantic.DeepEqual(was.Allocatable, is.Allocatable)
	labelled := d.fit.Differ(old, obj)
	if !sized && !labelled {
		return
	}
	d.moves++
	d.sizesDirty, d.nodesDirty = d.sizesDirty || sized, d.nodesDirty || sized
	if labelled && d.loans.Differs(old, obj) {
		d.stale = "loans"
		return
	}
	if labelled && isAnother(&d.opt.Labels, old, obj) {
		d.nodeIsAnother(obj.Name)
	}
	d.nodeTurned(obj.Name)
	d.lookAgain()
	if labelled {
		d.world.NoteTaints(d.order)
	}
}

// isAnother reports whether labels that the engine goes by are others.
func isAnother(l *Labels, old, obj *v1.Node) bool {
	keys := []string{l.Product, l.Memory, l.Replicas, l.Sharing, l.Count, l.Config, l.State, l.Strategy}
	for _, d := range l.Domains() {
		keys = append(keys, d.Label)
	}
	for _, key := range keys {
		if old.Labels[key] != obj.Labels[key] {
			return true
		}
	}
	return false
}

// heldNow is a snapshot of no more than what jobs hold of nodes.
func (d *Driver) heldNow() *engine.Snapshot {
	snap := &engine.Snapshot{}
	for _, b := range d.eng.Beliefs() {
		snap.Jobs = append(snap.Jobs, *d.recordOf(b.Job))
	}
	return snap
}

// heldOn is what jobs hold of a node.
func (d *Driver) heldOn(name string) holds.Of { return holds.ByNode(d.heldNow(), d.order)[name] }

// overfull reports whether jobs hold more of a node than it has for them.
func (n *node) overfull(h holds.Of) bool {
	have := n.obj.Status.Allocatable
	return amount.Milli(have.Cpu())-n.other.cpu < h.CPU || amount.MiB(have.Memory(), false)-n.other.ram < h.RAM
}

// nextResize is when nodes and pods are looked at next whose size may be another.
func (d *Driver) nextResize() cluster.Time {
	return max(d.sizedAt, d.renewed).Add(max(resizeEvery, resizePart*d.took))
}

// sizeEvents tell the engine of nodes of another size, and of what pods hold that were resized: first of nodes that
// grew, so that there is room for pods that did.
func (d *Driver) sizeEvents() (events []engine.Event) {
	var smaller []engine.Event
	d.sizesDirty, d.sizedAt = false, d.now
	start := d.opt.Now()
	defer func() { d.took = d.opt.Now().Sub(start) }()
	snap := d.heldNow()
	resized := d.resizedNow(snap)
	helds, grown := holds.ByNode(snap, d.order), false
	for i, believed := range d.eng.Nodes() {
		n := d.nodes[believed.Name]
		if n == nil || n.obj == nil {
			continue
		}
		h := helds[believed.Name]
		s := d.nodeSpec(d.order[i], n, h)
		switch {
		case !sameNode(s, believed):
			d.sizesDirty = true
			d.nodeIsAnother(s.Name)
		case s.CPU != believed.CPU || s.RAM != believed.RAM:
			more := s.CPU > believed.CPU || s.RAM > believed.RAM
			grown = grown || more
			ev := engine.Event{Type: engine.NodeResized, Node: s.Name, Size: &engine.NodeSize{CPU: s.CPU, RAM: s.RAM}}
			if more {
				events = append(events, ev)
			} else {
				smaller = append(smaller, ev)
			}
		}
		d.sizesDirty = d.sizesDirty || n.overfull(h) // it shrinks as these leave
	}
	if grown {
		d.lookAgain()
	}
	return slices.Concat(events, resized, smaller)
}
