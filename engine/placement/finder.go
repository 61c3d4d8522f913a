// Package placement says where a job goes: from what is free and a request to what is given, or to nothing. It changes the
// inventory tentatively only: whoever asks commits, or rolls back.
package placement

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// Request is what a search for a place assumes, besides the job.
type Request struct {
	In           *inventory.Store // where it looks
	Placer       Placer
	Reserved     *Slack              // what must be left alone; nil: nothing
	Blocked      *inventory.ClassSet // strict order: classes behind a blocked job; nil: none
	Shut         shape.NodeBits      // ... and nodes behind one that names a set of nodes
	Avoid        *KeepOff            // nodes to keep off; nil: none
	SkipSleeping bool                // do not place on powered-down nodes
	IgnoreUsage  bool                // asking what could ever be: bounds of the moment do not count
}

// Around is what a search must know of jobs, besides what the inventory knows.
type Around interface {
	Jobs() []*job.State   // by number; nil where there is none
	Running() *order.List // those that hold devices, and were not told to leave
	// Shunned is the devices of a node on which there are others beside which the job must not go.
	Shunned(n *inventory.Node, j *job.State) uint64
}

// Finder finds places. It has what searches share: what waiting jobs ask for, and memory that is used again. One search
// goes on at a time.
type Finder struct {
	World   *sched.World
	Sharing cluster.Sharing
	Around  Around

	demand inventory.Demand
	wanted slicesWanted
	site   Site
	found  []inventory.Alloc // of the last search
	sets   []cluster.TaskSet
	memory any // what a placer needs meanwhile, a *T
	key    []byte
}

// Place runs the placer for the gang at one size, stage by stage. What it returns is good until the next search.
func (f *Finder) Place(r Request, j *job.State, s *shape.Shape, tasks int32) ([]inventory.Alloc, bool) {
	sets := s.Sets
	if int(tasks) != sets[0].Count {
		f.sets = append(f.sets[:0], s.Sets...)
		f.sets[0].Count = int(tasks)
		sets = f.sets
	}
	f.site = Site{f: f, r: r, job: j, req: sets, allocs: f.found[:0], most: s.NodeBounds()}
	return f.placeStages(&f.site, s)
}

// PlaceAgain places the job where it was promised to run, if that is free.
// Plans are made anew in every pass; were a job planned on other nodes at the
// same time as before, or did it start on others, those behind it might not find
// what they were promised.
func (f *Finder) PlaceAgain(r Request, j *job.State, s *shape.Shape) ([]inventory.Alloc, bool) {
	if len(j.Plan) == 0 || j.Home != nil {
		return nil, false
	}
	site := &Site{f: f, r: r, job: j, req: s.Sets, allocs: f.found[:0], most: s.NodeBounds()}
	mark := r.In.Mark()
	for i := range j.Plan {
		a := &j.Plan[i]
		node, set, n := int(a.Node), int(a.Set), int(a.Tasks)
		if a.Share != 0 || !r.In.Nodes()[node].TakesJobs() || site.Room(node, set, n) < n {
			r.In.Rollback(mark)
			return nil, false
		}
		site.Take(node, set, n)
	}
	f.found = site.allocs
	if l := s.Topo.Level; s.Topo.Required && l != cluster.LevelAny && !r.In.Together(site.allocs, l) {
		r.In.Rollback(mark) // on the same node, but not on the same island of it
		return nil, false
	}
	return site.allocs, true
}

// PlaceWithin is Place within a domain.
func (f *Finder) PlaceWithin(r Request, j *job.State, s *shape.Shape, tasks int32, d inventory.Domain) ([]inventory.Alloc, bool) {
	sets := s.Sets
	if int(tasks) != sets[0].Count {
		sets = slices.Clone(sets)
		sets[0].Count = int(tasks)
	}
	return f.placeStages(&Site{f: f, r: r, job: j, req: sets, home: d, most: s.NodeBounds()}, s)
}

// PlaceMore places more tasks of a running job on nodes that are awake, within a domain, beside what it has.
func (f *Finder) PlaceMore(r Request, j *job.State, s *shape.Shape, g *shape.Stage, sets []cluster.TaskSet, in inventory.Domain,
	has []inventory.Alloc) ([]inventory.Alloc, bool) {
	site := &Site{f: f, r: r, job: j, req: sets, home: in, awake: true, most: s.NodeBounds(), has: has}
	ok := f.placeStage(site, g)
	return site.allocs, ok
}

// HomeFits reports whether a suspended job may go back where its memory is, as far as nodes and reservations go.
func (f *Finder) HomeFits(r Request, j *job.State, s *shape.Shape) bool {
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

// Keep returns a copy in the memory in which searches return what they found: it is good until the next one.
func (f *Finder) Keep(allocs []inventory.Alloc) []inventory.Alloc {
	f.found = append(f.found[:0], allocs...)
	return f.found
}

// Look is a site within a domain for looking at the room that there is for a job. g: on which classes; nil: it is not
// asked for nodes.
func (f *Finder) Look(r Request, j *job.State, s *shape.Shape, in inventory.Domain, g *shape.Stage) Site {
	site := Site{f: f, r: r, job: j, req: s.Sets, home: in, most: s.NodeBounds()}
	if g != nil {
		site.stage = *g
	}
	return site
}

// placeStages tries a shape's stages, one after the other.
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

// enoughFree is a quick necessary condition: so many GPUs are free at all, and a gang's
// tasks, each of which is on one node, find them there.
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
