package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// An elastic gang that loses some of its tasks goes on with the others if they
// are at least its minimum: it need not wait in line again for devices that
// are still there. What it computed since its last checkpoint is lost all the
// same.

// survive shrinks a job to the tasks that do not use the lost devices; false
// if it cannot: another task set is hit, too few are left, it has not begun to
// compute, or it is being resized already.
func (e *Engine) survive(j *job.State, node int32, mask uint64) bool {
	s := e.shapes.Get(j.Shape)
	if j.State != job.Running || s.Min == s.Max {
		return false
	}
	same := e.lossNow(j)
	if j.Resizing && same < 0 {
		return false
	}
	keep, gone, ok := inventory.SplitLost(j.Allocs, node, mask, s.Sets[0].Request.GPUs)
	if !ok || inventory.TasksIn(keep) < s.Min {
		return false
	}
	e.st.ReleaseAll(gone)
	e.st.Commit()
	if same >= 0 {
		e.actions = slices.Delete(e.actions, same, same+1)
		gone = append(slices.Clone(j.Leaving), gone...)
	}
	e.shrink(j, keep, gone)
	e.actions[len(e.actions)-1].Reason = job.NodeLost
	j.Done -= j.UnsavedAt(e.w.Now)
	e.running.Update(j)
	return true
}

// stopWhole is stop for a job that may have shrunk in this very step: no Resize is sent for what it shrank by, so it
// holds that until it has left all that it had.
func (e *Engine) stopWhole(j *job.State, how job.How, reason job.StopReason) {
	resize := e.lossNow(j)
	e.stop(j, how, reason, cluster.NoJob)
	if resize < 0 {
		return
	}
	e.actions = slices.Delete(e.actions, resize, resize+1)
	j.Allocs = append(slices.Clone(j.Allocs), j.Leaving...)
	j.Leaving, j.Resizing = nil, false
	e.found.CountHeld(j)
}

// lossNow finds the resize that an earlier loss in this same step asks for, or
// -1: the driver gets one action for all of them.
func (e *Engine) lossNow(j *job.State) int {
	return slices.IndexFunc(e.actions, func(a Action) bool {
		return a.Type == Resize && a.Job == j.Spec.ID && a.Reason == job.NodeLost
	})
}
