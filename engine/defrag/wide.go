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
// the share left: a job with parts of several of them, or with whole ones, makes room on all at once,
// so it is looked at node by node (in one NVLink island, where the job requires one) instead of
// device by device.

// spot is a node, or an island of one, in which there is to be room for one more task.
type spot struct {
	f      *Finder
	site   placement.Site
	node   int32
	at     inventory.Domain
	movers []Mover // with something there
	had    int     // tasks that there is room for
}

// wideChoices lists the sets of movers whose departure from a node may make room for one more task with shares of
// several GPUs, moves for most at most, the cheapest first, each without a job that need not leave.
func (f *Finder) wideChoices(ask placement.Request, s *shape.Shape, j *job.State, movers []Mover,
	most cluster.Milli) (list []choice) {
	for id, on := range f.byNode(movers) {
		n := &f.st.Nodes()[id]
		if len(on) == 0 || !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		for _, d := range f.spotsOf(s, int32(id)) {
			k := spot{f: f, node: int32(id), at: d, site: f.places.Look(ask, j, s, d, nil)}
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

// spotsOf lists the parts of a node in one of which a task must be.
func (f *Finder) spotsOf(s *shape.Shape, id int32) (list []inventory.Domain) {
	n := &f.st.Nodes()[id]
	if !s.Topo.Required || s.Topo.Level != cluster.LevelNVLink || !n.Split() {
		return []inventory.Domain{{Level: cluster.LevelNode, ID: id}}
	}
	for i := range n.Islands() {
		list = append(list, inventory.IslandDomain(id, i))
	}
	return list
}

func (k *spot) room() int { return k.site.Room(int(k.node), 0, k.site.Sets()[0].Count) }

// opens reports whether there is room for one more task when some have left.
func (k *spot) opens(leavers []Mover) bool {
	mark := k.f.st.Mark()
	defer k.f.st.Rollback(mark)
	for i := range leavers {
		k.f.st.ReleaseAll(leavers[i].Job.Allocs)
	}
	return k.room() > k.had
}

// every tries every set of movers, and keeps those of which each has to leave.
func (k *spot) every(most cluster.Milli) (list []choice) {
	var open [1 << exactMovers]bool
	for mask := 1; mask < 1<<len(k.movers); mask++ {
		for m := mask; m != 0 && !open[mask]; m &= m - 1 { // another departure closes nothing
			open[mask] = open[mask&^(m&-m)]
		}
		if open[mask] {
			continue
		}
		var leavers []Mover
		for i := range k.movers {
			if mask>>i&1 == 1 {
				leavers = append(leavers, k.movers[i])
			}
		}
		if toll(leavers) <= most && k.opens(leavers) {
			open[mask] = true
			list = append(list, k.choice(leavers))
		}
	}
	return list
}

func (k *spot) choice(leavers []Mover) choice {
	return choice{movers: leavers, cost: costOf(leavers), at: k.at}
}

// cheap clears, where there are too many movers to try every set, one GPU after the other by those that cost least for
// it, until there is room: once from each GPU.
func (k *spot) cheap(j *job.State, most cluster.Milli) (list []choice) {
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
		if leavers := k.clear(ways, first); toll(leavers) <= most && k.opens(leavers) {
			list = append(list, k.choice(withoutSpare(leavers, k.opens)))
		}
	}
	return list
}

// clear lists the movers that leave if one GPU is cleared first, and then those that cost least more.
func (k *spot) clear(ways [][][]Mover, first int) (leavers []Mover) {
	done := make([]bool, len(ways))
	for dev := first; dev >= 0; {
		done[dev] = true
		leavers = append(leavers, cheapestOf(ways[dev], leavers)...)
		if k.opens(leavers) {
			break
		}
		dev = -1
		var least []Mover
		for i := range ways {
			if more := cheapestOf(ways[i], leavers); !done[i] && len(ways[i]) > 0 &&
				(dev < 0 || costOf(more) < costOf(least)) {
				dev, least = i, more
			}
		}
	}
	return leavers
}

// cheapestOf is the movers that leave, besides those that do already, by the cheapest of some ways.
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

// reopen is the openings for a gang of such tasks after some more movers have left (last): those on the nodes that
// these left are looked for again.
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
