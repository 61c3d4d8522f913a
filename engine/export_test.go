package engine

import (
	"errors"
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/sched"
)

// Names of package job, which tests of this package cannot import: a function of theirs has its name.
type (
	Phase    = job.Phase
	Slice    = job.Slice
	PaceUnit = job.PaceUnit
)

// Forget makes the engine forget everything that it remembers of earlier
// passes only to save work: which shapes and groups failed, and that nothing
// has happened since; and has plans be shown all that wait. From then on it also remembers nothing within a pass.
func (e *Engine) Forget() {
	e.thorough = true
	e.plan.ShowAll()
	e.epoch++
	e.fresh = true
	e.line.Unstick()
	e.leavers.Freed()
	for i := range e.shapes.Count() {
		s := e.shapes.Get(int32(i))
		s.Failed = -1
	}
}

// TimedPasses reports whether the outcome of a pass may depend on the time at
// which it runs: reservations are judged again in each.
func (e *Engine) TimedPasses() bool {
	return e.mode >= sched.EASY || e.cfg.Starvation > 0 || e.resv.HasAdvance()
}

// Believed is what the engine believes of a job's speed, in ppm.
func (e *Engine) Believed(id cluster.JobID, gpu string, tasks int) int64 {
	return e.speeds.Of(e.jobs[id], gpu, tasks)
}

// Attained is the service that the engine counted for a job, in
// milli-GPU-milliseconds.
func (e *Engine) Attained(id cluster.JobID) int64 { return e.jobs[id].AttainedAt(e.w.Now) }

// StateOf is the state of a job; Done if there is none.
func (e *Engine) StateOf(id cluster.JobID) job.Phase {
	if j := e.job(id); j != nil {
		return j.State
	}
	return job.Done
}

// TierOf is the tier of a job as the engine has it: updates may change it.
func (e *Engine) TierOf(id cluster.JobID) cluster.Tier { return e.jobs[id].Spec.Tier }

// Queues lists the queues' names with what they use and may use, in tree order.
func (e *Engine) Queues() (names []string, used, limit []cluster.Milli) {
	for q := 1; q < e.w.Tree.Len(); q++ {
		names = append(names, e.w.Tree.Name(q))
		used = append(used, e.w.Tree.Used(q))
		limit = append(limit, e.w.Tree.Limit(q))
	}
	return names, used, limit
}

// Promise is the start that a reservation promises to a pending job; Never: none.
func (e *Engine) Promise(id cluster.JobID) cluster.Time { return e.jobs[id].Promise }

// Reservations are the promises of the last pass: jobs and times.
func (e *Engine) Reservations() (jobs []cluster.JobID, at []cluster.Time) {
	for _, w := range e.resv.Windows() {
		jobs, at = append(jobs, w.Job), append(at, w.At)
	}
	return jobs, at
}

// SpendBudgets brings all budgets up to now, which asking for quotas does.
func (e *Engine) SpendBudgets() {
	e.limits.SpendAll()
}

// PlanMoves looks for moves for a job in line.
func (e *Engine) PlanMoves(id cluster.JobID) {
	if j := e.job(id); j != nil && j.Eligible && j.Home == nil {
		e.rounds.Plan(e.anywhere(), j)
	} else if j != nil && j.Eligible {
		e.moves.Clear(e.anywhere(), j)
	}
}

// PlanEmptying looks for a node to empty.
func (e *Engine) PlanEmptying(by Compact) {
	e.rounds.Compacting = by
	e.rounds.PlanEmptying(Moves{})
	e.rounds.Compacting = NoCompact
}

// CheckBooks is CheckInvariants without what holds only after a pass.
func (e *Engine) CheckBooks() error {
	return errors.Join(e.checkIdleState(), e.books().Check(), e.rooms().Check(), e.running.Check(),
		e.plan.Check(), e.limits.CheckUse(e.jobs), e.checkWaits())
}

// Rank has the engine rank victims always, or never (its dumb twin).
func (e *Engine) Rank(always bool) {
	e.victims.Mode = preempt.RankNever
	if always {
		e.victims.Mode = preempt.RankAlways
	}
}

// Ranks reports whether the engine ranks victims at present, and how many of them change what they lose as time
// goes by.
func (e *Engine) Ranks() (on bool, growing int) { return e.victims.Ranks() }

// CheckRanking compares the ranking with the jobs that hold devices.
func (e *Engine) CheckRanking() error { return e.victims.Check(e.running.Count()) }

// Dropped reports which lists of jobs with devices are not kept at present: by key, and by expected end.
func (e *Engine) Dropped() (byKey, byEnd bool) { return e.running.Dropped() }

// ReadLists reads those lists, and compares them with these jobs.
func (e *Engine) ReadLists() error {
	e.running.ByKey()
	e.running.ByEnd()
	return e.running.Check()
}

// CheckSpeeds checks that no job is slower beside others in shares of its GPUs than it accepts, as far as that was
// known when it was placed. It does not hold of jobs that were found where they are.
func (e *Engine) CheckSpeeds() error {
	if !e.speeds.KnowsPairs() || e.speeds.PairsMeasured() {
		return nil
	}
	for id := range e.st.Nodes() {
		n := &e.st.Nodes()[id]
		for _, t := range n.Tenants() {
			j := e.jobs[t.Job-1]
			if v := e.speeds.Among(j, e.speeds.Tenants(n, int(t.Device), j)...); v < e.speeds.Least(j) {
				return fmt.Errorf("node %d: job %d is at %d of its speed on device %d, it asks for %d", id, j.Spec.ID,
					v, t.Device, e.speeds.Least(j))
			}
		}
	}
	return nil
}
