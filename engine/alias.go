package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/engine/explain"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
)

// Names of the rooms below that callers know as the engine's.

// Key orders jobs: lower first, compared from the left.
type Key = order.Key

// Alloc is what some tasks of one set hold on one node.
type Alloc = inventory.Alloc

// The states of a job.
const (
	Pending  = job.Pending
	Placed   = job.Placed
	Starting = job.Starting
	Running  = job.Running
	Stopping = job.Stopping
	Done     = job.Done
)

// StopReason says why a job stopped.
type StopReason = job.StopReason

// The stop reasons.
const (
	Completed    = job.Completed
	Failed       = job.Failed
	WasCancelled = job.WasCancelled
	TimedOut     = job.TimedOut
	Preempted    = job.Preempted
	NodeLost     = job.NodeLost
	LaunchFailed = job.LaunchFailed
	Impossible   = job.Impossible
	NeverReady   = job.NeverReady
)

// How says how a job is stopped.
type How = job.How

// The ways to stop a job.
const (
	Suspend    = job.Suspend
	Checkpoint = job.Checkpoint
	Kill       = job.Kill
	Replace    = job.Replace
)

// ParseHow reads a way to stop jobs of a tier by name.
func ParseHow(s string) (How, error) { return job.ParseHow(s) }

// JobRecord is what the engine knows of one job.
type JobRecord = job.Record

// JobFacts are the part of a record that every job has.
type JobFacts = job.Facts

// JobAccount is the part of a record about what a job received.
type JobAccount = job.Account

// JobHoldings is the part of a record about what a job has of nodes.
type JobHoldings = job.Holdings

// Carryover is what a job was given under other numbers.
type Carryover = job.Carryover

// Target is what a plan gives a job.
type Target = job.Target

// DeadlineAnswer is what a policy says of a job's deadline.
type DeadlineAnswer = job.DeadlineAnswer

// The answers.
const (
	DeadlineUnanswered = job.DeadlineUnanswered
	DeadlineAccepted   = job.DeadlineAccepted
	DeadlineDeclined   = job.DeadlineDeclined
)

// Factors are what a job's priority is a weighted sum of.
type Factors = sched.Factors

// Backfill says what may pass a job that cannot start.
type Backfill = sched.Backfill

// The backfill modes.
const (
	Strict       = sched.Strict
	Skip         = sched.Skip
	EASY         = sched.EASY
	Conservative = sched.Conservative
)

// ParseBackfill reads a backfill mode by name.
func ParseBackfill(s string) (Backfill, error) { return sched.ParseBackfill(s) }

// FairShare is a queue, or a user in one, as fair shares see it.
type FairShare = limits.FairShare

// Why is a job's present state: what blocks it, which jobs hold what it needs, and when it is expected to start.
type Why = explain.Why

// ForeseenEnd is when a job was seen to leave its devices, by a look ahead.
type ForeseenEnd = explain.ForeseenEnd

// Waiting is a job in line, and when it is expected to start.
type Waiting = explain.Waiting

// QueueUse is a queue and what its jobs hold, in milli-GPU.
type QueueUse = limits.QueueUse

// CheckTasks says what is wrong with the task sets of a job, whatever the cluster is; "": nothing.
func CheckTasks(s *cluster.Job) string { return job.CheckTasks(s) }

// Defrag says whether jobs are moved, and how many.
type Defrag = defrag.Settings

// ParseDefrag reads how far defragmentation goes.
func ParseDefrag(s string) (*Defrag, error) { return defrag.Parse(s) }

// Moves is what would let one waiting job start, or empty a node, or why nothing does.
type Moves = defrag.Moves

// Compact is what nodes are emptied for.
type Compact = defrag.Compact

// The gains for which nodes are emptied.
const (
	NoCompact  = defrag.NoCompact
	UsableGPUs = defrag.UsableGPUs
	EmptyNodes = defrag.EmptyNodes
)

// ParseCompact reads what nodes are emptied for.
func ParseCompact(s string) (Compact, error) { return defrag.ParseCompact(s) }
