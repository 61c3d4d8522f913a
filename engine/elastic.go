package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
)

// Elastic jobs start as large as fits and grow into what nobody waits for.
// What they hold above their minimum is lent: a job that cannot start takes it
// back, task by task, before anything is preempted.

// grow gives idle devices to elastic jobs, in order, when nobody waits for room.
func (e *Engine) grow() {
	if e.elastic == 0 || e.pending > 0 && e.plans.planner == nil { // a plan has weighed who waits
		return
	}
	ids := e.scratch.ids[:0]
	e.byKey().Walk(func(it order.Item) bool {
		if j := e.jobs[it.ID]; j.state == Running && j.tasks < e.mostTasks(j) && !j.resizing {
			ids = append(ids, it.ID)
		}
		return true
	})
	e.scratch.ids = ids
	for _, id := range ids {
		e.growJob(e.jobs[id])
	}
}

func (e *Engine) growJob(j *jobState) {
	s := e.shapeAt(j.shape)
	open := e.growStage(j, s)
	var home inventory.Domain
	if s.topo.Required && s.topo.Level != cluster.LevelAny {
		home = e.st.HomeOf(j.allocs, s.topo.Level)
	}
	one := []cluster.TaskSet{{Count: 1, Request: s.sets[0].Request}}
	var more []inventory.Alloc
	tasks, before := int(j.tasks), e.st.Mark()
	e.takeLeaving() // it grows into what is free now only
	for tasks < int(e.mostTasks(j)) {
		if e.limits.byQueue && e.overQuota(j, e.milliOf(s, tasks+1)-e.milliOf(s, int(j.tasks))).code != notRefused {
			break
		}
		r := e.request()
		r.reserved = e.reserved(j)
		has := append(more[:len(more):len(more)], j.allocs...)
		site := &Site{request: r, e: e, job: j, req: one, home: home, awake: true, most: s.bounds(), has: has}
		mark := e.st.Mark()
		if !e.placeStage(site, &open) {
			break
		}
		if e.contested(site.allocs) {
			e.st.Rollback(mark)
			break
		}
		more, tasks = append(more, site.allocs...), tasks+1
	}
	e.st.Rollback(before)
	if len(more) == 0 {
		return
	}
	e.st.TakeAll(more)
	e.charge(j, -1)
	e.st.Commit()
	e.accrue(j)
	j.allocs = append(append([]inventory.Alloc(nil), j.allocs...), more...)
	e.resized(j, tasks)
}

// growStage is where a running job's first set may grow: if it has GPUs, on
// nodes of the model that it has.
func (e *Engine) growStage(j *jobState, s *shape) stage {
	model := ""
	for i := range j.allocs {
		if a := &j.allocs[i]; a.GPUs != 0 {
			model = e.st.Classes()[e.st.Nodes()[a.Node].Class()].Model().Name
			break
		}
	}
	g := stage{gpus: s.suits[0]}
	for ci := range e.st.Classes() {
		if s.suits[0].Has(int32(ci)) && (s.sets[0].Request.GPUs == 0 || e.st.Classes()[ci].Model().Name == model) {
			g.classes = append(g.classes, int32(ci))
		}
	}
	return g
}

func (e *Engine) resized(j *jobState, tasks int) {
	e.touch(j)
	s := &e.shapes[j.shape]
	j.tasks, j.devices = int32(tasks), int32(s.devices(tasks))
	j.milli = e.heldMilli(j)
	e.charge(j, 1)
	e.st.Commit()
	e.gotMore()
	e.watchKey(j)     // what it attains grows at another rate
	j.resizing = true // one at a time, so that the driver's answer is to this one
	e.actions = append(e.actions, Action{Type: Resize, Job: j.spec.ID, Allocs: j.allocs, For: cluster.NoJob})
}

// goingAllocs is what a job still holds physically although the books have
// promised it on: everything while it stops, the surplus while it shrinks.
func (j *jobState) goingAllocs() []inventory.Alloc {
	if j.state == Stopping && len(j.leaving) == 0 {
		return j.allocs
	}
	if j.state == Stopping {
		return append(j.leaving[:len(j.leaving):len(j.leaving)], j.allocs...)
	}
	return j.leaving
}

// cut is what a job could give back.
type cut struct {
	v          *jobState
	keep, gone []inventory.Alloc
}

// shrinkFor takes back surplus tasks of elastic jobs until the job fits.
func (e *Engine) shrinkFor(j *jobState) bool {
	if e.elastic == 0 {
		return false
	}
	s := e.shapeAt(j.shape)
	ids := e.scratch.ids[:0]
	e.byKey().WalkBack(func(it order.Item) bool {
		v := e.jobs[it.ID]
		if v.state == Running && v.tasks > e.leastTasks(v) && v.tier() >= j.spec.Tier && !v.resizing {
			ids = append(ids, it.ID)
		}
		return true
	})
	e.scratch.ids = ids
	mark := e.st.Mark()
	var cuts []cut
	for _, id := range ids {
		v := e.jobs[id]
		c := cut{v: v, keep: append([]inventory.Alloc(nil), v.allocs...)}
		for n := v.tasks; n > e.leastTasks(v); n-- {
			gone := inventory.SplitTask(&c.keep, &e.shapes[v.shape].sets[0].Request)
			if gone == nil {
				break
			}
			e.st.ReleaseAll(gone)
			c.gone = append(c.gone, gone...)
			allocs, ok := e.placeSize(j, s, s.min)
			if !ok {
				continue
			}
			for _, c := range cuts {
				if !e.bearsAll(c.gone) || !e.takeBack(c.gone, false) { // what was not needed after all is kept
					e.shrink(c.v, c.keep, c.gone)
				}
			}
			e.shrink(c.v, c.keep, c.gone)
			e.st.Commit()
			e.book(j, allocs, tasksOf(allocs))
			return true
		}
		cuts = append(cuts, c)
	}
	e.st.Rollback(mark)
	return false
}

// shrink books that a job gives back part of what it holds.
func (e *Engine) shrink(v *jobState, keep, gone []inventory.Alloc) {
	if len(gone) == 0 {
		return
	}
	e.charge(v, -1)
	e.st.Commit()
	e.accrue(v)
	v.allocs, v.leaving = keep, gone
	tasks := 0
	for i := range keep {
		if keep[i].Set == 0 {
			tasks += int(keep[i].Tasks)
		}
	}
	for i := range gone {
		e.noteLeaver(gone[i].Node, v.spec.ID)
	}
	e.resized(v, tasks)
	e.epoch++
}

// leftDevices is called when a job that shrank, or that ends, has left devices.
func (e *Engine) leftDevices(j *jobState) {
	e.touch(j)
	for i := range j.leaving {
		e.noteLeft(j.leaving[i].Node, j.spec.ID)
	}
	j.leaving, j.resizing = nil, false
	e.fresh = e.fresh || e.elastic > 0 // somebody may grow onto them
	for _, id := range j.waiters {
		w := e.jobs[id]
		if w.state != Placed {
			continue
		}
		e.touch(w)
		if w.waits--; w.waits == 0 {
			e.ready = append(e.ready, id)
		}
	}
	j.waiters, j.claims = nil, nil
}

// startReady starts the placed jobs whose devices have become free, when all
// that happened at this instant is known: their node may be lost, too.
func (e *Engine) startReady() {
	for _, id := range e.ready {
		if j := e.jobs[id]; j.state == Placed && j.waits == 0 {
			e.start(j)
		}
	}
	e.ready = e.ready[:0]
}
