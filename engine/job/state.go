// Package job is what is known of a job: what it asked for, where it is in its life, what it holds and received.
package job

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/quota"
)

// Phase is where a job is in its life.
type Phase uint8

// The states. A placed job has devices that its predecessors have not left yet.
const (
	Pending  Phase = iota
	Placed         // devices chosen, waiting for the jobs that leave them
	Starting       // Start was decided, Started has not come back
	Running
	Stopping // Preempt was decided, Stopped has not come back
	Done
)

// State is a job as the engine sees it. Times that accrue (attained, ran,
// done) hold up to acc and are continued from there with what the job holds.
type State struct {
	Spec    *cluster.Job
	*Tenure            // one that is shared, while it was given nothing so far
	Key     order.Item // while eligible: in the group; while running: in the running list; while in a pool: there
	NextKey cluster.Time

	State             Phase
	Reason            StopReason
	Parked            Parked
	How               How  // while it stops: how it was told to
	Rank              rank // where it is in the ranking,
	Rerank            bool // which may be another place now
	Eligible          bool // pending and in its group's list
	InArray           bool // it has one of its array's places
	Promoted          bool // waits longer than the starvation bound
	Waited            bool // listed while it was placed
	Lifted            bool // it is a victim, in the search for victims that goes on
	Touched           bool // its record changed in this step
	Demoted           bool // while it runs: it counts as best-effort
	Warm              bool // it was suspended while it computed; while it has devices: and went on in place
	Resizing          bool // a Resize was decided, Resized has not come back
	Packed            bool // in this run others were on its devices, or it on theirs
	IgnoresCheckpoint bool // asked for a checkpoint it saves nothing, as its driver found
	InPlan            bool // plans may be about it, and are shown it
	Whole             bool // plans only divide GPUs (Traits.OnlyDivides), and none that can be divided suits it
	Pooled            bool // plans may draw it from a pool,

	Pool        int32 // this one, in which Key is its place
	Queue       int32
	User        int32
	Shape       int32
	Base        int32 // the shape of its spec; shape is narrow while it waits in line under a plan
	Narrow      int32 // the shape of its spec as its target has it
	Group       int32 // while eligible
	InPlaced    int32 // 1 + its place among those placed; 0: it is not there
	Gen         uint32
	Devices     int32 // held, or asked for
	Tasks       int32 // of the (elastic) first set
	Waits       int32 // stopping jobs that must leave before it can start
	GuestOf     int32 // 1 + the job whose guest it is; 0: of none
	Fails       int32 // failed launches in a row
	Preemptions int32

	Milli         cluster.Milli // held, or asked for at full size
	Weight        int64         // what an hour of its GPU model counts for, thousandths, as it was booked
	Poolless      cluster.Time  // it has no place in a pool before
	Since         cluster.Time  // last became pending
	EligibleSince cluster.Time  // last became eligible
	StarvingSince cluster.Time  // in line since then, for the starvation bound; Never: not in line
	FirstStart    cluster.Time
	Ended         cluster.Time
	Predicted     time.Duration     // how long such jobs ran, as of its submission
	PromoteAt     cluster.Time      // while eligible: the next one, if it waits on
	Promise       cluster.Time      // expected start from a reservation; Never: none
	Plan          []inventory.Alloc // conservative: where the promise would have it run
	Anchor        Anchor            // how measurements of its model become its speeds
	Target        *Target           // what the policy's plan gives it; nil: not planned yet
}

// Tenure is what comes of the devices that a job was given. Of the many that wait in line most were given none yet:
// they share an empty one, which is only read. A job gets its own before it is given anything.
type Tenure struct {
	Allocs  []inventory.Alloc
	Home    []inventory.Alloc // of a suspended job: its memory is there, it resumes nowhere else
	Frozen  []inventory.Alloc // where its memory is, also when it may go on elsewhere
	Asleep  time.Duration     // useful work that it has in memory
	Leaving []inventory.Alloc // given back by a shrink, physically still held
	Dest    []inventory.Alloc // while it stops to be moved: where it goes, booked for it
	Waiters []cluster.JobID   // jobs that are to start where it leaves
	Claims  []Claim           // what the waiters count on of its CPU and RAM
	Guests  []cluster.JobID   // jobs that run beside it, the first to come first
	Moved   []cluster.Time    // when it was moved, not long ago
	EndKey  order.Item        // while it holds devices: in the list of expected ends
	Loss    int64             // what stopping it wasted when it was ranked

	Started    cluster.Time // of the current run
	LimitAt    cluster.Time // when the time limit strikes
	Acc        cluster.Time
	Attained   int64         // milli-GPU-milliseconds
	Weighted   int64         // ... by the weights of the GPU models, up to the last change of weight
	Unweighted int64         // ... of attained, what was received up to then
	Ran        time.Duration // wall time on devices
	Done       time.Duration // useful, on the reference GPU
	Saved      time.Duration // ... of which safe in a checkpoint
	Served     []Served      // wall time on devices by GPU model, where a policy plans

	ServedBefore int64         // of its weighted service, what was received before the last promotion
	RanBefore    time.Duration // of ran, likewise
	DoneBefore   time.Duration // useful work that it had at the last promotion
	Promotion    cluster.Time  // the last one; 0: there was none

	Rate   int64           // ppm of the reference; 0 until Started
	Speed  int64           // the last rate known with its GPUs for itself; 0: none
	Memory cluster.MiB     // the most that it was measured to use of any of its GPUs; 0: not measured
	Solo   int64           // the last rate known while no other job had shares of its GPUs; 0: none
	Among  []cluster.JobID // jobs that computed in shares of its GPUs when its speed was measured last
	Slow   cluster.Time    // since then it is measured to be slower among them than it accepts; 0: it is not
}

// Holding reports whether the job has devices, also when it is told to leave them.
func (j *State) Holding() bool { return j.State >= Starting && j.State <= Stopping }

// Tier is what the job counts as against others.
func (j *State) Tier() cluster.Tier {
	if j.Demoted {
		return cluster.BestEffort
	}
	return j.Spec.Tier
}

// AttainedAt is the GPU time received up to now, in milli-GPU-milliseconds.
func (j *State) AttainedAt(now cluster.Time) int64 {
	if !j.Holding() {
		return j.Attained
	}
	return j.Attained + quota.Work(j.Serves(), j.Acc, now)
}

// ServiceAt is what the job attained in hours that count alike: those of a GPU model
// by its weight.
func (j *State) ServiceAt(now cluster.Time) int64 {
	return j.Weighted + thousandths(j.AttainedAt(now)-j.Unweighted, j.Weight)
}

// thousandths is floor(n*of/1000).
func thousandths(n, of int64) int64 { return n/1000*of + n%1000*of/1000 }

// RanAt is the wall time on devices up to now.
func (j *State) RanAt(now cluster.Time) time.Duration {
	if !j.Holding() {
		return j.Ran
	}
	return j.Ran + now.Sub(j.Acc)
}

// DoneAt is the useful work done up to now, on the reference GPU.
func (j *State) DoneAt(now cluster.Time) time.Duration {
	return doneBy(now, j.State, j.Resizing, j.Done, j.Acc, j.Rate)
}

// DoneAt is the useful work of the job of a record up to now, on the reference GPU, as the engine
// counts it: while it starts again, or saves what it has, it gets no further.
func (r *Record) DoneAt(now cluster.Time) time.Duration {
	return doneBy(now, r.State, r.Resizing, r.Done, r.Acc, r.Rate)
}

func doneBy(now cluster.Time, s Phase, resizing bool, done time.Duration, acc cluster.Time, rate int64) time.Duration {
	if !Computes(s, resizing, rate) {
		return done
	}
	return done + scale(now.Sub(acc), rate)
}

// Computes reports whether a job gets further: it does not wait, start again, or save what it has.
func Computes(s Phase, resizing bool, rate int64) bool {
	return s >= Starting && s < Stopping && rate != 0 && !resizing
}

// scale returns d*ppm/1e6 without overflow for any accepted duration.
func scale(d time.Duration, ppm int64) time.Duration {
	if ppm == Million {
		return d
	}
	q, r := d/Million, d%Million
	return q*time.Duration(ppm) + r*time.Duration(ppm)/Million
}

const Million = 1_000_000

// unscale returns how long d of reference time takes at ppm.
func unscale(d time.Duration, ppm int64) time.Duration {
	if ppm == Million || ppm <= 0 {
		return d
	}
	q, r := d/time.Duration(ppm), d%time.Duration(ppm)
	return q*Million + r*Million/time.Duration(ppm)
}

// RemainingAt is the estimated wall time left; without an estimate, forever.
func (j *State) RemainingAt(now cluster.Time) time.Duration {
	if j.Spec.Estimate == 0 {
		return cluster.MaxDuration
	}
	left := max(0, j.Spec.Estimate-j.DoneAt(now))
	if j.Holding() && j.Rate > 0 {
		return unscale(left, j.Rate)
	}
	return unscale(left, j.Speed)
}

// UnsavedAt is the useful work that an abrupt stop would lose: everything since
// the last periodic checkpoint, or since the last one that the job reported.
func (j *State) UnsavedAt(now cluster.Time) time.Duration {
	done := j.DoneAt(now)
	c := &j.Spec.Checkpoint
	if c.Interval > 0 && !c.None {
		return min(done-j.Saved, done%c.Interval)
	}
	return done - j.Saved
}

// Thaw lets a suspended job go where it likes: what it has in memory counts only
// if it happens to come back there.
func (j *State) Thaw() {
	j.Home, j.Done = nil, j.Done-j.UnsavedAt(0) // it computes nothing: the time does not matter
}

// LostAt is the device time that stopping the job wastes, in milli-GPU times
// milliseconds: what it computed since its last checkpoint (or the cost of
// writing one now, if it can) plus the restart (Daly 2006, victim choice).
func (j *State) LostAt(now cluster.Time, how How) int64 {
	if j.State == Placed {
		return 0
	}
	c := &j.Spec.Checkpoint
	lost := j.UnsavedAt(now)
	switch {
	case how == Suspend:
		return j.Serves() * int64(c.Suspend/time.Millisecond)
	case how == Checkpoint && !c.None && !j.IgnoresCheckpoint:
		lost = min(lost, c.Cost)
	}
	return j.Serves() * int64((lost+c.Restart)/time.Millisecond)
}

// ExpectedEnd is when the scheduler may count on the devices: after the
// estimate, at the latest at the limit. An overdue job is expected to end
// after another twentieth of its run, at least a minute (never in the past).
func (j *State) ExpectedEnd(now cluster.Time) cluster.Time {
	end := j.LimitAt
	if j.Spec.Estimate > 0 {
		end = min(end, now.Add(j.RemainingAt(now)))
		if end <= now {
			end = now.Add(max(time.Minute, j.RanAt(now)/20))
		}
	}
	return end
}

// ExpectedRun is how long a pending job will hold its devices.
func (j *State) ExpectedRun(limit time.Duration) time.Duration {
	d := cluster.MaxDuration
	if limit > 0 {
		d = limit
	}
	if j.Spec.Estimate > 0 {
		left := j.Spec.Estimate - j.Done
		if left <= 0 { // it was wrong: as for an overdue job that runs
			left = max(time.Minute, j.Ran/20)
		}
		d = min(d, left+j.Spec.Checkpoint.Restart)
	}
	return d
}

// rank says in which list of the ranking a job is.
type rank uint8

const (
	Unranked rank = iota
	RankedSteady
	RankedGrowing
)

// AwaitsTime reports whether a job may be considered as time goes by.
func (j *State) AwaitsTime() bool {
	return j.State == Pending && !j.Eligible && j.Parked != ParkedHold && j.Parked != ParkedArray && j.Parked != ParkedPlan
}

// HeldCPUAndRAM sums what the job's allocations hold of CPU and RAM.
func (j *State) HeldCPUAndRAM() (cpu cluster.Milli, ram cluster.MiB) {
	for i := range j.Allocs {
		cpu += j.Allocs[i].CPU
		ram += j.Allocs[i].RAM
	}
	return cpu, ram
}

func (s Phase) String() string { return NameOf(uint8(s), stateNames) }

// Label is the job's number, and its name if it has one.
func (j *State) Label() string {
	if j.Spec.Name == "" {
		return fmt.Sprintf("job %d", j.Spec.ID)
	}
	return fmt.Sprintf("job %d %s", j.Spec.ID, j.Spec.Name)
}

// Hosted reports whether the job is a guest.
func (j *State) Hosted() bool { return j.GuestOf != 0 }

// Serves is the milli-GPU by which service counts: a guest's devices serve it, too.
func (j *State) Serves() cluster.Milli {
	if j.Hosted() {
		return cluster.Milli(j.Devices) * cluster.Whole
	}
	return j.Milli
}

// Yields is how much of its speed whom a guest is beside is to keep, in ppm; 0: that was
// not said.
func (j *State) Yields() int64 {
	if !j.Hosted() || j.Target == nil {
		return 0
	}
	return j.Target.Yield
}

// MovedSince counts how often the job was moved from an instant on.
func (j *State) MovedSince(at cluster.Time) (n int) {
	for _, t := range j.Moved {
		if t > at {
			n++
		}
	}
	return n
}

// Began reports whether the job ran at all: its devices did something.
func (j *State) Began() bool { return j.Speed > 0 }

// GoingAllocs is what a job still holds physically although the books have
// promised it on: everything while it stops, the surplus while it shrinks.
func (j *State) GoingAllocs() []inventory.Alloc {
	if j.State == Stopping && len(j.Leaving) == 0 {
		return j.Allocs
	}
	if j.State == Stopping {
		return append(j.Leaving[:len(j.Leaving):len(j.Leaving)], j.Allocs...)
	}
	return j.Leaving
}

// LeastStay is how long at least a job has been where it is before it leaves that for
// another's memory, or its own: what a start costs may not be known yet.
const LeastStay = 30 * time.Second

// SettledAt is from when on a job that runs may leave where it is for another's memory: it
// has been there for half as long as that takes, so that it gets on however often it moves.
func (j *State) SettledAt() cluster.Time {
	c := &j.Spec.Checkpoint
	return j.Started.Add(max(LeastStay, (c.Cost+c.Restart)/2))
}

// StaysFor reports whether a job that runs is not believed to end within a time.
func (j *State) StaysFor(d time.Duration, now cluster.Time) bool {
	return j.RemainingAt(now) > d && (j.LimitAt <= 0 || j.LimitAt > now.Add(d))
}

// Booked reports whether the books count the job's allocations as taken.
func (j *State) Booked() bool {
	return j.State == Placed || j.State == Starting || j.State == Running
}

// Tenant is how the allocations of the job's shares name it (Alloc.Tenant).
func (j *State) Tenant() int32 { return int32(j.Spec.ID) + 1 }
