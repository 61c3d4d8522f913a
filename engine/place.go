package engine

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
)

// scratch is memory that is reused from step to step.
type scratch struct {
	idle    []int32
	key     []byte
	ids     []int32
	allocs  []inventory.Alloc
	sets    []cluster.TaskSet
	victims victims
	lifted  []*jobState
	site    Site
	placer  any // what a placer needs meanwhile, a *T
	ends    []ending
	items   []order.Item
	booked  []order.Item
	steady  []order.Item
	growing []order.Item
	waiters []*jobState
	due     []timer
	changed []*jobState
}

// askedMilli is the milli-GPU that a job asks for at full size; a MIG slice
// counts by its compute share on that of the possible models where it is
// largest, so that what a quota allows never turns out to be more.
func (e *Engine) askedMilli(j *jobState) cluster.Milli {
	s := e.shapeAt(j.shape)
	return e.milliOf(s, int(s.max))
}

func (e *Engine) milliOf(s *shape, tasks int) cluster.Milli {
	var sum cluster.Milli
	for i := range s.sets {
		n := s.sets[i].Count
		if i == 0 {
			n = tasks
		}
		r := &s.sets[i].Request
		m := r.Milli()
		if r.Profile != "" {
			m = e.sliceMilli(&s.suits[i], r.Profile)
		}
		sum += cluster.Milli(n) * m
	}
	return sum
}

// leastMilli is the least that the job can start with: its smallest size, or
// where it is suspended what it held.
func (e *Engine) leastMilli(j *jobState) cluster.Milli {
	if j.home == nil {
		s := e.shapeAt(j.shape)
		return e.milliOf(s, int(s.min))
	}
	var m cluster.Milli
	for i := range j.home {
		m += j.home[i].Milli()
	}
	return m
}

func (e *Engine) sliceMilli(suits *inventory.ClassSet, profile string) (most cluster.Milli) {
	for ci := range e.st.Classes() {
		model := e.st.Classes()[ci].Model()
		if p, ok := model.Profile(profile); ok && suits.Has(int32(ci)) {
			most = max(most, cluster.Milli(p.Compute)*cluster.Whole/cluster.Milli(model.Compute))
		}
	}
	return most
}

// tryPlace looks for devices for the job, if possible for such as are free now, and books
// them. The allocations are in scratch memory: book copies them. Elastic jobs get the largest
// size between their bounds that fits; tasks is that of the first set.
func (e *Engine) tryPlace(j *jobState) (allocs []inventory.Alloc, tasks int32, ok bool) {
	s := e.shapeAt(j.shape)
	e.stats.Tried++
	if e.mode == Conservative && j.promise <= e.now && j.home == nil && s.min == s.max {
		if allocs, ok = e.placePlanned(e.request(), j, s); ok {
			return allocs, s.max, true
		}
	}
	mark := e.st.Mark()
	if allocs, tasks, ok = e.findPlace(j); ok {
		allocs, tasks = e.preferFree(j, mark, allocs, tasks)
	}
	return allocs, tasks, ok
}

// findPlace is tryPlace in the books as they are.
func (e *Engine) findPlace(j *jobState) (allocs []inventory.Alloc, tasks int32, ok bool) {
	s, r := e.shapeAt(j.shape), e.request()
	if j.home != nil {
		allocs, ok = e.placeHome(r, j)
		return allocs, tasksOf(allocs), ok
	}
	if s.min == s.max {
		allocs, ok = e.placeFor(r, j, s, s.max)
		return allocs, s.max, ok
	}
	lo, hi := s.min, s.max // binary search: less always fits where more does
	r.skipSleeping = e.st.Asleep() > 0
	_, ok = e.placeTrial(r, j, s, lo)
	if !ok && r.skipSleeping { // no node is woken for what a job does not need
		r.skipSleeping, hi = false, lo
		_, ok = e.placeTrial(r, j, s, lo)
	}
	if !ok {
		return nil, 0, false
	}
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if _, ok := e.placeTrial(r, j, s, mid); ok {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	allocs, ok = e.placeFor(r, j, s, lo)
	return allocs, lo, ok
}

// placeHome puts a suspended job back where its memory is.
func (e *Engine) placeHome(r request, j *jobState) ([]inventory.Alloc, bool) {
	back := Site{request: r, e: e, job: j, req: j.spec.Tasks, most: e.shapeAt(j.shape).bounds()}
	for i := range j.home {
		a := &j.home[i]
		if !e.st.Nodes()[a.Node].TakesJobs() || back.most != nil && back.bounded(a.Node) < int(a.Tasks) {
			return nil, false
		}
		if r.reserved != nil {
			asks := &j.spec.Tasks[a.Set].Request
			if r.reserved.room(a.Node, back.bound(a.Node), asks, int(a.Tasks)) < int(a.Tasks) {
				return nil, false
			}
		}
		back.allocs = j.home[:i+1]
	}
	if !e.bearsAll(j.home) || !e.takeBack(j.home, false) {
		return nil, false
	}
	e.scratch.allocs = append(e.scratch.allocs[:0], j.home...)
	return e.scratch.allocs, true
}

// tasksOf counts the tasks of the first set.
func tasksOf(allocs []inventory.Alloc) (n int32) {
	for i := range allocs {
		if allocs[i].Set == 0 {
			n += allocs[i].Tasks
		}
	}
	return n
}

func (e *Engine) placeTrial(r request, j *jobState, s *shape, tasks int32) ([]inventory.Alloc, bool) {
	mark := r.in.Mark()
	allocs, ok := e.placeFor(r, j, s, tasks)
	r.in.Rollback(mark)
	return allocs, ok && !e.limits.byQueue || ok && e.overQuota(j, e.milliOf(s, int(tasks))).code == 0
}

// request is what a search for a place assumes, besides the job.
type request struct {
	in           *inventory.Store // where it looks
	placer       Placer
	reserved     *holds              // what must be left alone; nil: nothing
	blocked      *inventory.ClassSet // strict order: classes behind a blocked job; nil: none
	shut         nodeBits            // ... and nodes behind one that names a set of nodes
	avoid        *shyness            // nodes to keep off; nil: none
	skipSleeping bool                // do not place on powered-down nodes
	ignoreUsage  bool                // asking what could ever be: bounds of the moment do not count
}

// request is what a pass assumes at present.
func (e *Engine) request() request {
	r := e.anywhere()
	r.reserved, r.blocked = e.held, e.blockedBy
	if r.blocked != nil {
		r.shut = e.ps.shut
	}
	return r
}

// anywhere assumes nothing.
func (e *Engine) anywhere() request { return request{in: &e.st, placer: e.cfg.Placer} }

// placeSize is placeFor as a pass assumes at present.
func (e *Engine) placeSize(j *jobState, s *shape, tasks int32) ([]inventory.Alloc, bool) {
	return e.placeFor(e.request(), j, s, tasks)
}

// placeFor runs the placer for the gang at one size, stage by stage.
func (e *Engine) placeFor(r request, j *jobState, s *shape, tasks int32) ([]inventory.Alloc, bool) {
	if j.home != nil {
		return e.placeHome(r, j)
	}
	sets := s.sets
	if int(tasks) != sets[0].Count {
		e.scratch.sets = append(e.scratch.sets[:0], s.sets...)
		e.scratch.sets[0].Count = int(tasks)
		sets = e.scratch.sets
	}
	e.scratch.site = Site{request: r, e: e, job: j, req: sets, allocs: e.scratch.allocs[:0], most: s.bounds()}
	return e.placeStages(&e.scratch.site, s)
}

// placeStages tries a shape's stages, one after the other.
func (e *Engine) placeStages(site *Site, s *shape) ([]inventory.Alloc, bool) {
	stages := s.stages
	if len(site.req) > 1 || site.req[0].Count > 1 {
		stages = s.gangs
	}
	for i := range stages {
		if site.in.Asleep() > 0 {
			site.awake = true
			if e.placeStage(site, &stages[i]) {
				return site.allocs, true
			}
			if site.awake = false; site.skipSleeping {
				continue
			}
		}
		if e.placeStage(site, &stages[i]) {
			return site.allocs, true
		}
	}
	return nil, false
}

func (e *Engine) placeStage(site *Site, g *stage) bool {
	if site.blocked != nil {
		if g = g.without(site.blocked); g == nil {
			return false
		}
	}
	if !enoughFree(site, g) {
		return false
	}
	site.stage, site.within = *g, inventory.Domain{}
	mark := site.in.Mark()
	site.allocs = e.scratch.allocs[:0]
	ok := site.placer.Place(site)
	e.scratch.allocs = site.allocs
	if !ok {
		site.in.Rollback(mark)
	}
	return ok
}

// without is the stage without some classes; nil if a task set has none left.
func (g *stage) without(blocked *inventory.ClassSet) *stage {
	open := func(classes []int32) []int32 {
		list := classes[:0:0]
		for _, ci := range classes {
			if !blocked.Has(ci) {
				list = append(list, ci)
			}
		}
		return list
	}
	o := stage{classes: open(g.classes), gpus: g.gpus.Minus(blocked)}
	if len(o.classes) == 0 {
		return nil
	}
	for i := range g.sets {
		o.sets = append(o.sets, open(g.sets[i]))
		if len(o.sets[i]) == 0 {
			return nil
		}
	}
	return &o
}

// enoughFree is a quick necessary condition: so many GPUs are free at all, and a gang's
// tasks, each of which is on one node, find them there.
func enoughFree(site *Site, g *stage) bool {
	need := 0
	for i := range site.req {
		r := &site.req[i].Request
		if r.Fractional() || r.Profile != "" {
			return true
		}
		need += site.req[i].Count * r.GPUs
	}
	free := 0
	for _, ci := range g.classes {
		if g.gpus.Has(ci) {
			free += site.in.Classes()[ci].Free()
		}
	}
	if r := &site.req[0]; free < need || len(site.req) > 1 || r.Count == 1 || r.Request.GPUs < 2 {
		return free >= need
	}
	return g.holdTasks(site.in, site.req[0].Request.GPUs, site.req[0].Count)
}

// holdTasks reports whether the nodes of a stage have so many times so many free GPUs on one node.
func (g *stage) holdTasks(in *inventory.Store, gpus, tasks int) bool {
	for _, ci := range g.classes {
		if !g.gpus.Has(ci) {
			continue
		}
		c := &in.Classes()[ci]
		for k := len(c.Buckets()) - 1; k >= gpus; k-- {
			if tasks -= c.Buckets()[k].Len() * (k / gpus); tasks <= 0 {
				return true
			}
		}
	}
	return false
}

// book gives the placed devices to the job: it starts, or waits for those who
// are told to leave them.
func (e *Engine) book(j *jobState, allocs []inventory.Alloc, tasks int32) {
	if j.state != Pending {
		panic("engine: a job that is not pending is placed")
	}
	e.dequeue(j)
	e.give(j)
	j.allocs = append([]inventory.Alloc(nil), allocs...)
	j.home = nil
	s := &e.shapes[j.shape]
	j.tasks = tasks
	j.milli = e.heldMilli(j)
	j.devices = int32(s.devices(int(tasks)))
	e.reweigh(j)
	e.charge(j, 1)
	e.st.Commit()
	e.gotMore()
	e.stats.Placed++
	j.state = Placed
	j.promise, j.plan = cluster.Never, nil
	e.include(j)
	e.waitForLeavers(j)
	if j.waits == 0 {
		e.start(j)
		return
	}
	j.waited = true
	e.list(j)
}

// list and unlist keep the lists of jobs that hold devices.
func (e *Engine) list(j *jobState) {
	e.touch(j)
	j.key = e.runItem(j)
	e.running.insert(j.key)
	e.enrank(j)
	e.tail.came(j)
	j.endKey = order.Item{Key: order.Key{int64(e.endOf(j))}, ID: int32(j.spec.ID)}
	e.ends.insert(j.endKey)
	e.holding[j.tier()]++
	e.notePlaced(j)
}

// notePlaced notes a listed job that waits for its devices.
func (e *Engine) notePlaced(j *jobState) {
	if j.state == Placed {
		e.placed = append(e.placed, j)
		j.inPlaced = int32(len(e.placed))
	}
}

func (e *Engine) unlist(j *jobState) {
	e.touch(j)
	e.derank(j)
	e.running.remove(j.key)
	e.ends.remove(j.endKey)
	e.holding[j.tier()]--
	if j.inPlaced > 0 {
		last := e.placed[len(e.placed)-1]
		e.placed[j.inPlaced-1], last.inPlaced = last, j.inPlaced
		e.placed, j.inPlaced = e.placed[:len(e.placed)-1], 0
	}
}

// endOf is when a listed job is expected to end.
func (e *Engine) endOf(j *jobState) cluster.Time {
	if j.state == Placed {
		return e.now.Add(j.expectedRun(e.limitOf(j)))
	}
	return j.expectedEnd(e.now)
}

func (s *shape) devices(tasks int) int {
	n := 0
	for i := range s.sets {
		c := s.sets[i].Count
		if i == 0 {
			c = tasks
		}
		n += c * s.sets[i].Request.GPUs
	}
	return n
}

// heldMilli is what the job's allocations count for.
func (e *Engine) heldMilli(j *jobState) cluster.Milli { return inventory.MilliIn(j.allocs) }

// start emits the Start of a job whose devices are free.
func (e *Engine) start(j *jobState) {
	before, waited := j.key.Key[0], j.waited
	if waited {
		e.unlist(j)
		j.waited = false
	}
	j.state = Starting
	e.wake(j)
	j.started, j.acc, j.rate = e.now, e.now, 0
	j.nextKey = 0 // timers of an earlier run are void
	j.among, j.slow = nil, 0
	j.firstStart = min(j.firstStart, e.now)
	j.gen++
	j.limitAt = cluster.Never
	if l := e.limitOf(j); l > 0 {
		j.limitAt = e.now.Add(l)
		e.timers.push(timer{j.limitAt, timerLimit, int32(j.spec.ID), j.gen})
	}
	if e.cfg.MinRuntime > 0 {
		e.timers.push(timer{e.now.Add(e.cfg.MinRuntime), timerSafe, int32(j.spec.ID), j.gen})
	}
	e.watchSettled(j)
	e.list(j)
	if waited && e.traits.Preempts && j.key.Key[0] > before {
		e.epoch++ // while it waited for its devices others came closer: it may be a victim now
	}
	e.watchKey(j)
	e.actions = append(double(e.actions), Action{Type: Start, Job: j.spec.ID, Allocs: j.allocs, For: cluster.NoJob, Yield: j.yields()})
}

// limitOf is the job's time limit: its own, else its partition's default.
func (e *Engine) limitOf(j *jobState) time.Duration {
	if j.spec.Limit > 0 || len(e.parts) == 0 {
		return j.spec.Limit
	}
	mask := e.partMask(j.spec.Partitions)
	for i := range e.parts {
		if mask>>i&1 == 1 && e.parts[i].spec.DefaultTime > 0 {
			return e.parts[i].spec.DefaultTime
		}
	}
	return 0
}

// runItem is a holding job's place in the order of victims.
func (e *Engine) runItem(j *jobState) order.Item {
	it := order.Item{Key: e.cfg.Policy.Key(View{e}, JobView{e, j}), Submit: j.spec.Submit, ID: int32(j.spec.ID)}
	if e.traits.Falling {
		it.Key[0] = order.AddSat(it.Key[0], int64(e.now))
	}
	return it
}

// rerun books a change of a running job's key.
func (e *Engine) rerun(j *jobState) {
	e.touch(j)
	if it := e.runItem(j); it != j.key {
		e.derank(j)
		e.running.remove(j.key)
		j.key = it
		e.running.insert(it)
		e.enrank(j)
	}
	e.tail.came(j)
	e.listEnd(j, int64(e.endOf(j)))
	e.watchKey(j)
}

// relistRunning books that the keys of jobs with devices may be others: with a new plan
// often all of them are.
func (e *Engine) relistRunning() {
	p := &e.plans
	if 8*len(p.aimed) < e.bookedJobs() {
		for _, j := range p.aimed {
			if j.booked() && e.runItem(j) != j.key {
				e.rerun(j)
			}
		}
		return
	}
	e.unrank()
	e.tail.drop()
	e.scratch.items = e.byKey().Rewrite(e.scratch.items, func(old order.Item) order.Item {
		j := e.jobs[old.ID]
		it := e.runItem(j)
		if it == old {
			return old
		}
		e.touch(j)
		j.key = it
		e.listEnd(j, int64(e.endOf(j)))
		e.watchKey(j)
		return it
	})
}

func (e *Engine) watchKey(j *jobState) {
	if e.keyer == nil {
		return
	}
	if at := e.keyer.NextChange(View{e}, JobView{e, j}); at != j.nextKey || at <= e.now {
		j.nextKey = at
		e.keyTimes.push(timer{at, timerKey, int32(j.spec.ID), j.gen})
	}
}

// unbook gives back what a job holds in the books.
func (e *Engine) unbook(j *jobState) {
	e.unlist(j)
	e.st.ReleaseAll(j.allocs)
	e.charge(j, -1)
	e.st.Commit()
	e.part(j)
	e.epoch++
}

// unplace takes back a placement that has not started: nothing is lost.
func (e *Engine) unplace(j *jobState) {
	e.unbook(j)
	e.forgetPlacement(j)
}

// forgetPlacement puts a placed job, already unbooked, back to pending.
func (e *Engine) forgetPlacement(j *jobState) {
	e.freed++
	e.touch(j)
	for i := range j.allocs {
		for _, id := range e.st.Nodes()[j.allocs[i].Node].Stopping() {
			e.stopWaiting(j, e.jobs[id])
		}
	}
	j.allocs, j.waits, j.waited, j.packed, j.state = nil, 0, false, false, Pending
	j.gen++
	s := e.shapeAt(j.shape)
	j.milli, j.tasks, j.devices = e.milliOf(s, int(s.max)), s.max, int32(s.devices(int(s.max)))
}

// stop tells a running job to leave. Its devices are promised on at once; who
// gets them starts when they are really free.
func (e *Engine) stop(j *jobState, how How, reason StopReason, forJob cluster.JobID) {
	e.unbook(j)
	e.markStopping(j, how, reason, forJob)
}

// markStopping is stop for a job that is already unbooked.
func (e *Engine) markStopping(j *jobState, how How, reason StopReason, forJob cluster.JobID) {
	e.touch(j)
	e.accrue(j)
	j.state, j.reason, j.how = Stopping, reason, how
	j.warm = how == Suspend && j.rate > 0 && !j.resizing
	j.gen++
	for i := range j.allocs {
		e.noteLeaver(j.allocs[i].Node, j.spec.ID)
	}
	e.waitBeside(j)
	grace := e.cfg.Stop[j.spec.Tier].Grace
	if reason == NodeLost {
		grace = 0
	}
	if reason == Preempted {
		e.stats.Preempted++
	}
	e.actions = append(double(e.actions), Action{Type: Preempt, Job: j.spec.ID, How: how, Grace: grace, Reason: reason, For: forJob})
}

// noteLeaver notes that a job still holds devices of a node that the books have promised on.
func (e *Engine) noteLeaver(node int32, id cluster.JobID) {
	e.forgetResidue(node)
	e.st.Leaving(node, id)
	if at, known := slices.BinarySearch(e.beingLeft, node); !known {
		e.beingLeft = slices.Insert(e.beingLeft, at, node)
	}
}

// noteLeft is the inverse of noteLeaver.
func (e *Engine) noteLeft(node int32, id cluster.JobID) {
	e.forgetResidue(node)
	e.st.Left(node, id)
	if at, known := slices.BinarySearch(e.beingLeft, node); known && len(e.st.Nodes()[node].Stopping()) == 0 {
		e.beingLeft = slices.Delete(e.beingLeft, at, at+1)
	}
}

func hasID(ids []cluster.JobID, id cluster.JobID) bool {
	for _, v := range ids {
		if v == id {
			return true
		}
	}
	return false
}
