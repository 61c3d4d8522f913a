package defrag

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// Moves for tasks with shares of several GPUs. Each of so many devices of one node must have
// the share left: who has parts of several of them, or has them whole, makes room on all at once,
// so it is looked at node by node (in one NVLink island, where the job requires one) instead of
// device by device.

// nook is a node, or an island of one, in which there is to be room for one more task.
type nook struct {
	f      *Finder
	site   placement.Site
	node   int32
	at     inventory.Domain
	movers []Mover // who has something there
	had    int     // tasks that there is room for
}

// wideChoices lists who could leave some node so that there may be room for one more task
// with shares of several GPUs, moves for most at most, nobody in vain, the cheapest first.
func (f *Finder) wideChoices(ask placement.Request, s *shape.Shape, j *job.State, movers []Mover,
	most cluster.Milli) (list []choice) {
	for id, on := range f.byNode(movers) {
		n := &f.st.Nodes()[id]
		if len(on) == 0 || !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		for _, d := range f.nooks(s, int32(id)) {
			k := nook{f: f, node: int32(id), at: d, site: f.places.Look(ask, j, s, d, nil)}
			for _, i := range on {
				if f.gpusIn(&movers[i], d) > 0 {
					k.movers = append(k.movers, movers[i])
				}
			}
			k.had = k.room()
			if len(k.movers) <= exactMovers {
				list = append(list, k.every(most)...)
			} else {
				list = append(list, k.cheap(j, most)...)
			}
		}
	}
	sortChoices(list)
	return list
}

// nooks lists the parts of a node in one of which a task must be.
func (f *Finder) nooks(s *shape.Shape, id int32) (list []inventory.Domain) {
	n := &f.st.Nodes()[id]
	if !s.Topo.Required || s.Topo.Level != cluster.LevelNVLink || !n.Split() {
		return []inventory.Domain{{Level: cluster.LevelNode, ID: id}}
	}
	for i := range n.Islands() {
		list = append(list, inventory.IslandDomain(id, i))
	}
	return list
}

func (k *nook) room() int { return k.site.Room(int(k.node), 0, k.site.Sets()[0].Count) }

// opens reports whether there is room for one more task when some have left.
func (k *nook) opens(who []Mover) bool {
	mark := k.f.st.Mark()
	defer k.f.st.Rollback(mark)
	for i := range who {
		k.f.st.ReleaseAll(who[i].Job.Allocs)
	}
	return k.room() > k.had
}

// every tries every choice of who leaves, and keeps those in which nobody does in vain.
func (k *nook) every(most cluster.Milli) (list []choice) {
	var open [1 << exactMovers]bool
	for mask := 1; mask < 1<<len(k.movers); mask++ {
		for m := mask; m != 0 && !open[mask]; m &= m - 1 { // whoever leaves besides closes nothing
			open[mask] = open[mask&^(m&-m)]
		}
		if open[mask] {
			continue
		}
		var who []Mover
		for i := range k.movers {
			if mask>>i&1 == 1 {
				who = append(who, k.movers[i])
			}
		}
		if toll(who) <= most && k.opens(who) {
			open[mask] = true
			list = append(list, k.choice(who))
		}
	}
	return list
}

func (k *nook) choice(who []Mover) choice {
	return choice{who: who, cost: costOf(who), at: k.at}
}

// cheap clears, where there are too many to try every choice, one GPU after the other by those who cost least
// for it, until there is room: once from each GPU.
func (k *nook) cheap(j *job.State, most cluster.Milli) (list []choice) {
	all := make([]int, len(k.movers))
	for i := range all {
		all[i] = i
	}
	n := &k.f.st.Nodes()[k.node]
	ways := make([][][]Mover, len(n.Devices()))
	for m := k.site.Allowed(int(k.node)) & n.Healthy(); m != 0; m &= m - 1 {
		if dev := bits.TrailingZeros64(m); dev < len(n.Devices()) {
			ways[dev] = k.f.departures(k.node, dev, &k.site.Sets()[0].Request, j, k.movers, all)
		}
	}
	for first := range ways {
		if who := k.clear(ways, first); toll(who) <= most && k.opens(who) {
			list = append(list, k.choice(k.trim(who)))
		}
	}
	return list
}

// clear lists who leaves if one GPU is cleared first, and then those that cost least more.
func (k *nook) clear(ways [][][]Mover, first int) (who []Mover) {
	done := make([]bool, len(ways))
	for dev := first; dev >= 0; {
		done[dev] = true
		who = append(who, cheapestOf(ways[dev], who)...)
		if k.opens(who) {
			break
		}
		dev = -1
		var least []Mover
		for i := range ways {
			if more := cheapestOf(ways[i], who); !done[i] && len(ways[i]) > 0 &&
				(dev < 0 || costOf(more) < costOf(least)) {
				dev, least = i, more
			}
		}
	}
	return who
}

// cheapestOf is who leaves, besides those who do, by the cheapest of some ways.
func cheapestOf(ways [][]Mover, gone []Mover) (least []Mover) {
	for i, way := range ways {
		more := slices.DeleteFunc(slices.Clone(way), func(m Mover) bool {
			return slices.ContainsFunc(gone, func(x Mover) bool { return x.Job == m.Job })
		})
		if i == 0 || costOf(more) < costOf(least) {
			least = more
		}
	}
	return least
}

// trim leaves those out, the dearest first, without whom there is room as well.
func (k *nook) trim(who []Mover) []Mover {
	list := slices.Clone(who)
	slices.SortStableFunc(list, func(a, b Mover) int { return int(min(1, max(-1, b.cost-a.cost))) })
	for i := 0; i < len(list); {
		if rest := slices.Delete(slices.Clone(list), i, i+1); k.opens(rest) {
			list = rest
		} else {
			i++
		}
	}
	return list
}

// reopen is the openings for a gang of such tasks after some more have left (last): on nodes that
// these left it is looked anew who may leave for one task more.
func (r *gangRoom) reopen(s *shape.Shape, list []opening, movers, chosen, last []Mover, most cluster.Milli) []opening {
	at := nodesLeft(last)
	touched := func(o opening) bool { return slices.Contains(at, r.nodeOf(&o)) }
	list = slices.DeleteFunc(list, touched)
	left := slices.DeleteFunc(slices.Clone(movers), func(m Mover) bool {
		gone := slices.ContainsFunc(chosen, func(x Mover) bool { return x.Job == m.Job })
		return gone || !slices.ContainsFunc(m.Job.Allocs, func(a inventory.Alloc) bool {
			return slices.Contains(at, a.Node)
		})
	})
	more := r.openings(s, left, most)
	return append(list, slices.DeleteFunc(more, func(o opening) bool { return !touched(o) })...)
}
