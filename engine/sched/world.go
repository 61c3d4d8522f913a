// Package sched is the contract between the engine and policies: their interface, and the views of jobs
// and cluster that they get. Policies import it instead of the engine.
package sched

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/quota"
)

// Names of the rooms below that policies know as the contract's.

// Key orders jobs: lower first, compared from the left.
type Key = order.Key

// Kind is a GPU model, and how much of it there is.
type Kind = inventory.Kind

// Target is what a plan gives a job.
type Target = job.Target

// Slice is a MIG instance of a node's GPU.
type Slice = job.Slice

// DeadlineAnswer is a policy's decision on a job's deadline.
type DeadlineAnswer = job.DeadlineAnswer

// The answers.
const (
	DeadlineUnanswered = job.DeadlineUnanswered
	DeadlineAccepted   = job.DeadlineAccepted
	DeadlineDeclined   = job.DeadlineDeclined
)

// World is the data behind the views. It belongs to the engine, which keeps it up to date; policies
// see it only through View and JobView. It is a concrete struct because keys are computed for every
// job: an interface would take twice as long, and allocate.
type World struct {
	Now      cluster.Time
	Capacity cluster.Milli // of all healthy GPUs of nodes that are not down
	CPU      cluster.Milli // of all nodes that declare it
	RAM      cluster.MiB   // likewise
	Traits   Traits        // of the policy
	Store    *inventory.Store
	Shapes   *shape.Table
	Tree     *quota.Tree
	// QueuesMatter: a queue has a guarantee, a limit or a cap, so that no job may count for more than it does.
	QueuesMatter bool
	Speeds       Speeds // nil: none are declared
	Past         *Past
	Plan         *PlanMemory
	Pools        *Pools
	Oracle       Oracle
}

// View is the view of the world for policies.
func (w *World) View() View { return View{w} }

// Job is the view of a job for policies.
func (w *World) Job(j *job.State) JobView { return JobView{w, j} }

// Divided reports whether plans may place the job on an instance. Such a job is never promoted,
// however long it waits: it would then need a whole GPU, and there may be none.
func (w *World) Divided(j *job.State) bool {
	return w.Traits.Divides && w.Shapes.Get(j.Base).Divides()
}

// AskedMilli is the milli-GPU that a job asks for at full size; a MIG slice
// counts by its compute share on that of the possible models where it is
// largest, so that what a quota allows never turns out to be more.
func (w *World) AskedMilli(j *job.State) cluster.Milli {
	s := w.Shapes.At(j.Shape)
	return w.Shapes.MilliOf(s, int(s.Max))
}

// LeastMilli is the least that the job can start with: its smallest size, or
// where it is suspended what it held.
func (w *World) LeastMilli(j *job.State) cluster.Milli {
	if j.Home == nil {
		s := w.Shapes.At(j.Shape)
		return w.Shapes.MilliOf(s, int(s.Min))
	}
	return inventory.MilliIn(j.Home)
}

// Elastic reports whether a job may be resized.
func (w *World) Elastic(j *job.State) bool {
	s := w.Shapes.At(j.Base)
	return s.Min != s.Max
}

// LimitOf is the job's time limit: its own, else its partition's default; 0: none.
func (w *World) LimitOf(j *job.State) time.Duration {
	if j.Spec.Limit > 0 {
		return j.Spec.Limit
	}
	return w.Shapes.DefaultTime(j.Spec.Partitions)
}

// EndOf is when a job that holds devices is expected to end.
func (w *World) EndOf(j *job.State) cluster.Time {
	if j.State == job.Placed {
		return w.Now.Add(j.ExpectedRun(w.LimitOf(j)))
	}
	return j.ExpectedEnd(w.Now)
}

// LeavesHomeAt is from when on a suspended job in line goes wherever there is room, if it has not
// had its devices until then; Never: it has no checkpoint to go on from. Where jobs take turns
// another turn comes, with others beside it: it waits ten times as long.
func (w *World) LeavesHomeAt(j *job.State) cluster.Time {
	c := &j.Spec.Checkpoint
	if j.Home == nil || !j.Eligible || c.None || j.IgnoresCheckpoint {
		return cluster.Never
	}
	wait := max(job.LeastStay, j.UnsavedAt(0)+c.Restart)
	if w.Traits.Round > 0 {
		wait = 10 * min(wait, cluster.MaxDuration/10)
	}
	return j.EligibleSince.Add(wait)
}

// Oracle answers questions of the views that only the engine can answer. The answers change no
// decision, though some are remembered: FairShare adds an unknown user, MayEnter a shape.
type Oracle interface {
	Job(number int32) *job.State
	// FairShare is JobView.FairShare.
	FairShare(j *job.State) int64
	// QueueUse is the CPU and RAM that jobs of a queue hold.
	QueueUse(q int) (cpu cluster.Milli, ram cluster.MiB)
	// Speed is the expected speed of a job, in ppm: as measured, else as declared.
	Speed(j *job.State, gpu string, tasks int) int64
	// SpeedsMeasured reports whether any speed was measured.
	SpeedsMeasured() bool
	// MayEnter is JobView.MayEnter.
	MayEnter(j *job.State, partition string) bool
	HowToStop(j *job.State) job.How
	// Grace is how long a job of a tier has to stop.
	Grace(t cluster.Tier) time.Duration
	// Suspends reports whether jobs of any tier are suspended.
	Suspends() bool
	// Undivided reports whether jobs get whole GPUs whatever a plan says.
	Undivided() bool
}

// PlanMemory is what is kept from the last plan.
type PlanMemory struct {
	Last    cluster.Time // when it was made; 0: there was none
	Memo    []int64      // the policy's memo
	Drawn   []*job.State // by the plan in the making, from pools
	targets []job.Target // memory for the next plan
	scratch any          // memory for the policy, a *[]T or a *T
}

// Pools is the pools from which plans draw, by number.
type Pools struct {
	Lists []order.List
	open  []Pool
}
