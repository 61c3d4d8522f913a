package engine

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// Backfill says what may pass a job that cannot start.
type Backfill uint8

// The backfill modes.
const (
	Strict       Backfill = iota // nothing: the queue stops at the first job that does not fit
	Skip                         // anything that fits; no reservation (starvation is possible)
	EASY                         // what does not delay the first blocked job
	Conservative                 // what does not delay any blocked job
)

// Traits tell the engine how to use a policy.
type Traits struct {
	Preempts    bool              // a job may preempt one whose first key element is higher
	Backfill    Backfill          // unless the user chooses another
	Falling     bool              // a running job's first key element falls by one per nanosecond
	Rekey       time.Duration     // evaluate the keys of all pending jobs again at this period; 0: never
	Rerun       time.Duration     // evaluate the keys of running jobs again at this period while jobs wait; 0: never
	ByUser      bool              // jobs of different users may change places while they wait
	Queues      bool              // the policy orders queues (it implements QueueOrder)
	Round       time.Duration     // a Planner plans at multiples of this only; 0: whenever who could run changes
	Divides     bool              // a Planner may have jobs that ask for one GPU run on MIG instances (Target.Slice)
	OnlyDivides bool              // ... and says nothing of jobs that no GPU suits which could be divided: it is not shown these, and they wait for no plan
	Gated       bool              // under a Planner: a job starts only when a plan has had a look at it
	Anywhere    bool              // a Planner's targets never say on which GPUs a job runs (Slice): who runs there alone may be moved (Config.Defrag)
	Learns      time.Duration     // the policy looks at completed jobs (View.Past), which are brought up to date at this period; 0: it does not
	Alike       bool              // ... and at those that are like a job (Past.Sizes)
	Memory      bool              // the policy looks at JobView.PeakMemory
	Predicts    bool              // the policy looks at JobView.Predicted
	Lanes       cluster.LaneOrder // how jobs that it puts on the same whole GPUs take turns, where the driver can have them (the simulator)
}

// Policy answers "who next?"; if it is a Planner, "how much?", too. It reads the
// view and keeps no memory.
type Policy interface {
	Name() string
	Traits() Traits
	// Key orders jobs, lower first. Among pending jobs of one user, queue and
	// shape the order must not change while they wait (except at Rekey).
	Key(v View, j JobView) order.Key
}

// Fitter is a policy with settings that name things of a cluster.
type Fitter interface {
	// Fits returns an error if the cluster does not have what they name.
	Fits(spec *cluster.Spec) error
}

// KeyChanger is a policy whose running jobs change their key at known times.
type KeyChanger interface {
	// NextChange returns when the key of a running job changes next.
	NextChange(v View, j JobView) cluster.Time
}

// HeadKeyer is a policy whose order between groups of jobs (of different users,
// queues or shapes) changes with time, while Key orders jobs within a group for
// good. HeadKey is evaluated when a group gets a new first job, and at Rekey.
type HeadKeyer interface {
	HeadKey(v View, j JobView) order.Key
}

// QueueOrder is a policy that chooses among queues before it chooses a job.
// It is read again after each placement.
type QueueOrder interface {
	// QueueKey orders siblings of the queue tree, lower first.
	QueueKey(v View, q int) int64
}

// Placer answers "where?". It binds tasks with Site.Take until all are bound,
// or returns false; the engine undoes what was taken in vain.
type Placer interface {
	Name() string
	Place(s *Site) bool
}

// View is what a policy may read of the engine's state.
type View struct{ e *Engine }

// JobView is what a policy may read of a job.
type JobView struct {
	e *Engine
	j *job.State
}

// Now returns the time of the current step.
func (v View) Now() cluster.Time { return v.e.now }

// Capacity returns the milli-GPU of all healthy GPUs of nodes that are not down.
func (v View) Capacity() cluster.Milli { return v.e.capacity }

// Spec returns the job as it was submitted. It must not be changed.
func (j JobView) Spec() *cluster.Job { return j.j.Spec }

// Running reports whether the job holds devices.
func (j JobView) Running() bool { return j.j.State != job.Pending && j.j.State != job.Done }

// Started returns when the job's current run started.
func (j JobView) Started() cluster.Time { return j.j.Started }

// FirstStart returns when the job started for the first time; Never: not yet.
func (j JobView) FirstStart() cluster.Time { return j.j.FirstStart }

// Milli returns the milli-GPU that the job holds, or asks for while it waits.
func (j JobView) Milli() cluster.Milli { return j.j.Serves() }

// Attained returns the GPU time received so far, in milli-GPU-milliseconds.
func (j JobView) Attained() int64 { return j.j.AttainedAt(j.e.now) }

// Service returns what the job attained in GPU time that counts alike, in
// milli-GPU-milliseconds: an hour of a GPU model counts by the model's weight.
func (j JobView) Service() int64 { return j.j.ServiceAt(j.e.now) }

// Until returns when a running job will have attained so much more of Service
// (Tiresias, NSDI'19: the whole milliseconds that the missing service takes at its width).
func (j JobView) Until(more int64) cluster.Time {
	rate, weight := j.j.Serves(), j.j.Weight
	if more == math.MaxInt64 || rate <= 0 || weight <= 0 {
		return cluster.Never
	}
	missing := more
	if weight != cluster.Whole {
		missing = order.AddSat(more, j.Service()-j.j.Weighted) // of what is weighted so; then of what is not
		whole, rest := missing/weight, missing%weight
		if whole > math.MaxInt64/cluster.Whole-1 {
			return cluster.Never
		}
		missing = whole*cluster.Whole + (rest*cluster.Whole+weight-1)/weight - (j.Attained() - j.j.Unweighted)
	}
	ms := (missing + rate - 1) / rate
	if ms > int64(cluster.MaxDuration/time.Millisecond) {
		return cluster.Never
	}
	// Service counts whole milliseconds of the clock: whenever this is asked, it is the same instant.
	now := j.e.now - j.e.now%cluster.Time(time.Millisecond)
	return now.Add(time.Duration(ms) * time.Millisecond)
}

// Ran returns the wall time that the job has held devices, over all runs.
func (j JobView) Ran() time.Duration { return j.j.RanAt(j.e.now) }

// Done returns the useful work done, as run time on the reference GPU.
func (j JobView) Done() time.Duration { return j.j.DoneAt(j.e.now) }

// Remaining returns the estimated run time left at the job's present speed, or
// while it waits the one that it ran at last, so that being stopped changes
// nothing in the order;
// jobs without an estimate return a hundred years. It is never negative.
func (j JobView) Remaining() time.Duration { return j.j.RemainingAt(j.e.now) }

// Waiting returns how long the job has waited since it was submitted or last stopped.
func (j JobView) Waiting() time.Duration {
	if j.Running() {
		return 0
	}
	return j.e.now.Sub(j.j.Since)
}

// Queue returns the index of the job's queue in the tree.
func (j JobView) Queue() int { return int(j.j.Queue) }

// User returns the dense number of the job's owner.
func (j JobView) User() int { return int(j.j.User) }

// Preemptions returns how often the job was preempted.
func (j JobView) Preemptions() int { return int(j.j.Preemptions) }
