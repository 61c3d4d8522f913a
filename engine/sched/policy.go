package sched

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Policy answers "who next?"; one that is a Planner answers "how much, and of which kind?", too. It reads the views and
// keeps no memory. What else it can do, it says by implementing one of the interfaces below: the engine looks for each
// when it is made.
type Policy interface {
	Name() string
	Traits() Traits
	// Key orders jobs, lower first. It is asked for when a job comes into line, when it is given devices, when it
	// reports, and at the periods of the traits. Among pending jobs of one user, queue and shape the order must not
	// change while they wait (except at Rekey).
	Key(v View, j JobView) Key
}

// Traits tell the engine how to use a policy. They are asked for once, when the engine is made: plain data, so that a
// policy around another one can hand them on.
type Traits struct {
	Preempts bool     // a job may preempt one whose first key element is higher
	Backfill Backfill // unless the user chooses another

	Falling bool          // a running job's first key element falls by one per nanosecond
	Rekey   time.Duration // the keys of all pending jobs are evaluated again at this period; 0: never
	Rerun   time.Duration // likewise of running jobs, while others wait; 0: never
	ByUser  bool          // jobs of different users may change places while they wait

	Learns   time.Duration // View.Past is brought up to date at this period; 0: completed jobs are not kept
	Alike    bool          // the policy looks at Past.Sizes
	Predicts bool          // the policy looks at JobView.Predicted
	Memory   bool          // the policy looks at JobView.PeakMemory

	// Of a Planner:

	Round       time.Duration     // it plans at multiples of this only; 0: whenever who could run changes
	Gated       bool              // a job starts only once a plan was made that was shown it
	Anywhere    bool              // no target says on which GPUs a job runs (Slice): jobs may be moved for others
	Divides     bool              // jobs that ask for one GPU may be given MIG instances (Target.Slice)
	OnlyDivides bool              // ... and no others are planned for: they wait for no plan, and none is shown them
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

// Fitter is a policy with settings that name things of a cluster. Whoever makes the engine asks before.
type Fitter interface {
	// Fits returns an error if the cluster does not have what they name.
	Fits(spec *cluster.Spec) error
}

// KeyChanger is a policy whose running jobs change their key at known times. It is asked whenever a job's place among
// those that run was computed; at that time the key is evaluated again.
type KeyChanger interface {
	// NextChange returns when the key of a running job changes next.
	NextChange(v View, j JobView) cluster.Time
}

// HeadKeyer is a policy whose order between groups of jobs (of different users, queues or shapes) changes with time,
// while Key orders jobs within a group for good. It is asked when a group gets a new first job, and at Rekey.
type HeadKeyer interface {
	HeadKey(v View, j JobView) Key
}

// QueueOrder is a policy that chooses among queues before it chooses a job. It is asked again after each placement.
type QueueOrder interface {
	// QueueKey orders siblings of the queue tree, lower first.
	QueueKey(v View, q int) int64
}

// Promoter is a policy of levels that takes jobs back into the first one when they have waited long for how long they
// ran: from then on their service counts from zero (Tiresias, NSDI'19, PROMOTEKNOB). It is asked when a job comes into
// line that got further since it was last promoted.
type Promoter interface {
	// PromoteAt returns when a job that waits on is promoted; Never: not at all.
	// It must not change while the job waits.
	PromoteAt(v View, j JobView) cluster.Time
}

// Factors are what a job's priority is a weighted sum of: of a job in millionths, as weights in points.
type Factors struct {
	Age, FairShare, Size, Partition int64
	Own                             int64 // the job's own priority, which is added as it is
}

// Factored is a policy whose order is a sum of weighted factors. It is asked when people want to see them; no decision
// depends on it.
type Factored interface {
	// Factors returns the factors of a waiting job whose owner's Fair Tree factor is fair, in millionths.
	Factors(v View, j JobView, fair int64) Factors
	Weights() Factors
}
