package nodes

import (
	"maps"
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
	forgetLate  = 24 * time.Hour
	forgetMany  = 16 // and an eighth of the nodes
)

// leftNodes are nodes that are gone and that the engine still has.
type leftNodes struct {
	since map[string]cluster.Time // by name
	at    cluster.Time            // when they are looked at next
}

// nextForget is when nodes that are gone are to be looked at.
func (r *Room) nextForget() cluster.Time {
	if len(r.left.since) == 0 {
		return cluster.Never
	}
	return r.left.at
}

// noteLeft notes that a node of the engine is gone.
func (r *Room) noteLeft(name string, now cluster.Time) {
	if len(r.left.since) == 0 {
		r.left.at = now.Add(forgetEvery)
	}
	r.left.since[name] = now
}

// MayForget reports whether nodes are to be forgotten now: then the engine has to be renewed.
func (r *Room) MayForget(now cluster.Time) bool {
	if now < r.nextForget() {
		return false
	}
	r.left.at = now.Add(forgetEvery)
	unused, since := 0, now
	for name, at := range r.left.since {
		if !r.used(name) {
			unused, since = unused+1, min(since, at)
		}
	}
	if unused == 0 || unused < max(forgetMany, len(r.order)/8) && now.Sub(since) < forgetLate {
		return false
	}
	r.left.at = now.Add(forgetAgain)
	return true
}

// used reports whether a node is there, something is on it, or on its way there, or is being done to it.
func (r *Room) used(name string) bool {
	n := r.nodes[name]
	return n != nil && (n.Obj != nil || len(n.foreign) > 0 || n.Power.Busy() || n.MIG.Busy() ||
		len(r.World.On(name)) > 0)
}

// drop forgets a node that is not there, that nothing uses, and that the engine does not have.
func (r *Room) drop(name string) {
	if r.nodes[name] != nil && !r.used(name) && !r.Has(name) {
		delete(r.nodes, name)
		r.World.Forget(name)
		r.Loans.Forget(name)
	}
}

// Begin prepares the room for the next engine, which goes on from a snapshot. Nodes that are gone and that no job
// refers to are forgotten, unless numbers have to stay what they are: then keep is true. Nodes that are new are added.
func (r *Room) Begin(snap *engine.Snapshot, keep bool) {
	r.Sets.begin()
	r.SizesDirty = false
	clear(r.joined)
	clear(r.changed)
	clear(r.models)
	r.opt.GPUs.Forget()
	if !keep {
		r.forget(snap)
	}
	r.addNew()
	maps.DeleteFunc(r.said, func(name string, _ string) bool { return r.nodes[name] == nil || r.excluded[name] == "" })
	clear(r.excluded)
	for _, n := range r.nodes {
		n.MIG.Stays, r.Dirty = false, r.Dirty || n.MIG.Stays
	}
	r.World.NoteTaints(r.order)
}

// addNew adds new nodes to the engine's, by name. One that is gone keeps its number, and is down, until it is
// forgotten.
func (r *Room) addNew() {
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		if !r.Has(name) && r.nodes[name].Obj != nil {
			r.order = append(r.order, name)
			r.number[name] = len(r.order) - 1
		}
	}
	maps.DeleteFunc(r.left.since, func(name string, _ cluster.Time) bool { return r.Object(name) != nil }) // it is back
}

// forget takes nodes out of the order of the next engine that are gone and that no job refers to, and gives the others
// their new numbers.
func (r *Room) forget(snap *engine.Snapshot) {
	held := make([]bool, len(r.order))
	for i := range snap.Jobs {
		for _, list := range allocsOf(&snap.Jobs[i]) {
			for k := range *list {
				held[(*list)[k].Node] = true
			}
		}
	}
	to, kept := make([]int32, len(r.order)), []string(nil)
	for i, name := range r.order {
		if held[i] || r.used(name) {
			to[i], kept = int32(len(kept)), append(kept, name)
			continue
		}
		to[i] = -1
	}
	if len(kept) == len(r.order) {
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
	gone := r.order
	r.order = kept
	clear(r.number)
	for i, name := range kept {
		r.number[name] = i
	}
	snap.Nodes = slices.DeleteFunc(slices.Clone(snap.Nodes), func(n cluster.Node) bool { return !r.Has(n.Name) })
	for i, name := range gone {
		if to[i] < 0 {
			r.drop(name)
			delete(r.left.since, name)
		}
	}
}

// allocsOf lists what of a job's record refers to nodes by number.
func allocsOf(r *engine.JobRecord) []*[]engine.Alloc {
	return []*[]engine.Alloc{&r.Allocs, &r.Home, &r.Frozen, &r.Leaving, &r.Dest, &r.Plan}
}
