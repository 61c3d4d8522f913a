package job

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
)

// Record is everything the engine knows of one job. Attained, Ran and Done are as of Acc; what the
// job holds has accrued since. Facts, Account and Holdings are copied whole between the record and
// the State, and then indexed; the rest is written where it says something.
type Record struct {
	Spec *cluster.Job `json:"spec"`
	Facts
	Account
	Holdings
	// of its GPU model as booked, in thousandths; 0: 1000
	Weight  int64             `json:"weight,omitempty"`
	Singles []cluster.JobID   `json:"singletons_ahead,omitempty"` // a singleton's: the jobs that it waits for
	Promise cluster.Time      `json:"promise,omitempty"`          // conservative backfill: its start
	Plan    []inventory.Alloc `json:"plan,omitempty"`             // ... and where
	Target  *Target           `json:"target,omitempty"`           // what the policy's plan gives it
	Key     order.Key         `json:"key,omitzero"`
	EndKey  int64             `json:"end_key,omitempty"`
}

// Facts are what the engine knows of any job. A fact that is added here survives restarts.
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
	Eligible          bool          `json:"eligible,omitempty"`  // pending and in its group's list
	Resizing          bool          `json:"resizing,omitempty"`  // a Resize was decided, Resized has not come back
	// it was suspended while computing and still has devices: it resumed in place
	ResidentOnGPU bool  `json:"resident_on_gpu,omitempty"`
	GuestOf       int32 `json:"guest_of,omitempty"` // 1 + the job whose guest it is; 0: none
	Packed        bool  `json:"packed,omitempty"`   // in this run it shared whole devices
	Waits         int32 `json:"waits,omitempty"`    // stopping jobs that must leave before it can start
	Tasks         int32 `json:"tasks,omitempty"`    // of the (elastic) first set
}

// AwaitsTurn reports whether a pending job waits for nothing but room and its turn.
func (f *Facts) AwaitsTurn() bool { return f.State == Pending && f.Parked == NotParked }

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
	// over the network; nil: not measured; never modified in place
	Traffic *cluster.Traffic `json:"measured_traffic,omitempty"`
	// what it said of the slots in which its iterations are to begin
	Slots cluster.SlotsReport `json:"slots,omitempty"`
	// when it last began to compute, where a network is described; 0: when it started
	Computing cluster.Time `json:"computing_since,omitempty"`
}

// Copied returns a copy that shares no memory.
func (a Account) Copied() Account {
	a.Waiters, a.Claims = slices.Clone(a.Waiters), slices.Clone(a.Claims)
	a.Moved, a.Among = slices.Clone(a.Moved), slices.Clone(a.Among)
	return a
}

// Holdings are what a job has of nodes, and beside which jobs. What is added here survives restarts;
// slices are cloned in CopiedFor.
type Holdings struct {
	Allocs []inventory.Alloc `json:"allocs,omitempty"`
	// of a suspended job: where its memory is, if it can resume only there
	Home []inventory.Alloc `json:"home,omitempty"`
	// where its memory is, even if it may resume elsewhere; in a record: if that is not Home
	Frozen  []inventory.Alloc `json:"frozen,omitempty"`
	Asleep  time.Duration     `json:"suspended_work,omitempty"` // useful work that it holds in memory
	Leaving []inventory.Alloc `json:"leaving,omitempty"`        // released by a shrink, but physically still held
	Dest    []inventory.Alloc `json:"dest,omitempty"`           // while it stops to be moved: where to, booked
	Guests  []cluster.JobID   `json:"guests,omitempty"`         // on its devices, in order of arrival
	Served  []Served          `json:"served,omitempty"`         // time on devices by GPU model, if the policy plans
	// how the network treats its traffic; nil: as any other; never modified in place
	Treatment *cluster.Treatment `json:"treatment,omitempty"`
}

// CopiedFor returns a copy that shares no memory, in which shares are a job's.
func (h Holdings) CopiedFor(id cluster.JobID) Holdings {
	for _, list := range []*[]inventory.Alloc{&h.Allocs, &h.Home, &h.Frozen, &h.Leaving, &h.Dest} {
		*list = owned(*list, id)
	}
	h.Guests, h.Served = slices.Clone(h.Guests), slices.Clone(h.Served)
	return h
}

// Independent reports whether nothing is under way with a job, and it is not bound to others.
func (r *Record) Independent() bool {
	others := len(r.Guests) + len(r.Leaving) + len(r.Dest) + len(r.Waiters) + len(r.Claims) + len(r.Singles)
	alone := others == 0 && r.Waits == 0 && r.GuestOf == 0 && !r.Packed && !r.InArray && r.Spec.Array == nil
	kept := r.Home == nil && r.Frozen == nil && r.Target == nil && r.Plan == nil
	return alone && kept && !r.Resizing && !r.Demoted && r.Spec.Elastic == (cluster.Elastic{})
}

// Possible reports whether what a job is said to have received can be, as of now.
func (r *Record) Possible(now cluster.Time) bool {
	late := r.Acc > now || r.Started > now || r.Promotion > now
	counts := min(r.Attained, r.Weighted, r.Unweighted, r.ServedBefore, r.Rate, r.Speed)
	times := min(r.Ran, r.Done, r.Saved, r.RanBefore)
	if late || counts < 0 || times < 0 || r.Unweighted > r.Attained || r.RanBefore > r.Ran {
		return false
	}
	served := &State{Tenure: &Tenure{Account: r.Account}, Weight: cmp.Or(r.Weight, cluster.Whole)}
	return r.ServedBefore <= served.ServiceAt(now)
}

// Record writes down what is known of the job besides the jobs that a singleton waits for. Promised: its promise is
// part of that.
func (j *State) Record(promised bool) *Record {
	r := &Record{Spec: j.Spec, Facts: j.Facts, Account: j.Account.Copied(), Holdings: j.Holdings.CopiedFor(j.Spec.ID),
		Target: j.Target.Copied()}
	if j.Weight != cluster.Whole {
		r.Weight = j.Weight
	}
	if slices.Equal(j.Frozen, j.Home) && j.Asleep == j.Done {
		r.Frozen, r.Asleep = nil, 0
	}
	if promised && j.State == Pending && j.Promise != cluster.Never {
		r.Promise, r.Plan = j.Promise, slices.Clone(j.Plan)
	}
	switch {
	case j.Eligible:
		r.Key = j.Key.Key
	case j.Booked():
		r.Key, r.EndKey = j.Key.Key, j.EndKey.Key[0]
	}
	return r
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
