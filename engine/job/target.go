package job

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Target is what a plan gives one job until the next plan.
type Target struct {
	Rank  int64   `json:"rank,omitempty"`  // used by the policy's Key
	GPU   string  `json:"gpu,omitempty"`   // the GPU model to run on; "": any that it accepts
	Tasks int     `json:"tasks,omitempty"` // size of an elastic job's first set; 0: what fits within its bounds
	Least int     `json:"least,omitempty"` // ... it may start with this many; 0: Tasks
	Idle  bool    `json:"idle,omitempty"`  // it gets nothing: it waits, or is stopped if it runs
	Memo  []int64 `json:"memo,omitempty"`  // passed to the policy's next plan

	// Beside is 1 + the job whose guest a waiting job becomes; if that fails it starts on its own,
	// unless Idle. 0: it starts on its own.
	Beside int32 `json:"beside,omitempty"`
	Alone  bool  `json:"alone,omitempty"` // if it is a guest of a job other than Beside, it is stopped
	Move   bool  `json:"move,omitempty"`  // with Beside: a running job is stopped to be moved there

	// Within: a gang of fixed size starts only within one domain of the level, if it can ever run
	// so and asks for no level itself; cluster.LevelAny: anywhere.
	Within cluster.Level `json:"within,omitempty"`

	// Partition is where to run, if permitted, instead of the partitions that the job names; "": these.
	Partition string `json:"partition,omitempty"`

	// Yield is the share of its host's speed, in ppm, that a guest must leave by being throttled,
	// if the driver can do that; 0: it is not throttled.
	Yield int64 `json:"yield,omitempty"`

	Slice *Slice `json:"slice,omitempty"` // the MIG instance to run on instead of the GPU that it asks for; nil: none

	Deadline DeadlineAnswer `json:"deadline,omitempty"` // the policy's decision on the job's deadline
}

// DeadlineAnswer is the decision of a policy that plans on a job's deadline.
type DeadlineAnswer uint8

// The answers. An accepted deadline is met if nothing fails and the job is as fast as expected.
const (
	DeadlineUnanswered DeadlineAnswer = iota
	DeadlineAccepted
	DeadlineDeclined // it cannot be promised; the job runs when it can
)

// String is the answer in words; "": none.
func (a DeadlineAnswer) String() string {
	return [...]string{"", "its deadline is accepted", "its deadline cannot be promised"}[a]
}

// Plans reports whether the job could run if a plan gave it something.
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

// Copied returns a deep copy; nil: nil.
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

// Same reports whether two targets are equal in effect.
func (t *Target) Same(old *Target) bool {
	return old != nil && t.Rank == old.Rank && t.GPU == old.GPU && t.Tasks == old.Tasks && t.Least == old.Least &&
		t.Idle == old.Idle && t.Beside == old.Beside && t.Alone == old.Alone && t.Move == old.Move &&
		t.Partition == old.Partition && t.Within == old.Within && t.Yield == old.Yield && t.Deadline == old.Deadline &&
		(t.Slice == nil) == (old.Slice == nil) && (t.Slice == nil || *t.Slice == *old.Slice) &&
		slices.Equal(t.Memo, old.Memo)
}

// Idle reports whether the current plan gives the job nothing.
func (j *State) Idle() bool {
	return j.Target != nil && j.Target.Idle && !j.Planless() && !(j.Packed && j.Target.Beside > 0)
}

// Planless reports whether plans cannot take from the job: it has waited too long, or it is
// critical.
func (j *State) Planless() bool { return j.Promoted || j.Spec.Tier == cluster.Critical }

// Asks is the shape that a job in line asks for.
func (j *State) Asks() int32 {
	if j.Promoted || j.Target == nil {
		return j.Base
	}
	return j.Narrow
}

// Partitions returns the partitions in which the job is to run.
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

// Serve adds time on GPUs of a model.
func Serve(list []Served, gpu string, d time.Duration) []Served {
	for i := range list {
		if list[i].GPU == gpu {
			list[i].Time += d
			return list
		}
	}
	return append(list, Served{GPU: gpu, Time: d})
}

// Slice is a MIG instance of a node's GPU.
type Slice struct {
	Node    int32  `json:"node,omitempty"` // index in the order in which nodes joined
	GPU     int    `json:"gpu,omitempty"`
	Profile string `json:"profile"`
	Start   int    `json:"start,omitempty"` // its first memory slice
}

// Sliced reports whether the plan places the job on an instance.
func (j *State) Sliced() bool {
	return j.Target != nil && j.Target.Slice != nil && !j.Planless()
}

// AcceptsGPU reports whether the job may run on the model.
func AcceptsGPU(spec *cluster.Job, model string) bool {
	for _, want := range spec.GPUTypes {
		if cluster.MatchModel(model, want) {
			return true
		}
	}
	return len(spec.GPUTypes) == 0
}
