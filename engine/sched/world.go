// Package sched is the contract between the engine and what decides who is next: the policies, and the views of jobs
// and cluster that they are shown. Policies import it instead of the engine.
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

// DeadlineAnswer is what a policy says of a job's deadline.
type DeadlineAnswer = job.DeadlineAnswer

// The answers.
const (
	DeadlineUnanswered = job.DeadlineUnanswered
	DeadlineAccepted   = job.DeadlineAccepted
	DeadlineDeclined   = job.DeadlineDeclined
)

// World is what the views show. It belongs to the engine, which keeps it up to date; policies see it through View and
// JobView only. It is a concrete struct because a key is asked for of every job: behind an interface that would take
// twice as long, and allocate.
type World struct {
	Now      cluster.Time
	Capacity cluster.Milli // of all healthy GPUs of nodes that are not down
	CPU      cluster.Milli // of all nodes that state it
	RAM      cluster.MiB   // likewise
	Traits   Traits        // of the policy
	Store    *inventory.Store
	Shapes   *shape.Table
	Tree     *quota.Tree
	Speeds   Speeds // nil: nobody stated any
	Past     *Past
	Plan     *PlanMemory
	Pools    *Pools
	Oracle   Oracle
}

// View is what policies are shown of the world.
func (w *World) View() View { return View{w} }

// Job is what policies are shown of a job.
func (w *World) Job(j *job.State) JobView { return JobView{w, j} }

// Divided reports whether plans may have the job on an instance. Such a job is never promoted, however long it waits:
// it would ask for a whole GPU then, and there may be none.
func (w *World) Divided(j *job.State) bool {
	return w.Traits.Divides && w.Shapes.Get(j.Base).Divides()
}

// Oracle answers what views show that only the engine can work out. None of its answers changes what is decided,
// though some are remembered: FairShare notes a user that it did not know, MayEnter a shape.
type Oracle interface {
	Job(number int32) *job.State
	// FairShare is JobView.FairShare.
	FairShare(j *job.State) int64
	// QueueUse is the CPU and RAM that jobs of a queue hold.
	QueueUse(q int) (cpu cluster.Milli, ram cluster.MiB)
	// Speed is what is believed of a job's speed, in ppm: as it was measured, else as stated.
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
	// Undivided reports whether GPUs are handed out as jobs ask for them, whatever a plan says.
	Undivided() bool
}

// PlanMemory is what the last plan left.
type PlanMemory struct {
	Last    cluster.Time // when it was made; 0: there was none
	Memo    []int64      // what the policy asked to be shown
	Drawn   []*job.State // from pools, by the plan that is being made
	targets []job.Target // memory for the next plan
	scratch any          // ... for what a policy needs meanwhile, a *[]T or a *T
}

// Pools is the pools from which plans draw, by number.
type Pools struct {
	Lists []order.List
	open  []Pool
}
