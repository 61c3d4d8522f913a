package engine

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// nodeEvent books a change of a node.
func (e *Engine) nodeEvent(ev *Event) {
	id, ok := e.nodeID[ev.Node]
	if !ok {
		if ev.Type == NodeUp && ev.Spare != nil && e.addNode(*ev.Spare) == nil {
			e.links.NodesChanged()
			e.plan.Reconsider()
			e.capacityChanged()
		}
		return
	}
	n := &e.st.Nodes()[id]
	switch ev.Type {
	case NodeUp:
		if n.Drained() || n.GivenBack() { // a drain outlasts a reboot
			e.setNode(id, cluster.Draining)
		} else {
			e.setNode(id, cluster.Up)
		}
	case NodeDown:
		e.st.SetAsleep(id, 0)
		e.setNode(id, cluster.Down)
		e.loseHomes(id)
		e.loseJobs(id, ^uint64(0))
	case NodeDrained:
		e.st.SetDrained(id, !ev.Undo)
		switch {
		case !ev.Undo && n.Spec().State == cluster.Up:
			e.setNode(id, cluster.Draining)
			e.displace(id)
		case ev.Undo && n.Spec().State == cluster.Draining && !n.GivenBack():
			e.setNode(id, cluster.Up)
		}
	case GPUBad:
		e.setHealth(id, ev.GPUs, !ev.Undo)
	case NodeResized:
		if ev.Size != nil {
			e.nodeResized(id, ev.Size.CPU, ev.Size.RAM)
		}
	case NodeChanged:
		e.nodeChanged(id, ev.Spare)
		e.links.NodesChanged()
	}
	e.capacityChanged()
}

func (e *Engine) setNode(id int32, s cluster.NodeState) {
	e.st.SetState(id, s)
	e.epoch++
	e.fresh = true
}

// setHealth marks devices good or bad. Jobs on bad devices are lost.
func (e *Engine) setHealth(id int32, mask uint64, bad bool) {
	mask &= uint64(1)<<e.st.Nodes()[id].Spec().GPUs - 1
	if bad {
		e.loseJobs(id, mask)
		e.st.Spoil(id, mask)
	} else {
		e.st.Heal(id, mask, func(dev uint64) bool { return e.wholeHeld(id, dev) })
	}
	e.epoch++
	e.fresh = true
}

// loseHomes forgets what suspended jobs had on a node: they start again from
// their last checkpoint, anywhere.
func (e *Engine) loseHomes(id int32) {
	if e.st.Nodes()[id].Frozen() == 0 {
		return
	}
	for _, j := range e.jobs {
		if j == nil || !slices.ContainsFunc(j.Frozen, func(a inventory.Alloc) bool { return a.Node == id }) {
			continue
		}
		e.touch(j)
		was := j.Eligible // also without a home, which it gave up with a placement that was taken back
		e.dequeue(j)
		e.loseMemory(j)
		if was {
			e.lineUp(j)
		}
	}
}

// wholeHeld reports whether a job holds the whole device in the books.
func (e *Engine) wholeHeld(id int32, dev uint64) bool {
	held := false
	e.running.ByKey().Walk(func(it order.Item) bool {
		for _, a := range e.jobs[it.ID].Allocs {
			held = held || a.Node == id && a.Share == 0 && a.GPUs&dev != 0
		}
		return !held
	})
	return held || e.destHolds(id, dev)
}

// displace takes the jobs back that were to start on a node.
func (e *Engine) displace(id int32) {
	e.dropDests(id, inventory.AnyDevice)
	var placed []*job.State
	e.running.ByKey().Walk(func(it order.Item) bool {
		if j := e.jobs[it.ID]; j.State == job.Placed && inventory.OnNode(j.Allocs, id) {
			placed = append(placed, j)
		}
		return true
	})
	for _, j := range placed {
		e.unplace(j)
		e.admit(j)
	}
}

// loseJobs stops every job that holds one of the devices. A gang is lost as a
// whole, and requeued as a whole at its old place in the queue, unless it is
// elastic and what is left of it is large enough.
func (e *Engine) loseJobs(id int32, mask uint64) {
	e.dropDests(id, mask)
	ids := e.ids[:0]
	e.running.ByKey().Walk(func(it order.Item) bool {
		for _, a := range e.jobs[it.ID].Allocs {
			if a.Node == id && (a.GPUs&mask != 0 || mask == ^uint64(0)) {
				ids = append(ids, it.ID)
				break
			}
		}
		return true
	})
	e.ids = nil // requeueing may use it
	for _, i := range ids {
		if j := e.jobs[i]; j.Booked() { // else it left with another whose guest it was
			e.loseJob(j, id, mask)
		}
	}
	e.ids = ids
}

// loseJob takes a job off devices that are lost.
func (e *Engine) loseJob(j *job.State, id int32, mask uint64) {
	if j.State == job.Placed {
		e.unplace(j)
		e.admit(j)
		return
	}
	if !e.survive(j, id, mask) {
		e.stopWhole(j, job.Kill, job.NodeLost)
	}
}

// capacityChanged counts the GPUs that there are.
func (e *Engine) capacityChanged() {
	e.plan.JobsChanged()
	e.lending.Recount(e.jobs)
	var m cluster.Milli
	for i := range e.st.Nodes() {
		n := &e.st.Nodes()[i]
		if n.Spec().State != cluster.Down {
			m += cluster.Whole * cluster.Milli(bits.OnesCount64(n.Healthy()))
		}
	}
	if m != e.w.Capacity || m != e.w.Tree.Capacity() {
		e.w.Capacity = m
		e.rekeyed = -1 // keys may be relative to it
		e.w.Tree.SetCapacity(m)
	}
}
