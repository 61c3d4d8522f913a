// Package job holds what is known of a job: its request, its phase, what it holds and what it has
// received.
package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/quota"
)

// Phase is a job's phase of life.
type Phase uint8

// The phases. A placed job has devices that the jobs before it have not left yet.
const (
	Pending  Phase = iota
	Placed         // devices chosen, waiting for the jobs that leave them
	Starting       // Start was decided, Started has not come back
	Running
	Stopping // Preempt was decided, Stopped has not come back
	Done
)

// State is a job as the engine sees it. Accrued values (Attained, Ran, Done) are as of Acc; what
// the job holds has accrued since.
type State struct {
	Spec *cluster.Job
	Facts
	*Tenure            // a shared empty one until the job is given something
	Key     order.Item // in its group while eligible; in the running list while running; in its pool while pooled
	NextKey cluster.Time

	Waited  bool // listed while it was placed
	Touched bool // its record changed in this step
	InPlan  bool // plans concern it
	Whole   bool // plans only divide GPUs (Traits.OnlyDivides), and it suits none that can be divided
	Pooled  bool // it is in a pool

	Pool     int32 // the pool, in which Key is its place
	Queue    int32
	User     int32
	Shape    int32
	Base     int32 // shape of its spec; Shape is narrower while it waits in line under a plan
	Narrow   int32 // shape of its spec as narrowed by its target
	Group    int32 // while eligible
	InPlaced int32 // 1 + index among the placed jobs; 0: none
	Gen      uint32
	Devices  int32 // held, or asked for

	Milli     cluster.Milli     // held, or asked for at full size
	Weight    int64             // weight of its GPU model as booked, in thousandths
	Poolless  cluster.Time      // it cannot be pooled before this time
	PromoteAt cluster.Time      // while eligible: the next promotion, if it keeps waiting
	Promise   cluster.Time      // expected start from a reservation; Never: none
	Plan      []inventory.Alloc // conservative backfill: where the promise lets it run
	Anchor    Anchor            // converts measurements of its model to its speeds
	Target    *Target           // what the policy's plan gives it; nil: not planned yet
}

// Tenure is the part of a job's state that comes with devices. Most jobs in line have had none yet:
// they share an empty Tenure, which is never written. A job gets its own before it is given
// anything.
type Tenure struct {
	Account
	Holdings
	EndKey order.Item // while it holds devices: in the list of expected ends
}

// Holding reports whether the job has devices, even if it was told to give them up.
func (j *State) Holding() bool { return j.State >= Starting && j.State <= Stopping }

// Tier is the tier that counts against other jobs.
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

// ServiceAt is the weighted GPU time received up to now: an hour of a GPU model counts by its
// weight.
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

// DoneAt is the useful work of a record's job up to now, on the reference GPU, as the engine counts
// it: a job makes no progress while it restarts or writes a checkpoint.
func (r *Record) DoneAt(now cluster.Time) time.Duration {
	return doneBy(now, r.State, r.Resizing, r.Done, r.Acc, r.Rate)
}

func doneBy(now cluster.Time, s Phase, resizing bool, done time.Duration, acc cluster.Time, rate int64) time.Duration {
	if !Computes(s, resizing, rate) {
		return done
	}
	return done + scale(now.Sub(acc), rate)
}

// Computes reports whether a job makes progress: it does not wait, restart or write a checkpoint.
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

// Thaw lets a suspended job resume anywhere: what it has in memory counts only if it happens to
// resume where that is.
func (j *State) Thaw() {
	j.Home, j.Done = nil, j.Done-j.UnsavedAt(0) // it computes nothing, so any time will do
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

// ExpectedEnd is when the scheduler expects the devices back: after the estimate, at the latest at
// the limit. An overdue job is expected to end after another twentieth of its run, at least a
// minute (never in the past).
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
		if left <= 0 { // the estimate was too low: as for an overdue running job
			left = max(time.Minute, j.Ran/20)
		}
		d = min(d, left+j.Spec.Checkpoint.Restart)
	}
	return d
}

// AwaitsTime reports whether the passing of time alone can make the job eligible.
func (j *State) AwaitsTime() bool {
	return j.State == Pending && !j.Eligible && j.Parked != ParkedHold && j.Parked != ParkedArray &&
		j.Parked != ParkedPlan
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

// Serves is the milli-GPU for which the job receives service; a guest's devices count, too.
func (j *State) Serves() cluster.Milli {
	if j.Hosted() {
		return cluster.Milli(j.Devices) * cluster.Whole
	}
	return j.Milli
}

// Yields is the share of its host's speed, in ppm, that a guest must leave; 0: not given.
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

// Began reports whether the job has ever run on its devices.
func (j *State) Began() bool { return j.Speed > 0 }

// GoingAllocs is what a job still holds physically after the books have given it away: everything
// while it stops, the surplus while it shrinks.
func (j *State) GoingAllocs() []inventory.Alloc {
	if j.State == Stopping && len(j.Leaving) == 0 {
		return j.Allocs
	}
	if j.State == Stopping {
		return append(j.Leaving[:len(j.Leaving):len(j.Leaving)], j.Allocs...)
	}
	return j.Leaving
}

// LeastStay is the least time that a job stays where it is before it leaves for memory elsewhere,
// another job's or its own: the cost of a start may not be known yet.
const LeastStay = 30 * time.Second

// MovableAt is when a running job may be moved to make room for another's memory: it has been there
// for half as long as moving takes, so it makes progress however often it is moved.
func (j *State) MovableAt() cluster.Time {
	c := &j.Spec.Checkpoint
	return j.Started.Add(max(LeastStay, (c.Cost+c.Restart)/2))
}

// StaysFor reports whether a running job is expected to run longer than a given time.
func (j *State) StaysFor(d time.Duration, now cluster.Time) bool {
	return j.RemainingAt(now) > d && (j.LimitAt <= 0 || j.LimitAt > now.Add(d))
}

// Booked reports whether the books count the job's allocations as taken.
func (j *State) Booked() bool {
	return j.State == Placed || j.State == Starting || j.State == Running
}

// InBooks is what the inventory counts as taken for the job.
func (j *State) InBooks() []inventory.Alloc {
	if j.Booked() {
		return j.Allocs
	}
	return j.Dest
}

// Tenant identifies the job in the allocations of its shares (Alloc.Tenant).
func (j *State) Tenant() int32 { return tenant(j.Spec.ID) }

func tenant(id cluster.JobID) int32 { return int32(id) + 1 }

// Owned is a copy of allocations in which shares are the job's.
func (j *State) Owned(allocs []inventory.Alloc) []inventory.Alloc { return owned(allocs, j.Spec.ID) }

func owned(allocs []inventory.Alloc, id cluster.JobID) []inventory.Alloc {
	list := slices.Clone(allocs)
	for i := range list {
		if list[i].Share != 0 && list[i].Slots == 0 {
			list[i].Tenant = tenant(id)
		}
	}
	return list
}
