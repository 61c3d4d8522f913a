package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// An elastic gang that loses some of its tasks goes on with the others if they
// are at least its minimum: nobody has to wait in line again for devices that
// are still there. What it computed since its last checkpoint is lost all the
// same.

// survive shrinks a job to the tasks that do not use the lost devices; false
// if it cannot: another task set is hit, too few are left, it has not begun to
// compute, or it is being resized already.
func (e *Engine) survive(j *jobState, node int32, mask uint64) bool {
	s := &e.shapes[j.shape]
	if j.state != Running || s.min == s.max {
		return false
	}
	same := e.lossNow(j)
	if j.resizing && same < 0 {
		return false
	}
	keep, gone, ok := splitLost(j.allocs, node, mask, s.sets[0].Request.GPUs)
	if !ok || tasksOf(keep) < s.min {
		return false
	}
	e.st.releaseAll(gone)
	e.st.commit()
	if same >= 0 {
		e.actions = slices.Delete(e.actions, same, same+1)
		gone = append(slices.Clone(j.leaving), gone...)
	}
	e.shrink(j, keep, gone)
	e.actions[len(e.actions)-1].Reason = NodeLost
	j.done -= j.unsavedAt(e.now)
	e.rerun(j)
	return true
}

// unshrink gives a job that stops the devices back that it shrank by in this
// very step: nobody will tell it to, so it holds them until it has left them all.
func (e *Engine) unshrink(j *jobState) {
	j.allocs = append(slices.Clone(j.allocs), j.leaving...)
	j.leaving, j.resizing = nil, false
	j.tasks = tasksOf(j.allocs)
	j.devices, j.milli = int32(e.shapes[j.shape].devices(int(j.tasks))), e.heldMilli(j)
}

// lossNow finds the resize that an earlier loss in this same step asks for, or
// -1: the driver gets one action for all of them.
func (e *Engine) lossNow(j *jobState) int {
	return slices.IndexFunc(e.actions, func(a Action) bool {
		return a.Type == Resize && a.Job == j.spec.ID && a.Reason == NodeLost
	})
}

// splitLost divides what a gang holds into what a loss leaves and what it
// takes. The tasks of an allocation have its devices in ascending order. It
// fails where more than tasks of the first set are hit, or a task that has
// several shared devices.
func splitLost(allocs []Alloc, node int32, mask uint64, gpus int) (keep, gone []Alloc, ok bool) {
	for i := range allocs {
		a := allocs[i]
		all := a.Node == node && mask == anyDevice
		switch {
		case !all && (a.Node != node || a.GPUs&mask == 0):
			keep = append(keep, a)
		case a.Set != 0 || a.Share != 0 && gpus > 1:
			return nil, nil, false
		case all || a.Share != 0 || a.Tasks == 1:
			gone = append(gone, a)
		default:
			k, g := a.divide(mask, gpus)
			if k.Tasks > 0 {
				keep = append(keep, k)
			}
			gone = append(gone, g)
		}
	}
	return keep, gone, true
}

// divide splits an allocation of whole devices into the tasks that have none of
// the lost devices and those that have one.
func (a *Alloc) divide(lost uint64, gpus int) (keep, gone Alloc) {
	keep, gone = *a, *a
	keep.GPUs, keep.Tasks, gone.GPUs, gone.Tasks = 0, 0, 0, 0
	for rest := a.GPUs; rest != 0; {
		var task uint64
		for range gpus {
			task |= rest & -rest
			rest &= rest - 1
		}
		to := &keep
		if task&lost != 0 {
			to = &gone
		}
		to.GPUs |= task
		to.Tasks++
	}
	cpu, ram := a.CPU/cluster.Milli(a.Tasks), a.RAM/cluster.MiB(a.Tasks)
	keep.CPU, keep.RAM = cpu*cluster.Milli(keep.Tasks), ram*cluster.MiB(keep.Tasks)
	gone.CPU, gone.RAM = cpu*cluster.Milli(gone.Tasks), ram*cluster.MiB(gone.Tasks)
	return keep, gone
}
