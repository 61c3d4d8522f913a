package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// Elastic jobs start as large as fits and grow into devices that no job waits for.
// What they hold above their minimum is lent: a job that cannot start takes it
// back, task by task, before anything is preempted.

// grow gives idle devices to elastic jobs, in order, when no job waits for room.
func (e *Engine) grow() {
	if e.elastic == 0 || e.line.Len() > 0 && !e.plan.Active() { // a plan has weighed the waiting jobs
		return
	}
	ids := e.ids[:0]
	e.running.ByKey().Walk(func(it order.Item) bool {
		if j := e.jobs[it.ID]; j.State == job.Running && !j.Resizing {
			if _, most := e.plan.Bounds(j); j.Tasks < most {
				ids = append(ids, it.ID)
			}
		}
		return true
	})
	e.ids = ids
	for _, id := range ids {
		e.growJob(e.jobs[id])
	}
}

func (e *Engine) growJob(j *job.State) {
	s := e.shapes.At(j.Shape)
	open := e.growStage(j, s)
	var home inventory.Domain
	if s.Topo.Required && s.Topo.Level != cluster.LevelAny {
		home = e.st.HomeOf(j.Allocs, s.Topo.Level)
	}
	one := []cluster.TaskSet{{Count: 1, Request: s.Sets[0].Request}}
	var more []inventory.Alloc
	tasks, before := int(j.Tasks), e.st.Mark()
	e.leavers.TakeResidues() // it grows into what is free now only
	_, most := e.plan.Bounds(j)
	for tasks < int(most) {
		if !e.limits.Allows(j, e.shapes.MilliOf(s, tasks+1)-e.shapes.MilliOf(s, int(j.Tasks))) {
			break
		}
		r := e.anywhere()
		r.Reserved = e.resv.Limits(j, placement.Candidate)
		has := append(more[:len(more):len(more)], j.Allocs...)
		mark := e.st.Mark()
		allocs, ok := e.find.PlaceMore(r, j, s, &open, one, home, has)
		if !ok {
			break
		}
		if e.leavers.Contested(allocs) {
			e.st.Rollback(mark)
			break
		}
		more, tasks = append(more, allocs...), tasks+1
	}
	e.st.Rollback(before)
	if len(more) == 0 {
		return
	}
	e.st.TakeAll(more)
	e.limits.Charge(j, -1)
	e.st.Commit()
	e.accrue(j)
	j.Allocs = append(append([]inventory.Alloc(nil), j.Allocs...), more...)
	e.resized(j, tasks)
}

// growStage is where a running job's first set may grow: if it has GPUs, on
// nodes of the model that it has.
func (e *Engine) growStage(j *job.State, s *shape.Shape) shape.Stage {
	model := ""
	for i := range j.Allocs {
		if a := &j.Allocs[i]; a.GPUs != 0 {
			model = e.st.Classes()[e.st.Nodes()[a.Node].Class()].Model().Name
			break
		}
	}
	g := shape.Stage{GPUs: s.Suits[0]}
	for ci := range e.st.Classes() {
		if s.Suits[0].Has(int32(ci)) && (s.Sets[0].Request.GPUs == 0 || e.st.Classes()[ci].Model().Name == model) {
			g.Classes = append(g.Classes, int32(ci))
		}
	}
	return g
}

func (e *Engine) resized(j *job.State, tasks int) {
	e.touch(j)
	s := e.shapes.Get(j.Shape)
	j.Tasks, j.Devices = int32(tasks), int32(s.Devices(tasks))
	j.Milli = e.heldMilli(j)
	e.limits.Charge(j, 1)
	e.st.Commit()
	e.gotMore()
	e.running.Watch(j) // what it attains grows at another rate
	e.links.Changed(j)
	j.Resizing = true // one at a time, so that the driver's answer is to this one
	e.actions = append(e.actions, Action{Type: Resize, Job: j.Spec.ID, Allocs: j.Allocs, For: cluster.NoJob})
}

// cut is what a job could give back.
type cut struct {
	v          *job.State
	keep, gone []inventory.Alloc
}

// shrinkFor takes back surplus tasks of elastic jobs until the job fits.
func (e *Engine) shrinkFor(r placement.Request, j *job.State) bool {
	if e.elastic == 0 {
		return false
	}
	s := e.shapes.At(j.Shape)
	ids := e.ids[:0]
	e.running.ByKey().WalkBack(func(it order.Item) bool {
		v := e.jobs[it.ID]
		if v.State == job.Running && v.Tier() >= j.Spec.Tier && !v.Resizing {
			if least, _ := e.plan.Bounds(v); v.Tasks > least {
				ids = append(ids, it.ID)
			}
		}
		return true
	})
	e.ids = ids
	mark := e.st.Mark()
	var cuts []cut
	for _, id := range ids {
		v := e.jobs[id]
		c := cut{v: v, keep: append([]inventory.Alloc(nil), v.Allocs...)}
		least, _ := e.plan.Bounds(v)
		for n := v.Tasks; n > least; n-- {
			gone := inventory.SplitTask(&c.keep, &e.shapes.Get(v.Shape).Sets[0].Request)
			if gone == nil {
				break
			}
			e.st.ReleaseAll(gone)
			c.gone = append(c.gone, gone...)
			allocs, ok := e.find.Place(r, j, s, s.Min)
			if !ok {
				continue
			}
			for _, c := range cuts {
				// what was not needed after all is kept
				if !e.speeds.BearsAll(c.gone) || !e.st.TakeBack(c.gone, false, false) {
					e.shrink(c.v, c.keep, c.gone)
				}
			}
			e.shrink(c.v, c.keep, c.gone)
			e.st.Commit()
			e.book(j, allocs, inventory.TasksIn(allocs))
			return true
		}
		cuts = append(cuts, c)
	}
	e.st.Rollback(mark)
	return false
}

// shrink books that a job gives back part of what it holds.
func (e *Engine) shrink(v *job.State, keep, gone []inventory.Alloc) {
	if len(gone) == 0 {
		return
	}
	e.limits.Charge(v, -1)
	e.st.Commit()
	e.accrue(v)
	v.Allocs, v.Leaving = keep, gone
	tasks := 0
	for i := range keep {
		if keep[i].Set == 0 {
			tasks += int(keep[i].Tasks)
		}
	}
	for i := range gone {
		e.leavers.Leaves(gone[i].Node, v.Spec.ID)
	}
	e.resized(v, tasks)
	e.epoch++
}

// leftDevices is called when a job that shrank, or that ends, has left devices.
func (e *Engine) leftDevices(j *job.State) {
	e.touch(j)
	for i := range j.Leaving {
		e.leavers.Left(j.Leaving[i].Node, j.Spec.ID)
	}
	j.Leaving, j.Resizing = nil, false
	e.fresh = e.fresh || e.elastic > 0 // an elastic job may grow onto them
	for _, id := range j.Waiters {
		w := e.jobs[id]
		if w.State != job.Placed {
			continue
		}
		e.touch(w)
		if w.Waits--; w.Waits == 0 {
			e.ready = append(e.ready, id)
		}
	}
	j.Waiters, j.Claims = nil, nil
}

// startReady starts the placed jobs whose devices have become free, when all
// that happened at this instant is known: their node may be lost, too.
func (e *Engine) startReady() {
	for _, id := range e.ready {
		if j := e.jobs[id]; j.State == job.Placed && j.Waits == 0 {
			e.start(j)
		}
	}
	e.ready = e.ready[:0]
}
