package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/engine/explain"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/past"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/speed"
)

// Names of the rooms below that callers know as the engine's.

// Key orders jobs: lower first, compared from the left.
type Key = order.Key

// Alloc is what some tasks of one set hold on one node.
type Alloc = inventory.Alloc

// Domain restricts a search to one domain of a topology level.
type Domain = inventory.Domain

// Kind is a GPU model, and how much of it there is.
type Kind = inventory.Kind

// Fragmentation is how much of the free GPUs is of use.
type Fragmentation = inventory.Fragmentation

// MaxKinds bounds the kinds of node.
const MaxKinds = inventory.MaxKinds

// The measures of what of a node's free GPUs counts.
const (
	Fragments = inventory.Fragments
	Rooms     = inventory.Rooms
)

// SameGPUs reports whether two descriptions of a node are of the same GPUs, partitioned alike.
func SameGPUs(a, b *cluster.Node) bool { return inventory.SameHardware(a, b) }

// State is where a job is in its life.
type State = job.Phase

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

// Parked says why a pending job is not in line.
type Parked = job.Parked

// The reasons for which a job is parked.
const (
	NotParked        = job.NotParked
	ParkedHold       = job.ParkedHold
	ParkedBegin      = job.ParkedBegin
	ParkedDependency = job.ParkedDependency
	ParkedArray      = job.ParkedArray
	ParkedSingleton  = job.ParkedSingleton
	ParkedPlan       = job.ParkedPlan
)

// JobRecord is what the engine knows of one job.
type JobRecord = job.Record

// JobFacts are the part of a record that every job has.
type JobFacts = job.Facts

// JobAccount is the part of a record about what a job received.
type JobAccount = job.Account

// JobHoldings is the part of a record about what a job has of nodes.
type JobHoldings = job.Holdings

// Untouched is all that the engine knows, besides its spec, of a job that has only waited so far.
type Untouched = job.Untouched

// Claim is what of a node a placed job counts on from one that leaves it.
type Claim = job.Claim

// Served is how long a job held GPUs of a model.
type Served = job.Served

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

// PaceUnit says what is counted when a pace is measured.
type PaceUnit = job.PaceUnit

// The units of paces.
const (
	PaceSteps   = job.PaceSteps
	PaceSamples = job.PaceSamples
)

// SameDevices reports whether two lists of allocations are the same but for which job holds the devices and which is
// a guest there.
func SameDevices(a, b []Alloc) bool { return inventory.SamePlace(a, b) }

// Policy decides which job is next.
type Policy = sched.Policy

// Planner is a policy that answers "how much, and of which kind?", too.
type Planner = sched.Planner

// Plan is what a planner says at one instant.
type Plan = sched.Plan

// Traits tell the engine how to use a policy.
type Traits = sched.Traits

// View is what a policy may read of the engine's state.
type View = sched.View

// JobView is what a policy may read of a job.
type JobView = sched.JobView

// Fitter is a policy with settings that name things of a cluster.
type Fitter = sched.Fitter

// HeadKeyer is a policy whose order between groups of jobs changes with time.
type HeadKeyer = sched.HeadKeyer

// Factors are what a job's priority is a weighted sum of.
type Factors = sched.Factors

// Speeds is what a scheduler believes of how fast jobs run where.
type Speeds = sched.Speeds

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

// PastRecord is the completed jobs that a policy learns from.
type PastRecord = past.Record

// Why is a job's present state: what blocks it, which jobs hold what it needs, and when it is expected to start.
type Why = explain.Why

// ForeseenEnd is when a job was seen to leave its devices, by a look ahead.
type ForeseenEnd = explain.ForeseenEnd

// EndText says when a job ends: as is expected, or at its time limit if it runs so long.
func EndText(limit bool, at string) string { return explain.EndText(limit, at) }

// Waiting is a job in line, and when it is expected to start.
type Waiting = explain.Waiting

// QueueUse is a queue and what its jobs hold, in milli-GPU.
type QueueUse = limits.QueueUse

// Placer answers "where?".
type Placer = placement.Placer

// Site is what a placer works with.
type Site = placement.Site

// CheckTasks says what is wrong with the task sets of a job, whatever the cluster is; "": nothing.
func CheckTasks(s *cluster.Job) string { return job.CheckTasks(s) }

// Pairs is a Speeds that knows what jobs in shares of one GPU do to each other.
type Pairs = speed.Pairs

// Turns is a Pairs that knows what is left of a job's speed when its processes take turns with those of others.
type Turns = speed.Turns

// PaceRecord is how fast jobs of one model were measured to go.
type PaceRecord = speed.PaceRecord

// PairRecord is what jobs of two models in shares of one GPU were measured to do to each other.
type PairRecord = speed.PairRecord

// Defrag says whether jobs are moved, and how many.
type Defrag = defrag.Settings

// ParseDefrag reads how far defragmentation goes.
func ParseDefrag(s string) (*Defrag, error) { return defrag.Parse(s) }

// Moves is what would let one waiting job start, or empty a node, or why nothing does.
type Moves = defrag.Moves

// Move is one job that goes elsewhere.
type Move = defrag.Move

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
