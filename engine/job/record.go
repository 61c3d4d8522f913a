package job

import (
	"reflect"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
)

// Record is everything the engine knows of one job. Attained, Ran and Done are as of Acc; what the
// job holds has accrued since.
type Record struct {
	Spec        *cluster.Job      `json:"spec"`
	State       Phase             `json:"state"`
	Reason      StopReason        `json:"reason,omitempty"`
	Parked      Parked            `json:"parked,omitempty"`
	Eligible    bool              `json:"eligible,omitempty"`
	InArray     bool              `json:"in_array,omitempty"`
	Promoted    bool              `json:"promoted,omitempty"`
	Demoted     bool              `json:"demoted,omitempty"` // while it runs: it counts as best-effort
	Resizing    bool              `json:"resizing,omitempty"`
	How         How               `json:"how,omitempty"`
	Allocs      []inventory.Alloc `json:"allocs,omitempty"`
	Home        []inventory.Alloc `json:"home,omitempty"`
	Frozen      []inventory.Alloc `json:"frozen,omitempty"` // with Asleep, if it differs from Home
	Asleep      time.Duration     `json:"suspended_work,omitempty"`
	Warm        bool              `json:"resident_on_gpu,omitempty"` // suspended while it computed; with devices: in place
	Leaving     []inventory.Alloc `json:"leaving,omitempty"`
	Dest        []inventory.Alloc `json:"dest,omitempty"`  // where it is being moved to, while it stops
	Moved       []cluster.Time    `json:"moved,omitempty"` // times of recent moves
	Waiters     []cluster.JobID   `json:"waiters,omitempty"`
	Claims      []Claim           `json:"claims,omitempty"`   // what the waiters expect of its CPU and RAM
	Beside      int32             `json:"guest_of,omitempty"` // 1 + the job whose guest it is
	Guests      []cluster.JobID   `json:"guests,omitempty"`   // in order of arrival
	Packed      bool              `json:"packed,omitempty"`   // in this run it shared whole devices
	Waits       int32             `json:"waits,omitempty"`
	Tasks       int32             `json:"tasks,omitempty"`
	Fails       int32             `json:"fails,omitempty"`
	Preemptions int32             `json:"preemptions,omitempty"`
	Since       cluster.Time      `json:"since,omitempty"`
	Lined       cluster.Time      `json:"eligible_since,omitempty"`
	Hungry      cluster.Time      `json:"starving_since,omitempty"`
	Started     cluster.Time      `json:"started,omitempty"`
	FirstStart  cluster.Time      `json:"first_start,omitempty"`
	Ended       cluster.Time      `json:"ended,omitempty"`
	Acc         cluster.Time      `json:"accrued_until,omitempty"`
	Attained    int64             `json:"attained,omitempty"`   // milli-GPU-milliseconds
	Weighted    int64             `json:"weighted,omitempty"`   // ... by the weights of the GPU models, up to the last change
	Unweighted  int64             `json:"unweighted,omitempty"` // ... the part of Attained before the last change
	Weight      int64             `json:"weight,omitempty"`     // ... the weight since then, in thousandths; 0: 1000
	Ran         time.Duration     `json:"ran,omitempty"`
	Done        time.Duration     `json:"done,omitempty"`
	Saved       time.Duration     `json:"saved,omitempty"`
	Deaf        bool              `json:"ignores_checkpoint,omitempty"` // its driver found that it ignores checkpoints
	Rate        int64             `json:"rate,omitempty"`
	Speed       int64             `json:"speed,omitempty"`
	Memory      cluster.MiB       `json:"memory,omitempty"`         // peak memory measured on any of its GPUs
	Solo        int64             `json:"unshared_speed,omitempty"` // ... while no other job had shares of its GPUs
	Among       []cluster.JobID   `json:"measured_among,omitempty"` // jobs in shares of its GPUs when it was measured
	Slow        cluster.Time      `json:"too_slow_since,omitempty"` // ... since when it is too slow among them
	LimitAt     cluster.Time      `json:"limit_at,omitempty"`
	Promotion   cluster.Time      `json:"promotion,omitempty"`     // the last promotion by the policy (Promoter)
	Before      int64             `json:"served_before,omitempty"` // ... weighted service received before
	RanBefore   time.Duration     `json:"ran_before,omitempty"`    // ... and of Ran
	DoneBefore  time.Duration     `json:"done_before,omitempty"`   // ... and useful work until then
	Predicted   time.Duration     `json:"predicted,omitempty"`
	Singles     []cluster.JobID   `json:"singletons_ahead,omitempty"` // a singleton's: the jobs that it waits for
	Promise     cluster.Time      `json:"promise,omitempty"`          // conservative backfill: its start
	Plan        []inventory.Alloc `json:"plan,omitempty"`             // ... and where
	Target      *Target           `json:"target,omitempty"`           // what the policy's plan gives it
	Served      []Served          `json:"served,omitempty"`           // time on devices by GPU model
	Key         order.Key         `json:"key,omitzero"`
	EndKey      int64             `json:"end_key,omitempty"`
}

// Untouched is everything the engine knows, besides its spec, of a job that has only waited so far.
// Elements of an array with equal Untouched can be written as one.
type Untouched struct {
	Parked   Parked
	Eligible bool
	Since    cluster.Time
	Lined    cluster.Time
	Hungry   cluster.Time
	Start    cluster.Time // first start; Never: there was none
	Weight   int64
	Tasks    int32
	Key      order.Key
	// how long such jobs ran
	Predicted time.Duration
}

// Untouched returns the data of a job that has only waited so far; false: it has done more.
func (r *Record) Untouched() (Untouched, bool) {
	u := Untouched{Parked: r.Parked, Eligible: r.Eligible, Since: r.Since, Lined: r.Lined, Hungry: r.Hungry, Weight: r.Weight, Tasks: r.Tasks,
		Key: r.Key, Predicted: r.Predicted, Start: r.FirstStart}
	rest := *r
	rest.Spec, rest.Parked, rest.Eligible, rest.Since, rest.Lined, rest.Hungry, rest.Weight = nil, 0, false, 0, 0, 0, 0
	rest.Tasks, rest.Key, rest.Predicted, rest.FirstStart = 0, order.Key{}, 0, 0
	return u, reflect.ValueOf(&rest).Elem().IsZero() // a new field counts as something that happened
}
