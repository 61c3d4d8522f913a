package defrag

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// Moves for gangs of shares or slices. For each of the gang's tasks some jobs leave one GPU, as
// they would for a single one (departures); the next ones to leave are those that cost least
// for each task that there is room for then. That is a greedy search: a dumb twin says how often
// it finds the least that there is.

// opening is jobs that may leave a GPU together, for some more tasks of a gang.
type opening struct {
	choice
	gain  int // tasks that there is room for when they have left
	known bool
}

// gangRoom is where tasks of a gang could be, and for how many there is room.
type gangRoom struct {
	f       *Finder
	ask     placement.Request // the gang's
	j       *job.State
	site    placement.Site
	nodes   []int32
	room    []int // by node of the cluster
	missing int
}

// makeGangRoom looks for the cheapest way to have a gang of shares or slices, in each domain in
// which it may be, on each model.
func (f *Finder) makeGangRoom(h *search) {
	for _, d := range f.gangDomains(h.s) {
		stages := h.s.StagesOf()
		for i := range stages {
			if !f.tryGangs(h, &stages[i], d) {
				f.tryWithout(h, d, h.movers, func(movers []Mover) []Mover {
					return f.gangLeavers(h.r, h.s, h.j, &stages[i], d, movers, h.most)
				})
			}
		}
	}
}

// gangChoices lists sets of movers that could leave for a gang that moves itself: for each domain and model those that
// are chosen first.
func (f *Finder) gangChoices(r placement.Request, s *shape.Shape, j *job.State, movers []Mover,
	most cluster.Milli) (list []choice) {
	for _, d := range f.gangDomains(s) {
		stages := s.StagesOf()
		for i := range stages {
			if leavers := f.gangLeavers(r, s, j, &stages[i], d, movers, most); len(leavers) > 0 {
				list = append(list, choice{movers: leavers, cost: costOf(leavers), at: d})
			}
		}
	}
	sortChoices(list)
	return list
}

// tryGangs tries every set of movers, the cheapest first, where so few may leave that it can; false: they are more.
func (f *Finder) tryGangs(h *search, g *shape.Stage, d inventory.Domain) bool {
	r := f.roomsFor(h.r, h.s, h.j, g, d)
	there := func(m Mover) bool {
		return slices.ContainsFunc(m.Job.Allocs, func(a inventory.Alloc) bool { return r.has(a.Node) })
	}
	movers := slices.DeleteFunc(slices.Clone(h.movers), func(m Mover) bool { return !there(m) })
	if len(movers) > exactMovers {
		return false
	}
	var list []choice
	for mask := 1; mask < 1<<len(movers); mask++ {
		var leavers []Mover
		for i := range movers {
			if mask>>i&1 == 1 {
				leavers = append(leavers, movers[i])
			}
		}
		if toll(leavers) <= h.most && r.with(leavers) {
			list = append(list, choice{movers: leavers, cost: costOf(leavers)})
		}
	}
	sortChoices(list)
	for i := range list {
		if !h.better(list[i].cost, len(list[i].movers)) {
			break
		}
		f.tryMoves(h, d, list[i].movers)
	}
	return true
}

// gangDomains lists the domains in one of which a gang must be; the zero Domain: anywhere.
func (f *Finder) gangDomains(s *shape.Shape) (list []inventory.Domain) {
	level := s.Topo.Level
	if !s.Topo.Required || level == cluster.LevelAny {
		return []inventory.Domain{{}}
	}
	for id := range f.st.Nodes() {
		n := &f.st.Nodes()[id]
		switch {
		case !n.TakesJobs() || !s.Any.Has(n.Class()):
		case level == cluster.LevelNVLink && n.Split():
			for i := range n.Islands() {
				list = append(list, inventory.IslandDomain(int32(id), i))
			}
		default:
			if d := n.Domain(int32(id), level); !slices.Contains(list, d) {
				list = append(list, d)
			}
		}
	}
	return list
}

// gangLeavers chooses the movers that leave so that there is room for all tasks of a gang on GPUs of a stage in a
// domain, moves for most at most; nil: there is no such choice.
func (f *Finder) gangLeavers(ask placement.Request, s *shape.Shape, j *job.State, g *shape.Stage, d inventory.Domain,
	movers []Mover, most cluster.Milli) (chosen []Mover) {
	mark := f.st.Mark()
	defer f.st.Rollback(mark)
	r := f.roomsFor(ask, s, j, g, d)
	if r.missing <= 0 {
		return nil // it is not room that it lacks
	}
	list := r.openings(s, movers, most)
	for r.missing > 0 {
		k := r.next(list, chosen)
		if k < 0 {
			return nil
		}
		last := r.remove(list[k].movers, chosen)
		if chosen = append(chosen, last...); toll(chosen) > most {
			return nil
		}
		if list = append(list[:k], list[k+1:]...); s.Wide() {
			list = r.reopen(s, list, movers, chosen, last, most)
		}
	}
	f.st.Rollback(mark)
	return withoutSpare(chosen, f.roomsFor(ask, s, j, g, d).with)
}

// openings lists the sets of movers that may leave for one task more, moves for most at most.
func (r *gangRoom) openings(s *shape.Shape, movers []Mover, most cluster.Milli) (list []opening) {
	for _, c := range r.f.partChoices(r.ask, s, r.j, movers, most) {
		if o := (opening{choice: c}); r.has(r.nodeOf(&o)) {
			list = append(list, o)
		}
	}
	return list
}

// nodeOf is the node of which an opening is.
func (r *gangRoom) nodeOf(o *opening) int32 {
	id, _, _ := o.at.Single()
	return id
}

// roomsFor counts what there is room for as it is.
func (f *Finder) roomsFor(ask placement.Request, s *shape.Shape, j *job.State, g *shape.Stage,
	d inventory.Domain) *gangRoom {
	r := &gangRoom{f: f, ask: ask, j: j, site: f.places.Look(ask, j, s, d, g), room: make([]int, len(f.st.Nodes())),
		missing: int(s.Min)}
	for id := range f.st.Nodes() {
		if n := &f.st.Nodes()[id]; n.TakesJobs() && slices.Contains(g.Classes, n.Class()) && d.Covers(n, int32(id)) {
			r.nodes = append(r.nodes, int32(id))
			r.count(int32(id))
		}
	}
	return r
}

// has reports whether the node is one of those where the gang could be.
func (r *gangRoom) has(id int32) bool {
	_, ok := slices.BinarySearch(r.nodes, id)
	return ok
}

// count counts the room on a node again.
func (r *gangRoom) count(id int32) {
	k := r.site.Room(int(id), 0, r.site.Sets()[0].Count)
	r.missing -= k - r.room[id]
	r.room[id] = k
}

// next is the opening that costs least for each task that has room then; -1: no one helps.
func (r *gangRoom) next(list []opening, chosen []Mover) int {
	best := -1
	for k := range list {
		o := &list[k]
		if !o.known {
			r.value(o, chosen)
		}
		if gain := int64(min(o.gain, r.missing)); gain > 0 &&
			(best < 0 || int64(o.cost)*int64(min(list[best].gain, r.missing)) < int64(list[best].cost)*gain) {
			best = k
		}
	}
	if best >= 0 { // openings on the same nodes have another worth now
		at := nodesLeft(list[best].movers)
		for k := range list {
			if slices.ContainsFunc(nodesLeft(list[k].movers), func(id int32) bool { return slices.Contains(at, id) }) {
				list[k].known = false
			}
		}
	}
	return best
}

// value says what an opening costs beside the movers that leave already, and what it is worth.
func (r *gangRoom) value(o *opening, chosen []Mover) {
	more, gain := r.try(o.movers, chosen)
	o.cost, o.gain, o.known = costOf(more), gain, true
}

// try says which of some movers did not leave yet, and for how many more tasks there is room without them. All is as
// before when it returns.
func (r *gangRoom) try(leavers, chosen []Mover) (more []Mover, gain int) {
	mark, room, missing := r.f.st.Mark(), slices.Clone(r.room), r.missing
	more = r.remove(leavers, chosen)
	gain = missing - r.missing
	r.f.st.Rollback(mark)
	r.room, r.missing = room, missing
	return more, gain
}

// remove takes movers off their GPUs, except those that left already, and returns them.
func (r *gangRoom) remove(leavers, chosen []Mover) (more []Mover) {
	for _, m := range leavers {
		if slices.ContainsFunc(chosen, func(x Mover) bool { return x.Job == m.Job }) {
			continue
		}
		more = append(more, m)
		r.f.st.ReleaseAll(m.Job.Allocs)
	}
	for _, id := range nodesLeft(more) {
		if r.has(id) {
			r.count(id)
		}
	}
	return more
}

// with reports whether there is room for the gang when some jobs have left.
func (r *gangRoom) with(leavers []Mover) bool {
	_, gain := r.try(leavers, nil)
	return gain >= r.missing
}
