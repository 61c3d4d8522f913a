package sched

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Policy decides the order of jobs; a Planner also decides how many GPUs, and of which kind, each
// job gets. It reads the views and keeps no state. It declares further abilities by implementing
// the interfaces below, which the engine looks for when it is made.
type Policy interface {
	Name() string
	Traits() Traits
	// Key orders jobs, lower first. It is called when a job enters the line, gets devices or
	// reports, and at the periods of the traits. Among pending jobs of one user, queue and shape
	// the order must not change while they wait (except at Rekey).
	Key(v View, j JobView) Key
}

// Traits tell the engine how to use a policy. They are read once, when the engine is made. They are
// plain data, so that a policy that wraps another can pass them on.
type Traits struct {
	Preempts bool     // a job may preempt one whose first key element is higher
	Backfill Backfill // the default, unless the user chooses another

	Falling bool          // a running job's first key element falls by one per nanosecond
	Rekey   time.Duration // the keys of all pending jobs are computed again at this period; 0: never
	Rerun   time.Duration // likewise of running jobs, while others wait; 0: never
	ByUser  bool          // jobs of different users may change places while they wait

	Learns   time.Duration // View.Past is updated at this period; 0: completed jobs are not kept
	Alike    bool          // the policy uses Past.Sizes
	Predicts bool          // the policy uses JobView.Predicted
	Memory   bool          // the policy uses JobView.PeakMemory

	// Of a Planner:

	Round       time.Duration     // it plans only at multiples of this; 0: whenever the jobs that could run change
	Gated       bool              // a job starts only once a plan has included it
	Anywhere    bool              // no target says on which GPUs a job runs (Slice): jobs may be moved for others
	Divides     bool              // jobs that ask for one GPU may be given MIG instances (Target.Slice)
	OnlyDivides bool              // ... and plans concern only such jobs: others do not wait for them
	Lanes       cluster.LaneOrder // how jobs on the same whole GPUs take turns, where the driver can have them do so
}

// Backfill says what may pass a job that cannot start.
type Backfill uint8

// The backfill modes.
const (
	Strict       Backfill = iota // nothing: the queue stops at the first job that does not fit
	Skip                         // anything that fits; no reservation (starvation is possible)
	EASY                         // what does not delay the first blocked job
	Conservative                 // what does not delay any blocked job
)

var backfillNames = []string{"none", "skip", "easy", "conservative"}

// ParseBackfill reads a backfill mode by name.
func ParseBackfill(s string) (Backfill, error) {
	v, err := job.ParseName("backfill", s, backfillNames)
	return Backfill(v), err
}

func (b Backfill) String() string { return job.NameOf(uint8(b), backfillNames) }

// Fitter is a policy with settings that refer to parts of a cluster. Programs check them before
// they make the engine.
type Fitter interface {
	// Fits returns an error if the cluster does not have what the settings name.
	Fits(spec *cluster.Spec) error
}

// KeyChanger is a policy whose running jobs change their keys at known times. It is called whenever
// the place of a running job has been computed; at the returned time the key is computed again.
type KeyChanger interface {
	// NextChange returns when the key of a running job changes next.
	NextChange(v View, j JobView) cluster.Time
}

// HeadKeyer is a policy whose order between groups of jobs (of different users, queues or shapes)
// changes with time, while Key orders jobs within a group permanently. It is called when a group
// gets a new first job, and at Rekey.
type HeadKeyer interface {
	HeadKey(v View, j JobView) Key
}

// QueueOrder is a policy that chooses a queue before it chooses a job. It is called again after
// each placement.
type QueueOrder interface {
	// QueueKey orders siblings of the queue tree, lower first.
	QueueKey(v View, q int) int64
}

// Promoter is a policy with levels that returns jobs to the first level when they have waited long
// relative to their run time: from then on their service counts from zero (Tiresias, NSDI'19,
// PROMOTEKNOB). It is called when a job that has made progress since its last promotion enters the
// line.
type Promoter interface {
	// PromoteAt returns when a job that keeps waiting is promoted; Never: not at all. It must not
	// change while the job waits.
	PromoteAt(v View, j JobView) cluster.Time
}

// Factors are the terms of a job's priority, a weighted sum: factors in millionths, weights in
// points.
type Factors struct {
	Age, FairShare, Size, Partition int64
	Own                             int64 // the job's own priority, unweighted
}

// Factored is a policy whose order is a weighted sum of factors. It is called when users want to
// see them; no decision depends on it.
type Factored interface {
	// Factors returns the factors of a waiting job whose owner's Fair Tree factor is fair, in millionths.
	Factors(v View, j JobView, fair int64) Factors
	Weights() Factors
}
