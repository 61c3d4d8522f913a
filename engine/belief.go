package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// Belief is what the engine believes of a job that holds devices: a driver
// compares it with what is really there (driver.Diff).
type Belief struct {
	Job      cluster.JobID
	State    job.Phase         // Starting, Running or Stopping
	Reason   job.StopReason    // Stopping: why
	Resizing bool              // a Resize to Allocs was decided and is not confirmed
	Allocs   []inventory.Alloc // a copy; node numbers are those of Nodes
}

// Beliefs lists the jobs that hold devices, by number. Jobs that wait are not
// listed: nothing of them is to be seen in the world.
func (e *Engine) Beliefs() []Belief {
	var list []Belief
	for _, j := range e.jobs {
		if j != nil && j.Holding() {
			list = append(list, Belief{Job: j.Spec.ID, State: j.State, Reason: j.Reason, Resizing: j.Resizing,
				Allocs: slices.Clone(j.Allocs)})
		}
	}
	return list
}

// Nodes returns the nodes in the order in which they joined, with the state
// and the bad GPUs that the engine believes them to have.
func (e *Engine) Nodes() []cluster.Node { return inventory.Described(&e.st) }

// Carryover is what a job that stops now, for others, has been given, for the one that goes
// on in its place; nil: nothing, or there is no such job.
func (e *Engine) Carryover(id cluster.JobID, now cluster.Time) *Carryover {
	j := e.job(id)
	if j == nil {
		return nil
	}
	return j.CarryoverAt(now, e.plan.ServedAt(j, now))
}

// Fragmentation says how much of the free GPUs the tasks that were submitted
// last could use on average.
func (e *Engine) Fragmentation() inventory.Fragmentation { return e.find.Fragmentation() }

// FragmentationByNode is Fragmentation node by node, in the order of Nodes.
func (e *Engine) FragmentationByNode() []inventory.Fragmentation { return e.find.FragmentationByNode() }

// Spec returns a job as the engine has it; nil if there is none. It must not
// be changed.
func (e *Engine) Spec(id cluster.JobID) *cluster.Job {
	if j := e.job(id); j != nil {
		return j.Spec
	}
	return nil
}
