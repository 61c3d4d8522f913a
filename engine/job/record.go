package job

import (
	"reflect"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
)

// Record is everything the engine knows of one job. Attained, Ran and Done are as of Acc; what the
// job holds has accrued since. Facts and Account are copied whole between the record and the State;
// the rest is restored with what the engine indexes by it.
type Record struct {
	Spec *cluster.Job `json:"spec"`
	Facts
	Account
	Eligible      bool              `json:"eligible,omitempty"`
	Resizing      bool              `json:"resizing,omitempty"`
	Allocs        []inventory.Alloc `json:"allocs,omitempty"`
	Home          []inventory.Alloc `json:"home,omitempty"`
	Frozen        []inventory.Alloc `json:"frozen,omitempty"` // with Asleep, if it differs from Home
	Asleep        time.Duration     `json:"suspended_work,omitempty"`
	ResidentOnGPU bool              `json:"resident_on_gpu,omitempty"` // suspended while it computed; with devices: in place
	Leaving       []inventory.Alloc `json:"leaving,omitempty"`
	Dest          []inventory.Alloc `json:"dest,omitempty"`     // where it is being moved to, while it stops
	GuestOf       int32             `json:"guest_of,omitempty"` // 1 + the job whose guest it is
	Guests        []cluster.JobID   `json:"guests,omitempty"`   // in order of arrival
	Packed        bool              `json:"packed,omitempty"`   // in this run it shared whole devices
	Waits         int32             `json:"waits,omitempty"`
	Tasks         int32             `json:"tasks,omitempty"`
	// of its GPU model as booked, in thousandths; 0: 1000
	Weight  int64             `json:"weight,omitempty"`
	Singles []cluster.JobID   `json:"singletons_ahead,omitempty"` // a singleton's: the jobs that it waits for
	Promise cluster.Time      `json:"promise,omitempty"`          // conservative backfill: its start
	Plan    []inventory.Alloc `json:"plan,omitempty"`             // ... and where
	Target  *Target           `json:"target,omitempty"`           // what the policy's plan gives it
	Served  []Served          `json:"served,omitempty"`           // time on devices by GPU model
	Key     order.Key         `json:"key,omitzero"`
	EndKey  int64             `json:"end_key,omitempty"`
}

// Facts are what the engine knows of any job, besides what depends on the jobs around it. A fact that
// is added here survives restarts.
type Facts struct {
	State             Phase         `json:"state"`
	Reason            StopReason    `json:"reason,omitempty"`
	Parked            Parked        `json:"parked,omitempty"`
	How               How           `json:"how,omitempty"`                // while it stops: the way
	InArray           bool          `json:"in_array,omitempty"`           // it has one of its array's places
	Promoted          bool          `json:"promoted,omitempty"`           // waits longer than the starvation bound
	Demoted           bool          `json:"demoted,omitempty"`            // while it runs: it counts as best-effort
	IgnoresCheckpoint bool          `json:"ignores_checkpoint,omitempty"` // as its driver found
	Fails             int32         `json:"fails,omitempty"`              // failed launches in a row
	Preemptions       int32         `json:"preemptions,omitempty"`
	Since             cluster.Time  `json:"since,omitempty"`          // last became pending
	EligibleSince     cluster.Time  `json:"eligible_since,omitempty"` // last became eligible
	StarvingSince     cluster.Time  `json:"starving_since,omitempty"` // for the starvation bound; Never: not in line
	FirstStart        cluster.Time  `json:"first_start,omitempty"`
	Ended             cluster.Time  `json:"ended,omitempty"`
	Predicted         time.Duration `json:"predicted,omitempty"` // how long such jobs ran, as of its submission
}

// Account is what the engine knows only of jobs that were given something: what they received, and
// the times and measurements of their runs. What is added here survives restarts; slices are cloned
// in Copied.
type Account struct {
	Waiters    []cluster.JobID `json:"waiters,omitempty"`  // jobs that will start where it leaves
	Claims     []Claim         `json:"claims,omitempty"`   // what the waiters expect of its CPU and RAM
	Moved      []cluster.Time  `json:"moved,omitempty"`    // times of recent moves
	Started    cluster.Time    `json:"started,omitempty"`  // of the current run
	LimitAt    cluster.Time    `json:"limit_at,omitempty"` // when the time limit strikes
	Acc        cluster.Time    `json:"accrued_until,omitempty"`
	Attained   int64           `json:"attained,omitempty"`   // milli-GPU-milliseconds
	Weighted   int64           `json:"weighted,omitempty"`   // ... by weights of GPU models, up to the last change
	Unweighted int64           `json:"unweighted,omitempty"` // ... of Attained, what was received up to then
	Ran        time.Duration   `json:"ran,omitempty"`        // wall time on devices
	Done       time.Duration   `json:"done,omitempty"`       // useful, on the reference GPU
	Saved      time.Duration   `json:"saved,omitempty"`      // ... of which safe in a checkpoint

	ServedBefore int64         `json:"served_before,omitempty"` // weighted service received before the last promotion
	RanBefore    time.Duration `json:"ran_before,omitempty"`    // Ran before the last promotion
	DoneBefore   time.Duration `json:"done_before,omitempty"`   // useful work before the last promotion
	// the last one by the policy (Promoter); 0: there was none
	Promotion cluster.Time `json:"promotion,omitempty"`

	Rate int64 `json:"rate,omitempty"` // ppm of the reference; 0 until Started
	// the last known rate without other jobs on its GPUs; 0: none
	Speed  int64       `json:"speed,omitempty"`
	Memory cluster.MiB `json:"memory,omitempty"` // peak memory measured on any of its GPUs; 0: not measured
	// last known rate without other shares of its GPUs; 0: none
	Solo  int64           `json:"unshared_speed,omitempty"`
	Among []cluster.JobID `json:"measured_among,omitempty"` // jobs with shares of its GPUs when it was last measured
	// since then slower among them than it accepts; 0: it is not
	Slow cluster.Time `json:"too_slow_since,omitempty"`
}

// Copied returns a copy that shares no memory.
func (a Account) Copied() Account {
	a.Waiters, a.Claims = slices.Clone(a.Waiters), slices.Clone(a.Claims)
	a.Moved, a.Among = slices.Clone(a.Moved), slices.Clone(a.Among)
	return a
}

// Untouched is everything the engine knows, besides its spec, of a job that has only waited so far.
// Elements of an array with equal Untouched can be written as one.
type Untouched struct {
	Parked                       Parked
	Eligible                     bool
	Since                        cluster.Time
	EligibleSince, StarvingSince cluster.Time
	Start                        cluster.Time // first start; Never: there was none
	Weight                       int64
	Tasks                        int32
	Key                          order.Key
	// how long such jobs ran
	Predicted time.Duration
}

// Untouched returns the data of a job that has only waited so far; false: it has done more.
func (r *Record) Untouched() (Untouched, bool) {
	u := Untouched{Parked: r.Parked, Eligible: r.Eligible, Since: r.Since, EligibleSince: r.EligibleSince,
		StarvingSince: r.StarvingSince, Weight: r.Weight, Tasks: r.Tasks, Key: r.Key, Predicted: r.Predicted,
		Start: r.FirstStart}
	rest := *r
	rest.Spec, rest.Parked, rest.Eligible, rest.Weight = nil, 0, false, 0
	rest.Since, rest.EligibleSince, rest.StarvingSince = 0, 0, 0
	rest.Tasks, rest.Key, rest.Predicted, rest.FirstStart = 0, order.Key{}, 0, 0
	return u, reflect.ValueOf(&rest).Elem().IsZero() // a new field counts as something that happened
}
