// Package defrag finds running jobs to move: so that a waiting job has room, that a suspended one has its devices
// again, or that nodes are empty. It changes the inventory only to try, and leaves it as it was; which move, the engine
// decides.
package defrag

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// The search for moves: for each block in which the gang could be,
// the cheapest jobs whose departure lets it fit there and that find room
// elsewhere, the largest first, each where it leaves least.

// Finder finds moves. There is one search at a time.
type Finder struct {
	Placer placement.Placer

	places *placement.Finder
	world  *sched.World
	st     *inventory.Store
	resv   Reservations
	avoid  placement.KeepOff
}

// Reservations is what jobs that start must leave to others (reserve.Book).
type Reservations interface {
	// Limits is what a job that starts now must leave alone; nil: nothing.
	Limits(j *job.State, d placement.Depth) *placement.Slack
	// Take takes what a job would hold from what is left to others, or (sign -1) gives it back.
	Take(j *job.State, allocs []inventory.Alloc, sign int64)
}

// New makes a finder of moves to where another finder finds places.
func New(places *placement.Finder, placer placement.Placer, resv Reservations) Finder {
	return Finder{Placer: placer, places: places, world: places.World, st: places.World.Store, resv: resv}
}

// Mover is a running job that may be moved, or (all) several that together leave GPUs of
// a node of which they have parts.
type Mover struct {
	Job  *job.State
	How  job.How
	Dest []inventory.Alloc // where it goes

	all  []Mover // they; then only cost and gpu count besides
	gpu  [1]inventory.Alloc
	stop time.Duration // until it has left
	lost time.Duration // work
	cost time.Duration // GPU time
	wait time.Duration // from now until the jobs that have that have left it
	link int           // 0: it moves for the gang; else for one that moves, of the link before
}

// Relocation is jobs that move, and what the job for which they do gets.
type Relocation struct {
	Movers []Mover
	Allocs []inventory.Alloc
	cost   time.Duration
}

// Mover says what moving a job costs (Daly 2006): GPUs x (checkpoint + restore
// + lost work). Suspending it would keep it where it is.
func (f *Finder) Mover(v *job.State) Mover {
	if r := v.Spec.Replace; r > 0 { // it and the one in its place hold GPUs meanwhile
		return Mover{Job: v, How: job.Replace, stop: r, cost: gpusTime(r, v.Milli)}
	}
	c, grace := &v.Spec.Checkpoint, f.world.Oracle.Grace(v.Spec.Tier)
	m := Mover{Job: v, How: f.world.Oracle.HowToStop(v)}
	if m.How == job.Suspend {
		if m.How = job.Checkpoint; c.None {
			m.How = job.Kill
		}
	}
	if m.How == job.Checkpoint && !v.IgnoresCheckpoint {
		m.stop = min(c.Cost, grace)
	}
	if m.How == job.Kill || v.IgnoresCheckpoint || c.Cost > grace { // it does not get as far as to write one
		m.lost = v.UnsavedAt(f.world.Now)
	}
	m.cost = gpusTime(m.stop+c.Restart+m.lost, v.Milli)
	return m
}

// Find returns the cheapest way to let a job start when some of the movers, by number, leave: moves for most at most
// (Toll), in chains of so many links beyond the first; nil: there is none.
func (f *Finder) Find(r placement.Request, j *job.State, s *shape.Shape, movers []Mover, most cluster.Milli,
	links int) *Relocation {
	h := &search{r: r, j: j, s: s, movers: movers, most: most, work: chainWork}
	var search func()
	switch {
	case !s.Partly():
		blocks := f.blocks(s, movers)
		search = func() { f.vacateAny(h, blocks) }
	case s.Min > 1:
		search = func() { f.makeGangRoom(h) }
	default:
		search = func() { f.makeRoom(h, f.partChoices(r, s, j, movers, most)) }
	}
	search()
	if h.deep = links; links > 0 { // chains that cost less, or where there is nothing else
		search()
	}
	return h.best
}

// tryWithout tries the movers that are chosen to leave a domain, and chooses again without the one for which there was
// no room elsewhere.
func (f *Finder) tryWithout(h *search, d inventory.Domain, movers []Mover, choose func([]Mover) []Mover) {
	movers = slices.Clone(movers)
	for range exactMovers {
		chosen, before := choose(movers), h.best
		if len(chosen) == 0 {
			return
		}
		stuck := f.tryMoves(h, d, chosen)
		if stuck == nil || h.best != before {
			return
		}
		movers = slices.DeleteFunc(movers, func(m Mover) bool { return m.has(stuck) })
	}
}

// tryMoves places the job in a block that some movers leave, and them elsewhere, and notes that if it is the best way
// so far. The inventory is as before when it returns. stuck is a mover that finds no room.
func (f *Finder) tryMoves(h *search, d inventory.Domain, chosen []Mover) (stuck *job.State) {
	mark := f.st.Mark()
	defer f.st.Rollback(mark)
	for i := range chosen {
		f.st.ReleaseAll(chosen[i].Job.Allocs)
	}
	allocs, ok := f.places.PlaceWithin(h.r, h.j, h.s, h.s.Min, d)
	if !ok {
		return nil
	}
	allocs = slices.Clone(allocs)
	f.resv.Take(h.j, allocs, 1)
	defer f.resv.Take(h.j, allocs, -1)
	todo := slices.Clone(chosen)
	largestFirst(todo)
	return f.relocate(h, allocs, nil, todo)
}

func largestFirst(movers []Mover) {
	slices.SortStableFunc(movers, func(a, b Mover) int {
		return cmp.Or(cmp.Compare(extentOf(b.Job), extentOf(a.Job)), cmp.Compare(a.Job.Spec.ID, b.Job.Spec.ID))
	})
}

// tightest places a single task where it leaves the fewest GPUs free.
type tightest struct{}

func (tightest) Name() string { return "tightest" }

func (tightest) Place(s *placement.Site) bool {
	node := s.Find(0, 1, placement.Fullest)
	if node >= 0 {
		s.Take(node, 0, 1)
	}
	return node >= 0
}

// destination finds the tightest place for a job that was taken off its devices, at the size that it has,
// and takes it. It is never spread over more than the job is now, nor, where queues have
// limits, does it count for more: a slice can be another part of another model. r is the search for which it moves.
func (f *Finder) destination(r placement.Request, v *job.State) ([]inventory.Alloc, bool) {
	s := f.world.Shapes.At(v.Asks()) // of the model that a plan says
	r.Reserved = f.resv.Limits(v, placement.Mover)
	if v.Tasks == 1 && !s.Topo.Required {
		r.Placer = tightest{}
	}
	mark := f.st.Mark()
	allocs, ok := f.places.PlaceWithin(r, v, s, v.Tasks, inventory.Domain{})
	for l := cluster.LevelNVLink; l <= inventory.Farthest(f.st); l++ {
		ok = ok && (!f.st.Together(v.Allocs, l) || f.st.Together(allocs, l))
	}
	if !ok || f.world.QueuesMatter && inventory.MilliIn(allocs) > v.Milli {
		f.st.Rollback(mark)
		return nil, false
	}
	return slices.Clone(allocs), true
}
