package job

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Target is what one job gets until the next plan.
type Target struct {
	Rank  int64   `json:"rank,omitempty"`  // for the policy's own Key
	GPU   string  `json:"gpu,omitempty"`   // the model that it runs on; "": any that it accepts
	Tasks int     `json:"tasks,omitempty"` // size of an elastic job's first set; 0: what fits of its own range
	Least int     `json:"least,omitempty"` // ... it may start with so few; 0: with Tasks
	Idle  bool    `json:"idle,omitempty"`  // it gets nothing: it waits; if it runs, it is stopped
	Memo  []int64 `json:"memo,omitempty"`  // what the policy wants to be shown next time

	Beside int32 `json:"beside,omitempty"` // while it waits: 1 + the job on whose devices it starts, beside it, else (but if it is Idle) on its own; 0: on its own
	Alone  bool  `json:"alone,omitempty"`  // if it is a guest of another than Beside, it is stopped
	Move   bool  `json:"move,omitempty"`   // with Beside: it comes there from where it runs, too, as soon as it can: it is stopped for that

	// Within: a gang of one size starts in one domain of the level only, if it can ever
	// run so and asks for no level itself; cluster.LevelAny: anywhere.
	Within cluster.Level `json:"within,omitempty"`

	Partition string `json:"partition,omitempty"` // on whose nodes it runs, if it may, instead of those of the partitions that it names; "": of these

	// Yield: as a guest it is held back, where the driver can do that, so that whom it is
	// beside keeps so much of its speed, in ppm; 0: it is not.
	Yield int64 `json:"yield,omitempty"`

	Slice *Slice `json:"slice,omitempty"` // the MIG instance on which it runs, instead of the GPU that it asks for; nil: none

	Deadline DeadlineAnswer `json:"deadline,omitempty"` // what the policy says of the job's deadline
}

// DeadlineAnswer is what a policy that plans says of a job's deadline.
type DeadlineAnswer uint8

// The answers. An accepted deadline is kept if nothing fails and the job is as
// fast as it is believed to be.
const (
	DeadlineUnanswered DeadlineAnswer = iota
	DeadlineAccepted
	DeadlineDeclined // it cannot be promised; the job runs when it can
)

// String is the answer for people; "": there is none.
func (a DeadlineAnswer) String() string {
	return [...]string{"", "its deadline is accepted", "its deadline cannot be promised"}[a]
}

// Plans reports whether a job could run if it were given something.
func (j *State) Plans() bool {
	switch j.State {
	case Pending:
		return j.Eligible || j.Parked == ParkedPlan
	case Stopping:
		return (j.Reason == Preempted || j.Reason == NodeLost) && !j.Spec.NoRequeue
	case Done:
		return false
	}
	return true
}

// Copied is a target of its own; nil: none.
func (t *Target) Copied() *Target {
	if t == nil {
		return nil
	}
	c := *t
	c.Memo = slices.Clone(t.Memo)
	if t.Slice != nil {
		slice := *t.Slice
		c.Slice = &slice
	}
	return &c
}

// Same reports whether nothing changes with the new target.
func (t *Target) Same(old *Target) bool {
	return old != nil && t.Rank == old.Rank && t.GPU == old.GPU && t.Tasks == old.Tasks && t.Least == old.Least && t.Idle == old.Idle && t.Beside == old.Beside && t.Alone == old.Alone && t.Move == old.Move && t.Partition == old.Partition && t.Within == old.Within && t.Yield == old.Yield && t.Deadline == old.Deadline &&
		(t.Slice == nil) == (old.Slice == nil) && (t.Slice == nil || *t.Slice == *old.Slice) && slices.Equal(t.Memo, old.Memo)
}

// Idle reports whether the plan in force gives the job nothing.
func (j *State) Idle() bool {
	return j.Target != nil && j.Target.Idle && !j.Planless() && !(j.Packed && j.Target.Beside > 0)
}

// Planless reports whether no plan takes from the job: it has waited too long,
// or it is critical.
func (j *State) Planless() bool { return j.Promoted || j.Spec.Tier == cluster.Critical }

// Asks is the shape of a job while it waits in line.
func (j *State) Asks() int32 {
	if j.Promoted || j.Target == nil {
		return j.Base
	}
	return j.Narrow
}

// Partitions are those on whose nodes the job is to run.
func (j *State) Partitions() []string {
	if t := j.Target; t != nil && t.Partition != "" {
		return []string{t.Partition}
	}
	return j.Spec.Partitions
}

// Served is how long a job held GPUs of a model.
type Served struct {
	GPU  string        `json:"gpu"`
	Time time.Duration `json:"time"`
}

// Slice is a MIG instance of a node's GPU.
type Slice struct {
	Node    int32  `json:"node,omitempty"` // index in the order in which nodes joined
	GPU     int    `json:"gpu,omitempty"`
	Profile string `json:"profile"`
	Start   int    `json:"start,omitempty"` // its first memory slice
}

// Sliced reports whether the plan has the job on an instance.
func (j *State) Sliced() bool {
	return j.Target != nil && j.Target.Slice != nil && !j.Planless()
}
