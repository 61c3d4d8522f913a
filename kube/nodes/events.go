package nodes

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/holds"
)

// What events tell the engine of nodes: that they join, come back, leave, are closed or broken, and are of another
// size. Where its GPUs, their model or its place in the network are others, a node is another to the engine, which
// takes that over if no job has its GPUs, and else is renewed.

// Engine is what is asked of the engine that is to be told of nodes.
type Engine struct {
	Nodes   []cluster.Node                 // as it has them: a copy, which is brought up to date
	Held    func() *engine.Snapshot        // what jobs hold of nodes, no more
	Refuses func(*cluster.Node) string     // why it cannot take over that a node is another; "": it can
	Model   func(name string) (known bool) // whether it has a model of GPUs
}

// News is what the engine is told of nodes.
type News struct {
	Events []engine.Event
	Nodes  []cluster.Node // as it has them then: those that join whole and awake
	Other  bool           // pods that no node suited may be suited now
	Joined bool           // the nodes that there are, or what they are, changed
	Renew  string         // why it has to be renewed; "": it need not
}

// EngineNodes are the nodes as the engine has them, or will when it has heard of those that join.
func (r *Room) EngineNodes(has []cluster.Node) []cluster.Node { return append(has, r.joining...) }

// Joins reports whether the engine hears of a node in this very step.
func (r *Room) Joins(name string) bool {
	return slices.ContainsFunc(r.joining, func(n cluster.Node) bool { return n.Name == name })
}

// StepBegins forgets what the engine was told in the step before.
func (r *Room) StepBegins() { r.joining = nil }

// Tell tells the engine of nodes that it does not have yet, and of those that are others than they were.
func (r *Room) Tell(e *Engine) (news News) {
	r.joining = nil
	r.tellChanges(e, &news)
	for _, name := range slices.Sorted(maps.Keys(r.joined)) {
		if r.Object(name) == nil {
			continue
		}
		if !r.tellJoined(name, e, &news) {
			news.Renew, news.Nodes = cmp.Or(news.Renew, "node joined"), append(e.Nodes, r.joining...)
			return news
		}
	}
	clear(r.joined)
	if len(news.Events) > 0 {
		r.Sets.dirty, news.Joined = true, true
		r.World.NoteTaints(r.order)
	}
	news.Nodes = append(e.Nodes, r.joining...)
	return news
}

// tellJoined tells the engine of a node that joined or is back; false: that cannot come by an event.
func (r *Room) tellJoined(name string, e *Engine, news *News) bool {
	if i, known := r.number[name]; known {
		if !r.tellBack(i, e, news) {
			return false
		}
		delete(r.left.since, name)
		return true
	}
	s := r.Spec(name, holds.Of{})
	if !r.canJoin(&s, e) {
		return false
	}
	r.order = append(r.order, name)
	r.number[name] = len(r.order) - 1
	r.kinds[kindOf(&s)] = true
	r.joining = append(r.joining, s)
	news.Events = append(news.Events, engine.Event{Type: engine.NodeUp, Node: name, Spare: &s})
	return true
}

// canJoin reports whether an engine that works can have a node, too.
func (r *Room) canJoin(s *cluster.Node, e *Engine) bool {
	if r.Loans.Any() {
		return false // partitions say which nodes are lent
	}
	if s.GPUs > 0 && !e.Model(s.Model) {
		return false
	}
	return r.kinds[kindOf(s)] || len(r.kinds) < inventory.MaxKinds
}

// tellBack tells the engine if a node that was gone is another than it knows; false: it cannot take that over.
func (r *Room) tellBack(i int, e *Engine, news *News) bool {
	name, believed := r.order[i], &e.Nodes[i]
	s := r.Spec(name, holds.ByNode(e.Held(), r.order)[name])
	r.SizesDirty = r.SizesDirty || s.CPU != believed.CPU || s.RAM != believed.RAM
	return same(s, *believed) || r.change(i, &s, e, news)
}

// tellChanges tells the engine of nodes that are others than they were, and writes them down among the engine's.
func (r *Room) tellChanges(e *Engine, news *News) {
	var helds map[string]holds.Of
	for _, name := range slices.Sorted(maps.Keys(r.changed)) {
		n, i := r.nodes[name], 0
		known := false
		if i, known = r.number[name]; !known || i >= len(e.Nodes) || n.Object() == nil {
			continue // it is told when it joins
		}
		if helds == nil {
			helds = holds.ByNode(e.Held(), r.order)
		}
		if s := r.Spec(name, helds[name]); !same(s, e.Nodes[i]) && !r.change(i, &s, e, news) {
			news.Renew = cmp.Or(news.Renew, "a node in use is another")
			return
		}
		n.MIG.Stays = false
	}
	clear(r.changed)
	news.Other = len(news.Events) > 0
}

// change tells the engine that a node is another; false: it cannot take that over.
func (r *Room) change(i int, s *cluster.Node, e *Engine, news *News) bool {
	if !r.kinds[kindOf(s)] && len(r.kinds) >= inventory.MaxKinds || e.Refuses(s) != "" {
		return false
	}
	r.kinds[kindOf(s)] = true
	was := e.Nodes[i]
	if e.Nodes[i] = *s; inventory.SameHardware(s, &was) {
		e.Nodes[i].Bad = was.Bad
	}
	e.Nodes[i].State, e.Nodes[i].Asleep = was.State, was.Asleep
	r.Sets.turned(s.Name)
	news.Events = append(news.Events, engine.Event{Type: engine.NodeChanged, Node: s.Name, Spare: s})
	return true
}

// TookOver reports whether the engine, which has these nodes, took over that a node is another.
func (r *Room) TookOver(changed *engine.Event, has []cluster.Node) bool {
	i, known := r.number[changed.Node]
	return known && same(*changed.Spare, has[i])
}

// same reports whether a node is what the engine knows, but for its CPU and RAM.
func same(s, believed cluster.Node) bool {
	s.State, s.Bad, s.Asleep, s.CPU, s.RAM = believed.State, believed.Bad, believed.Asleep, believed.CPU, believed.RAM
	return reflect.DeepEqual(s, believed)
}

// isAnother notes that a node may be another than the engine knows.
func (r *Room) isAnother(name string) { r.changed[name], r.Dirty = true, true }

// PlacesDiffer notes that all nodes may be at other places of the network.
func (r *Room) PlacesDiffer() {
	for name, n := range r.nodes {
		if n.Obj != nil {
			r.isAnother(name)
		}
	}
}

// differs books what of a node is another: its size, its labels, its taints.
func (r *Room) differs(old, obj *v1.Node) (seen Seen) {
	was, is := &old.Status, &obj.Status
	sized := !equality.Semantic.DeepEqual(was.Capacity, is.Capacity) ||
		!equality.Semantic.DeepEqual(was.Allocatable, is.Allocatable)
	labelled := r.opt.Suits.Differ(old, obj)
	if !sized && !labelled {
		return seen
	}
	r.World.Changed()
	r.SizesDirty, r.Dirty = r.SizesDirty || sized, r.Dirty || sized
	if labelled && r.Loans.Differs(old, obj) {
		seen.Renew = "loans"
		return seen
	}
	if labelled && labelsDiffer(r.opt.Labels, old, obj) {
		r.isAnother(obj.Name)
	}
	r.Sets.turned(obj.Name)
	seen.Other = true
	if labelled {
		r.World.NoteTaints(r.order)
	}
	return seen
}

// labelsDiffer reports whether labels that the engine goes by are others.
func labelsDiffer(l *gpus.Labels, old, obj *v1.Node) bool {
	keys := []string{l.Product, l.Memory, l.Replicas, l.Sharing, l.Count, l.Config, l.State, l.Strategy}
	for _, d := range l.Domains() {
		keys = append(keys, d.Label)
	}
	return slices.ContainsFunc(keys, func(key string) bool { return old.Labels[key] != obj.Labels[key] })
}

// overfull reports whether jobs hold more of a node than it has for them.
func (n *Node) overfull(h holds.Of) bool {
	have := n.Obj.Status.Allocatable
	return amount.Milli(have.Cpu())-n.held.CPU < h.CPU || amount.MiB(have.Memory(), false)-n.held.RAM < h.RAM
}

// TellSizes tells the engine, which has these nodes, of those of another size: first of those that grew.
func (r *Room) TellSizes(has []cluster.Node, helds map[string]holds.Of) (grown, smaller []engine.Event) {
	r.SizesDirty = false
	for i, believed := range has {
		n := r.nodes[believed.Name]
		if n.Object() == nil {
			continue
		}
		h := helds[believed.Name]
		s := r.Spec(r.order[i], h)
		switch {
		case !same(s, believed):
			r.SizesDirty = true
			r.isAnother(s.Name)
		case s.CPU != believed.CPU || s.RAM != believed.RAM:
			ev := engine.Event{Type: engine.NodeResized, Node: s.Name, Size: &engine.NodeSize{CPU: s.CPU, RAM: s.RAM}}
			if s.CPU > believed.CPU || s.RAM > believed.RAM {
				grown = append(grown, ev)
			} else {
				smaller = append(smaller, ev)
			}
		}
		r.SizesDirty = r.SizesDirty || n.overfull(h) // it shrinks as these leave
	}
	return grown, smaller
}
