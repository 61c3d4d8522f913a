// Package nodes knows what the cluster's nodes are to the engine: their model, size, replicas and MIG offers, their
// numbers there, and which of them suit which pods. It finds by which events the engine learns what changed of them,
// and when it has to be renewed instead.
package nodes

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/power"
)

// Options are what nodes are understood by. All but the functions is required.
type Options struct {
	GPUs   *gpus.Names
	Labels *gpus.Labels
	Suits  fit.Nodes // what pods may ask for of nodes
	World  *fit.World
	Power  *power.Room
	MIG    *mig.Room
	Loans  *loans.Room

	Published func(node string) int // how many GPUs drivers of dynamic resource allocation publish of a node
	Claimed   func(node string) int // how many GPUs claims have for which no pod of ours pays
}

// Room is all nodes that are known, some of which are gone. It belongs to one goroutine.
type Room struct {
	// World is which pods are on which nodes. Where a pod is, it learns from Move.
	World *fit.World
	// What of nodes is decided in other rooms, which hear from See and Gone what becomes of nodes.
	Power *power.Room
	MIG   *mig.Room
	Loans *loans.Room
	Sets  Sets // of nodes that suit pods
	// Dirty: a node's state or health may differ from the engine's. SizesDirty: its CPU, RAM or slices may.
	Dirty, SizesDirty bool

	opt    Options
	nodes  map[string]*Node
	order  []string       // the engine's nodes
	number map[string]int // ... and their numbers there
	left   leftNodes

	joined   map[string]bool             // nodes of which the engine has yet to hear
	changed  map[string]bool             // nodes that may be others than the engine knows
	joining  []cluster.Node              // of which the engine hears in the present step
	kinds    map[kind]bool               // of nodes that the engine has
	models   map[string]cluster.GPUModel // GPU models by name, as they were looked up
	excluded map[string]string           // by name: why the present engine does without a node's GPUs
	said     map[string]string           // ... and what people were told of it
}

// New makes a room without nodes.
func New(opt Options) *Room {
	r := &Room{World: opt.World, Power: opt.Power, MIG: opt.MIG, Loans: opt.Loans, opt: opt,
		nodes: map[string]*Node{}, number: map[string]int{},
		left: leftNodes{since: map[string]cluster.Time{}}, joined: map[string]bool{}, changed: map[string]bool{},
		models: map[string]cluster.GPUModel{}, excluded: map[string]string{}, said: map[string]string{}}
	r.Sets = newSets(r)
	return r
}

// Node is a node by its name; nil: nothing is known of it.
func (r *Room) Node(name string) *Node { return r.nodes[name] }

// Object is a node's object; nil: it is gone, or never was.
func (r *Room) Object(name string) *v1.Node { return r.nodes[name].Object() }

// Objects lists the nodes that there are, by name.
func (r *Room) Objects() (list []*v1.Node) {
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		if obj := r.nodes[name].Obj; obj != nil {
			list = append(list, obj)
		}
	}
	return list
}

// Next is when nodes are to be looked at, in this room or in those that decide what of them.
func (r *Room) Next() cluster.Time {
	return min(r.nextForget(), r.Power.Next(), r.Loans.Next(), r.MIG.Next())
}

// Kept is how many of each are remembered. Nothing may pile up as nodes come and go.
type Kept struct{ Known, Numbered, Gone, Joined, Changed, Sets, Log int }

// Kept counts what is remembered.
func (r *Room) Kept() Kept {
	return Kept{len(r.nodes), len(r.number), len(r.left.since), len(r.joined), len(r.changed), len(r.Sets.known),
		len(r.Sets.log)}
}

// Order lists the names of the engine's nodes by their numbers there. It must not be changed.
func (r *Room) Order() []string { return r.order }

// Has reports whether the engine has a node.
func (r *Room) Has(name string) bool {
	_, ok := r.number[name]
	return ok
}

// NumberFor is a node's number in the next engine, which has it also where it is gone: what is bound there says so.
func (r *Room) NumberFor(name string, now cluster.Time) int {
	if i, ok := r.number[name]; ok {
		return i
	}
	r.order = append(r.order, name)
	r.number[name] = len(r.order) - 1
	r.noteLeft(name, now)
	return r.number[name]
}

func (r *Room) named(name string) *Node {
	n := r.nodes[name]
	if n == nil {
		n = &Node{foreign: map[*Pod]bool{}}
		r.nodes[name] = n
	}
	return n
}

// AddForeign books what a pod that is not ours holds of a node.
func (r *Room) AddForeign(name string, p *Pod) {
	n := r.named(name)
	if n.foreign[p] {
		return
	}
	n.foreign[p] = true
	n.count(p, 1)
	r.Dirty, r.SizesDirty = true, true
}

// DropForeign books that a pod that is not ours holds nothing of a node, and reports whether it did.
func (r *Room) DropForeign(name string, p *Pod) bool {
	n := r.nodes[name]
	if n == nil || !n.foreign[p] {
		return false
	}
	delete(n.foreign, p)
	n.count(p, -1)
	r.Dirty, r.SizesDirty = true, true
	r.drop(name)
	return true
}

// Move books on which node a pod counts now; "": on none.
func (r *Room) Move(p *Pod, to string) {
	if was := p.Where; was != "" {
		r.World.Remove(&p.Neighbour)
		r.drop(was)
	}
	if to != "" {
		r.World.Put(&p.Neighbour, to)
		r.named(to)
	}
	r.World.Changed()
	if r.slicesUncounted(p) {
		r.SizesDirty = true // the engine has fewer to give, or more
	}
	if p.Replica.Name != "" && !p.InEngine() {
		r.Dirty = true
	}
}

// Seen is what concerns gangs of what was seen of a node.
type Seen struct {
	Other bool   // pods that no node suited may be suited now
	Renew string // why the engine has to be renewed; "": it need not
}

// See books a node as it is now.
func (r *Room) See(obj *v1.Node) (seen Seen) {
	n := r.named(obj.Name)
	old, was, slept := n.Obj, n.State(), n.Power.Sleeps()
	n.Obj = n.Power.Whole(n.MIG.AsPartitioned(obj))
	obj = n.Obj
	r.Power.See(&n.Power, obj, r.Loans.Lent(obj))
	r.Loans.See(obj)
	r.MIG.See(&n.MIG, obj, r.Loans.Lent(obj))
	r.World.SetNode(obj.Name, obj)
	switch {
	case old == nil:
		r.joined[obj.Name], r.Dirty = true, true
		r.Sets.turned(obj.Name)
		r.World.Changed()
		seen.Other = true
	case (old.Labels[mig.Label] == mig.Changing) != (obj.Labels[mig.Label] == mig.Changing):
		n.MIG.Stays = true
		r.isAnother(obj.Name)
		r.World.Changed()
	default:
		seen = r.differs(old, obj)
	}
	r.Dirty = r.Dirty || n.State() != was || n.Power.Sleeps() != slept
	if n.Power.Ruled() && (n.Power.Sleeps() || slept) {
		r.Power.Soon()
	}
	return seen
}

// Gone books that a node was deleted: what was there is lost.
func (r *Room) Gone(name string, now cluster.Time) {
	n := r.named(name)
	r.World.SetNode(name, nil)
	n.Obj = nil
	r.Power.Gone(name, &n.Power)
	r.MIG.Gone(name, &n.MIG)
	if r.Dirty = true; r.Has(name) {
		r.noteLeft(name, now)
	}
	delete(r.joined, name)
	delete(r.changed, name)
	r.drop(name)
}

// Exclude has the present engine do without a node's GPUs, says why, and reports whether that is news to people.
func (r *Room) Exclude(name, why string) (news bool) {
	news, r.excluded[name], r.said[name] = r.said[name] != why, why, why
	return news
}

// Excluded reports whether the present engine does without a node's GPUs.
func (r *Room) Excluded(name string) bool { return r.excluded[name] != "" }
