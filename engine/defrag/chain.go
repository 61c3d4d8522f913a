package defrag

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// Chains of moves (the buddy variant): where a mover finds no room, another job moves for it, and it goes where that
// one was. Jobs are placed in descending order of size: with sizes that are powers of two, and all of them movable,
// room is found for whatever fits in what is free by count, and no job that has got a place has to leave it.

// search is the search for a way to let a job start.
type search struct {
	r      placement.Request // the job's
	j      *job.State
	s      *shape.Shape
	movers []Mover       // by number
	most   cluster.Milli // moves, in thousandths (toll)
	deep   int           // so many links a chain may have beyond its first
	work   int           // what looking for chains may still cost, in nodes and jobs that are looked at
	best   *Relocation
}

// chainWork bounds the search for chains for one job: on 100 nodes with 200 jobs it looks 200
// times for jobs that could leave, at a few tens of microseconds each.
const chainWork = 60_000

// partWork is what trying a job that could leave for a share or a slice counts for: there are
// many more of them than jobs with whole GPUs.
const partWork = 8

// better reports whether a way of such a cost is better than what was found.
func (h *search) better(cost time.Duration, moves int) bool {
	return h.best == nil || cost < h.best.cost || cost == h.best.cost && moves < len(h.best.Movers)
}

// relocate finds places for jobs that left theirs (todo, the largest first), besides those that have a new one (done),
// and notes the way if it is the best so far. The inventory is as before when it returns. stuck is a job that finds no
// room.
func (f *Finder) relocate(h *search, gang []inventory.Alloc, done, todo []Mover) (stuck *job.State) {
	cost := costOf(done) + costOf(todo)
	if !h.better(cost, len(done)+len(todo)) {
		return nil
	}
	if len(todo) == 0 {
		h.best = &Relocation{Movers: slices.Clone(done), Allocs: gang, cost: cost}
		return nil
	}
	m := todo[0]
	if f.moveFirst(h, gang, done, todo) {
		return nil
	}
	if m.link < h.deep && toll(done)+toll(todo) < h.most {
		for _, c := range f.openings(h, &m, done, todo) {
			if h.work <= 0 || !h.better(cost+c.cost, len(done)+len(todo)+len(c.movers)) {
				break // the rest costs more
			}
			f.moveFirstAfter(h, gang, done, todo, c.movers)
		}
	}
	if m.link > 0 {
		return nil
	}
	return m.Job
}

// moveFirst moves the first of todo where there is room, and then the others; false: there is none.
func (f *Finder) moveFirst(h *search, gang []inventory.Alloc, done, todo []Mover) bool {
	mark, m := f.st.Mark(), todo[0]
	defer f.st.Rollback(mark)
	dest, ok := f.destination(h.r, m.Job)
	if !ok || f.noMove(m.Job.Allocs, dest) {
		return false
	}
	m.Dest = dest
	m.waitFor(done)
	m.waitFor(todo)
	f.resv.Take(m.Job, dest, 1)
	defer f.resv.Take(m.Job, dest, -1)
	f.relocate(h, gang, append(done[:len(done):len(done)], m), todo[1:])
	return true
}

// moveFirstAfter is moveFirst after some more have left.
func (f *Finder) moveFirstAfter(h *search, gang []inventory.Alloc, done, todo, more []Mover) {
	mark := f.st.Mark()
	defer f.st.Rollback(mark)
	all := slices.Clone(todo)
	for _, x := range more {
		f.st.ReleaseAll(x.Job.Allocs)
		x.link = todo[0].link + 1
		all = append(all, x)
	}
	largestFirst(all[1:]) // for the first of them they leave
	f.moveFirst(h, gang, done, all)
}

// openings lists the sets of movers whose departure may make room for one that moves, the cheapest first.
func (f *Finder) openings(h *search, m *Mover, done, todo []Mover) (list []choice) {
	s := f.world.Shapes.At(m.Job.Asks())
	if int(m.Job.Devices) != s.GPUs || h.work <= 0 {
		return nil
	}
	gone := func(x Mover) bool {
		same := func(y Mover) bool { return x.Job == y.Job }
		return slices.ContainsFunc(done, same) || slices.ContainsFunc(todo, same)
	}
	movers, most := slices.DeleteFunc(slices.Clone(h.movers), gone), h.most-toll(done)-toll(todo)
	h.work -= len(f.st.Nodes()) + len(h.movers)
	r := h.r
	r.Reserved = f.resv.Limits(m.Job, placement.Mover)
	if s.Partly() && s.Min > 1 {
		h.work -= partWork * len(movers)
		return f.gangChoices(r, s, m.Job, movers, most)
	}
	if s.Partly() {
		list = f.partChoices(r, s, m.Job, movers, most)
		list = list[:min(len(list), mostBlocks)]
		h.work -= partWork * len(list)
		return list
	}
	blocks := f.blocks(s, movers)
	for i := range blocks[:min(len(blocks), mostBlocks)] {
		b := &blocks[i]
		if _, _, ok := b.Single(); ok && len(b.movers) <= exactMovers {
			list = append(list, f.choices(s.GPUs, b, most, true)...)
		} else if leavers := f.chooseNodes(s, b, b.movers, most); len(leavers) > 0 {
			list = append(list, choice{movers: leavers, cost: costOf(leavers)})
		}
	}
	sortChoices(list)
	return list
}

func costOf(movers []Mover) (sum time.Duration) {
	for i := range movers {
		sum += movers[i].cost
	}
	return sum
}

// noMove reports whether a job would be on the same nodes as before, where that makes no
// difference to it.
func (f *Finder) noMove(from, to []inventory.Alloc) bool {
	same := func(a, b inventory.Alloc) bool {
		return a.Node == b.Node && a.Tasks == b.Tasks &&
			(a.Share == 0 && !f.st.Nodes()[a.Node].Split() || a.Share > 0 && a.GPUs == b.GPUs && a.Slots == b.Slots)
	}
	return slices.EqualFunc(from, to, same) || len(from) > 1 && slices.EqualFunc(byDevice(from), byDevice(to), same)
}

// byDevice is allocations in the order of their devices: shares of several GPUs come in that
// in which they were found, and the first has the task's CPU and RAM.
func byDevice(allocs []inventory.Alloc) []inventory.Alloc {
	list := slices.Clone(allocs)
	if slices.ContainsFunc(list, func(a inventory.Alloc) bool { return a.Share == 0 }) {
		return list
	}
	for i := range list {
		list[i].Tasks = 0
	}
	slices.SortFunc(list, func(a, b inventory.Alloc) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Slots, b.Slots))
	})
	return list
}

// waitFor has a job that moves wait for those on whose devices it goes; what it
// does not compute meanwhile is part of its cost.
func (m *Mover) waitFor(others []Mover) {
	for i := range others {
		if x := &others[i]; x.Job != m.Job && inventory.Overlap(x.Job.Allocs, m.Dest) {
			wait := max(m.wait, x.stop)
			m.cost += gpusTime(max(wait, m.stop)-max(m.wait, m.stop), m.Job.Milli)
			m.wait = wait
		}
	}
}

// behind lists the jobs whose devices one of the movers goes to, by number.
func (w *Relocation) behind(m *Mover) (list []cluster.JobID) {
	for i := range w.Movers {
		if x := w.Movers[i].Job; x != m.Job && inventory.Overlap(x.Allocs, m.Dest) {
			list = append(list, x.Spec.ID)
		}
	}
	slices.Sort(list)
	return list
}
