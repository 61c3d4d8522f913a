package kube

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A node that was deleted keeps its number in the engine for as long as something refers to it. When nothing does, the
// engine begins anew without it, and it is forgotten: a cluster whose nodes come and go all day stays as small as it is.

// forgetEvery is how often an engine begins anew for the sake of nodes that left, at most, and forgetAgain how long one
// that could not be forgotten is left alone.
const (
	forgetEvery = 10 * time.Second
	forgetAgain = 5 * time.Minute
)

// leftNodes are nodes that are gone and that the engine still has, and when they may be looked at next.
type leftNodes map[string]cluster.Time

// nextLeft is when nodes that are gone are to be looked at.
func (d *Driver) nextLeft() cluster.Time {
	at := cluster.Never
	for _, t := range d.goneNodes {
		at = min(at, t)
	}
	return at
}

// forgetDue has the engine begin anew if nodes can be forgotten.
func (d *Driver) forgetDue(now cluster.Time) {
	if now < d.nextLeft() {
		return
	}
	for name, at := range d.goneNodes {
		switch n := d.nodes[name]; {
		case now < at:
		case n != nil && (n.obj != nil || n.used()):
			d.goneNodes[name] = now.Add(forgetEvery)
		default:
			if d.stale == "" {
				d.stale = "nodes left"
			}
			d.goneNodes[name] = now.Add(forgetAgain)
		}
	}
}

// used reports whether something is on a node, or on its way there, or is being done to it.
func (n *node) used() bool {
	return len(n.pods) > 0 || len(n.foreign) > 0 || n.power.busy || n.mig.busy || n.obj != nil
}

// dropNode forgets a node that is not there, that nothing uses, and that the engine does not have.
func (d *Driver) dropNode(name string) {
	if n := d.nodes[name]; n != nil && !n.used() && !d.hasNumber[name] {
		delete(d.nodes, name)
		delete(d.crowded, name)
		delete(d.loans.marked, name)
	}
}

// forgetNodes takes nodes out of the order of the next engine that are gone and that no job refers to, and gives the
// others their new numbers. Places that are kept for gangs that move, and what is asked of the engine, refer to numbers:
// while there are such, nothing is forgotten.
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
	snap.Nodes = slices.DeleteFunc(slices.Clone(snap.Nodes), func(n cluster.Node) bool { return !d.hasNumber[n.Name] })
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

// renumber notes which nodes the engine has.
func (d *Driver) renumber() {
	clear(d.hasNumber)
	for _, name := range d.order {
		d.hasNumber[name] = true
	}
}
