package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// giveTenure lets a job have something: it shares nothing with those that wait.
func (e *Engine) giveTenure(j *job.State) {
	if j.Tenure == &e.noTenure {
		j.Tenure = &job.Tenure{}
	}
}

// reweigh notes what an hour of the GPUs counts for that a job has got.
func (e *Engine) reweigh(j *job.State) {
	weight := cluster.Whole
	if model := e.st.ModelOf(j.Allocs); model != nil && model.Weight > 0 {
		weight = model.Weight
	}
	if weight != j.Weight {
		j.Weighted, j.Unweighted, j.Weight = j.ServiceAt(e.w.Now), j.AttainedAt(e.w.Now), weight
	}
}

// accrue brings the counters up to now.
func (e *Engine) accrue(j *job.State) {
	e.plan.Serve(j)
	j.Attained, j.Ran, j.Done = j.AttainedAt(e.w.Now), j.RanAt(e.w.Now), j.DoneAt(e.w.Now)
	j.Acc = e.w.Now
}

// wake is what a suspended job goes on with where it starts: with what it has in
// memory, or elsewhere from its last checkpoint.
func (e *Engine) wake(j *job.State) {
	switch {
	case j.Frozen == nil:
		j.ResidentOnGPU = false
	case inventory.SamePlace(j.Frozen, j.Allocs):
		j.Done = max(j.Done, j.Asleep)
		e.freeze(j, nil, 0)
	default:
		j.ResidentOnGPU = false
		e.loseMemory(j)
	}
}

// loseMemory is the loss of what a suspended job had in memory.
func (e *Engine) loseMemory(j *job.State) {
	if j.Frozen != nil {
		j.Done = max(j.Done, j.Asleep)
		j.Done, j.Home = j.Done-j.UnsavedAt(0), nil
		e.freeze(j, nil, 0)
	}
}

// freeze notes where the memory of a suspended job is and how much useful work is in it;
// nil: it has none any more. Nodes count the jobs that have memory there.
func (e *Engine) freeze(j *job.State, at []inventory.Alloc, work time.Duration) {
	if j.Frozen == nil && at == nil {
		return
	}
	e.st.Thaw(j.Frozen)
	e.st.Freeze(at)
	j.Frozen, j.Asleep = at, work
}
