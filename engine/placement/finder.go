// Package placement finds a place for a job: from a request and what is free to allocations, or to
// none. It changes the inventory only tentatively: the caller commits or rolls back.
package placement

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/lending"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/speed"
)

// Request is the input of a search besides the job.
type Request struct {
	In           *inventory.Store // where to search
	Placer       Placer
	Reserved     *Slack              // limits of reservations; nil: none
	Blocked      *inventory.ClassSet // strict order: classes closed by a blocked job; nil: none
	Shut         shape.NodeBits      // ... and nodes closed by one that names a set of nodes
	Avoid        *KeepOff            // nodes to avoid; nil: none
	SkipSleeping bool                // do not place on powered-down nodes
	IgnoreUsage  bool                // whether the job could ever fit: ignore temporary bounds
	IgnoreLoans  bool                // place also where services may have back what they lend
}

// Around is what a search needs to know of jobs, besides the inventory.
type Around interface {
	Jobs() []*job.State   // by number; nil where there is none
	Running() *order.List // those that hold devices and were not told to stop
	// Company is the running jobs with which a job would share the network; nil: it is not known that it transmits.
	Company(j *job.State) *links.Company
}

// Finder finds places. It holds what searches share: the demand of waiting jobs, and reused memory.
// There is one search at a time.
type Finder struct {
	World   *sched.World
	Sharing cluster.Sharing
	Around  Around
	Speeds  *speed.Book   // beside which jobs one does not go
	Lending *lending.Book // where a job is not to start

	demand inventory.Demand
	wanted slicesWanted
	site   Site
	found  []inventory.Alloc // of the last search
	sets   []cluster.TaskSet
	memory any // for the placer, a *T
	slacks [depths]Slack
	key    []byte
	closed inventory.ClassSet
}

// Slack is memory for the limits of the searches at a depth.
func (f *Finder) Slack(d Depth) *Slack { return &f.slacks[d] }

// Place runs the placer for the gang at one size, stage by stage; a suspended job can only go where its memory is. The
// result is valid until the next search.
func (f *Finder) Place(r Request, j *job.State, s *shape.Shape, tasks int32) ([]inventory.Alloc, bool) {
	if j.Home != nil {
		return f.placeHome(r, j, s)
	}
	sets := s.Sets
	if int(tasks) != sets[0].Count {
		f.sets = append(f.sets[:0], s.Sets...)
		f.sets[0].Count = int(tasks)
		sets = f.sets
	}
	f.site = Site{f: f, r: f.beside(r, j), job: j, req: sets, allocs: f.found[:0], most: s.NodeBounds()}
	return f.placeStages(&f.site, s)
}

// beside closes to a job what services may have back. It is valid until the next search.
func (f *Finder) beside(r Request, j *job.State) Request {
	if !f.Lending.Any() || r.IgnoreUsage || r.IgnoreLoans {
		return r
	}
	if f.closed = f.Lending.Closed(j); !f.closed.Empty() {
		if r.Blocked != nil {
			f.closed.Union(r.Blocked)
		}
		r.Blocked = &f.closed
	}
	return r
}

// PlaceAgain places the job where it was promised to run, if that is free. Plans are recomputed in
// every pass; if a job were planned or started on other nodes than before, jobs behind it might
// lose what they were promised.
func (f *Finder) PlaceAgain(r Request, j *job.State, s *shape.Shape) ([]inventory.Alloc, bool) {
	if len(j.Plan) == 0 || j.Home != nil {
		return nil, false
	}
	site := &Site{f: f, r: r, job: j, req: s.Sets, allocs: f.found[:0], most: s.NodeBounds()}
	mark := r.In.Mark()
	for i := range j.Plan {
		a := &j.Plan[i]
		node, set, n := int(a.Node), int(a.Set), int(a.Tasks)
		if a.Share != 0 || !r.In.Nodes()[node].TakesJobs() || site.Room(node, set, n) < n ||
			f.Lending.Shuts(j, j.Plan[i:i+1]) {
			r.In.Rollback(mark)
			return nil, false
		}
		site.Take(node, set, n)
	}
	f.found = site.allocs
	if l := s.Topo.Level; s.Topo.Required && l != cluster.LevelAny && !r.In.Together(site.allocs, l) {
		r.In.Rollback(mark) // on the same node, but on different islands
		return nil, false
	}
	return site.allocs, true
}

// PlaceWithin is Place within a domain.
func (f *Finder) PlaceWithin(r Request, j *job.State, s *shape.Shape, tasks int32,
	d inventory.Domain) ([]inventory.Alloc, bool) {
	sets := s.Sets
	if int(tasks) != sets[0].Count {
		sets = slices.Clone(sets)
		sets[0].Count = int(tasks)
	}
	return f.placeStages(&Site{f: f, r: f.beside(r, j), job: j, req: sets, home: d, most: s.NodeBounds()}, s)
}

// PlaceMore places additional tasks of a running job on awake nodes within a domain.
func (f *Finder) PlaceMore(r Request, j *job.State, s *shape.Shape, g *shape.Stage, sets []cluster.TaskSet,
	in inventory.Domain,
	has []inventory.Alloc) ([]inventory.Alloc, bool) {
	site := &Site{f: f, r: r, job: j, req: sets, home: in, awake: true, most: s.NodeBounds(), has: has}
	ok := f.placeStage(site, g)
	return site.allocs, ok
}

// placeHome puts a suspended job back where its memory is.
func (f *Finder) placeHome(r Request, j *job.State, s *shape.Shape) ([]inventory.Alloc, bool) {
	if !f.homeFits(r, j, s) || !r.IgnoreLoans && f.Lending.Shuts(j, j.Home) {
		return nil, false
	}
	for i := range j.Home {
		a := &j.Home[i]
		if a.Tenant != 0 && f.Speeds.Shunned(&r.In.Nodes()[a.Node], j)&a.GPUs != 0 {
			return nil, false
		}
	}
	if !r.In.TakeBack(j.Home, false, false) {
		return nil, false
	}
	return f.Keep(j.Home), true
}

// homeFits reports whether nodes and reservations let a suspended job resume where its memory is.
func (f *Finder) homeFits(r Request, j *job.State, s *shape.Shape) bool {
	back := Site{f: f, r: r, job: j, req: j.Spec.Tasks, most: s.NodeBounds()}
	for i := range j.Home {
		a := &j.Home[i]
		if !r.In.Nodes()[a.Node].TakesJobs() || back.most != nil && back.bounded(a.Node) < int(a.Tasks) {
			return false
		}
		if r.Reserved != nil {
			asks := &j.Spec.Tasks[a.Set].Request
			if r.Reserved.room(a.Node, back.bound(a.Node), asks, int(a.Tasks)) < int(a.Tasks) {
				return false
			}
		}
		back.allocs = j.Home[:i+1]
	}
	return true
}

// Keep returns a copy in the finder's result memory: it is valid until the next search.
func (f *Finder) Keep(allocs []inventory.Alloc) []inventory.Alloc {
	f.found = append(f.found[:0], allocs...)
	return f.found
}

// Look is a site within a domain for inspecting the room for a job. g is the classes; nil: nodes
// are not searched.
func (f *Finder) Look(r Request, j *job.State, s *shape.Shape, in inventory.Domain, g *shape.Stage) Site {
	site := Site{f: f, r: r, job: j, req: s.Sets, home: in, most: s.NodeBounds()}
	if g != nil {
		site.stage = *g
	}
	return site
}

// placeStages tries the stages of a shape in order.
func (f *Finder) placeStages(site *Site, s *shape.Shape) ([]inventory.Alloc, bool) {
	stages := s.Stages
	if len(site.req) > 1 || site.req[0].Count > 1 {
		stages = s.Gangs
	}
	for i := range stages {
		if site.r.In.Asleep() > 0 {
			site.awake = true
			if f.placeStage(site, &stages[i]) {
				return site.allocs, true
			}
			if site.awake = false; site.r.SkipSleeping {
				continue
			}
		}
		if f.placeStage(site, &stages[i]) {
			return site.allocs, true
		}
	}
	return nil, false
}

func (f *Finder) placeStage(site *Site, g *shape.Stage) bool {
	if site.r.Blocked != nil {
		if g = g.Without(site.r.Blocked); g == nil {
			return false
		}
	}
	if !enoughFree(site, g) {
		return false
	}
	site.stage, site.within = *g, inventory.Domain{}
	mark := site.r.In.Mark()
	site.allocs = f.found[:0]
	ok := site.r.Placer.Place(site)
	f.found = site.allocs
	if !ok {
		site.r.In.Rollback(mark)
	}
	return ok
}

// enoughFree is a quick necessary condition: enough GPUs are free, and enough of them on single
// nodes for the tasks of a gang.
func enoughFree(site *Site, g *shape.Stage) bool {
	need := 0
	for i := range site.req {
		r := &site.req[i].Request
		if r.Fractional() || r.Profile != "" {
			return true
		}
		need += site.req[i].Count * r.GPUs
	}
	free := 0
	for _, ci := range g.Classes {
		if g.GPUs.Has(ci) {
			free += site.r.In.Classes()[ci].Free()
		}
	}
	if r := &site.req[0]; free < need || len(site.req) > 1 || r.Count == 1 || r.Request.GPUs < 2 {
		return free >= need
	}
	return g.HoldTasks(site.r.In, site.req[0].Request.GPUs, site.req[0].Count)
}

// Fits reports whether there is room for a job at its smallest size.
func (f *Finder) Fits(r Request, j *job.State, s *shape.Shape) bool {
	mark := r.In.Mark()
	_, ok := f.Place(r, j, s, s.Min)
	r.In.Rollback(mark)
	return ok
}
