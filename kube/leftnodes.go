package kube

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A node that was deleted keeps its number in the engine, where it is down. Nodes that left and that nothing refers to
// are forgotten together: the engine is renewed without them, when they are many, or one of them left long ago. So a
// cluster whose nodes come and go all day stays about as small as it is, and hardly notices.
const (
	forgetEvery = 10 * time.Second // between two looks
	forgetAgain = 5 * time.Minute  // after some were forgotten, or could not be
	forgetMany  = 16               // and an eighth of the nodes
	forgetLate  = 24 * time.Hour
)

// leftNodes are nodes that are gone and that the engine still has, and since when.
type leftNodes map[string]cluster.Time

// nextLeft is when nodes that are gone are to be looked at.
func (d *Driver) nextLeft() cluster.Time {
	if len(d.goneNodes) == 0 {
		return cluster.Never
	}
	return d.leftAt
}

// noteLeft notes that a node of the engine is gone.
func (d *Driver) noteLeft(name string) {
	if len(d.goneNodes) == 0 {
		d.leftAt = d.now.Add(forgetEvery)
	}
	d.goneNodes[name] = d.now
}

// forgetDue has the engine renewed if nodes are to be forgotten.
func (d *Driver) forgetDue(now cluster.Time) {
	if now < d.nextLeft() {
		return
	}
	d.leftAt = now.Add(forgetEvery)
	unused, since := 0, now
	for name, at := range d.goneNodes {
		if n := d.nodes[name]; n == nil || !n.used() {
			unused, since = unused+1, min(since, at)
		}
	}
	if unused == 0 || unused < max(forgetMany, len(d.order)/8) && now.Sub(since) < forgetLate {
		return
	}
	d.stale, d.leftAt = cmp.Or(d.stale, "nodes left"), now.Add(forgetAgain)
}

// used reports whether something is on a node, or on its way there, or is being done to it.
func (n *node) used() bool {
	return len(n.pods) > 0 || len(n.foreign) > 0 || n.power.Busy() || n.mig.Busy() || n.obj != nil
}

// dropNode forgets a node that is not there, that nothing uses, and that the engine does not have.
func (d *Driver) dropNode(name string) {
	if n := d.nodes[name]; n != nil && !n.used() && !d.hasNumber(name) {
		delete(d.nodes, name)
		d.world.Forget(name)
		d.loans.Forget(name)
	}
}

// forgetNodes takes nodes out of the order of the next engine that are gone and that no job refers to, and gives the
// others their new numbers. Places that are kept for gangs that move, and what is asked of the engine, refer to
// numbers: while there are such, nothing is forgotten.
func (d *Driver) forgetNodes(snap *engine.Snapshot) {
	if d.asking != nil || d.busy || len(d.passages) > 0 {
		return
	}
	held := make([]bool, len(d.order))
	for i := range snap.Jobs {
		for _, list := range allocsOf(&snap.Jobs[i]) {
			for k := range *list {
				held[(*list)[k].Node] = true
			}
		}
	}
	to, kept := make([]int32, len(d.order)), []string(nil)
	for i, name := range d.order {
		if n := d.nodes[name]; held[i] || n != nil && n.used() {
			to[i], kept = int32(len(kept)), append(kept, name)
			continue
		}
		to[i] = -1
	}
	if len(kept) == len(d.order) {
		return
	}
	for i := range snap.Jobs {
		for _, list := range allocsOf(&snap.Jobs[i]) {
			*list = slices.Clone(*list)
			for k := range *list {
				(*list)[k].Node = to[(*list)[k].Node]
			}
		}
	}
	gone := d.order
	d.order = kept
	d.renumber()
	snap.Nodes = slices.DeleteFunc(slices.Clone(snap.Nodes), func(n cluster.Node) bool { return !d.hasNumber(n.Name) })
	for i, name := range gone {
		if to[i] < 0 {
			d.dropNode(name)
			delete(d.goneNodes, name)
		}
	}
}

// allocsOf lists what of a job's record refers to nodes by number.
func allocsOf(r *engine.JobRecord) []*[]engine.Alloc {
	return []*[]engine.Alloc{&r.Allocs, &r.Home, &r.Frozen, &r.Leaving, &r.Dest, &r.Plan}
}

// hasNumber reports whether the engine has a node.
func (d *Driver) hasNumber(name string) bool {
	_, ok := d.number[name]
	return ok
}

// renumber notes which nodes the engine has.
func (d *Driver) renumber() {
	clear(d.number)
	for i, name := range d.order {
		d.number[name] = i
	}
}
