package engine

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
)

// preemptFor finds the least harmful set of victims whose devices let the job
// start, tells them to leave and places the job on their devices.
func (e *Engine) preemptFor(r placement.Request, j *job.State) (done, straddled bool) {
	s := e.shapes.At(j.Shape)
	way := e.victims.Find(r, j, s)
	if !way.Fits {
		return false, way.Straddled
	}
	for _, v := range way.Jobs {
		e.running.Remove(v)
	}
	e.st.Commit()
	successors := e.leaveAll(way.Jobs)
	e.epoch++
	for _, v := range way.Jobs {
		if v.State == job.Placed {
			e.forgetPlacement(v)
			e.admit(v)
			continue
		}
		e.markStopping(v, e.howToStop(v), job.Preempted, j.Spec.ID)
	}
	tasks := s.Min
	if j.Home != nil {
		tasks = inventory.TasksIn(way.Allocs)
	}
	e.book(j, way.Allocs, tasks)
	for _, successor := range successors {
		e.takeOver(successor) // now that it is known what quota is left
	}
	return true, way.Straddled
}

func (e *Engine) howToStop(v *job.State) job.How {
	how := e.cfg.Stop[v.Spec.Tier].How
	if how == job.Suspend && !e.mayFreeze(v.Allocs) {
		how = job.Checkpoint
	}
	if how == job.Checkpoint && v.Spec.Checkpoint.None {
		return job.Kill
	}
	return how
}

// mayFreeze reports whether the memory of a job can stay on the devices that it holds while
// it is suspended. It would keep a GPU from being partitioned again, and one on which shares
// under MPS are, or come, has to be MPS' alone (NVIDIA's MPS documentation).
func (e *Engine) mayFreeze(allocs []inventory.Alloc) bool {
	for i := range allocs {
		a := &allocs[i]
		n := &e.st.Nodes()[a.Node]
		for m := a.GPUs; m != 0; m &= m - 1 {
			recut := !n.Stays(bits.TrailingZeros64(m)) && e.st.Classes()[n.Class()].Model().MIG()
			if a.Slots != 0 && recut ||
				a.Slots == 0 && (e.cfg.Spec.Sharing == cluster.MPS || e.cfg.Spec.MIG == cluster.DynamicMIG && recut) {
				return false
			}
		}
	}
	return true
}

// dismiss makes a job leave for no other in particular; false: there is none.
func (e *Engine) dismiss(v *job.State) bool {
	switch {
	case v == nil:
		return false
	case v.State == job.Placed:
		e.unplace(v)
		e.admit(v)
	default:
		e.stop(v, e.howToStop(v), job.Preempted, cluster.NoJob)
	}
	return true
}
