package sched

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// View is what a policy may read of the engine's state.
type View struct{ w *World }

// JobView is what a policy may read of a job.
type JobView struct {
	w *World
	j *job.State
}

// Now returns the time of the current step.
func (v View) Now() cluster.Time { return v.w.Now }

// Capacity returns the milli-GPU of all healthy GPUs of nodes that are not down.
func (v View) Capacity() cluster.Milli { return v.w.Capacity }

// Spec returns the job as it was submitted. It must not be changed.
func (j JobView) Spec() *cluster.Job { return j.j.Spec }

// Running reports whether the job holds devices.
func (j JobView) Running() bool { return j.j.State != job.Pending && j.j.State != job.Done }

// Computes reports whether the job has begun to compute in this run.
func (j JobView) Computes() bool { return j.j.Holding() && j.j.Rate > 0 }

// Stops reports whether the job was told to give up its devices.
func (j JobView) Stops() bool { return j.j.State == job.Stopping }

// Started returns when the job's current run started.
func (j JobView) Started() cluster.Time { return j.j.Started }

// FirstStart returns when the job started for the first time; Never: not yet.
func (j JobView) FirstStart() cluster.Time { return j.j.FirstStart }

// Waiting returns how long the job has waited since it was submitted or last stopped.
func (j JobView) Waiting() time.Duration {
	if j.Running() {
		return 0
	}
	return j.w.Now.Sub(j.j.Since)
}

// EligibleSince returns when the job became eligible in its present wait.
func (j JobView) EligibleSince() cluster.Time { return j.j.EligibleSince }

// Age returns how long the job has been eligible in its present wait, as of the last Rekey, so that
// heads listed at different moments can be compared.
func (j JobView) Age() time.Duration {
	at := j.w.Now
	if p := cluster.Time(j.w.Traits.Rekey); p > 0 {
		at -= at % p
	}
	return max(0, at.Sub(j.j.EligibleSince))
}

// WaitsSince returns when the job's wait began: when it was submitted, last stopped, or last
// promoted.
func (j JobView) WaitsSince() cluster.Time { return max(j.j.Since, j.j.Promotion) }

// Preemptions returns how often the job was preempted.
func (j JobView) Preemptions() int { return int(j.j.Preemptions) }

// Milli returns the milli-GPU that the job holds, or asks for while it waits.
func (j JobView) Milli() cluster.Milli { return j.j.Serves() }

// Attained returns the GPU time received so far, in milli-GPU-milliseconds.
func (j JobView) Attained() int64 { return j.j.AttainedAt(j.w.Now) }

// Service returns the weighted GPU time received so far, in milli-GPU-milliseconds: an hour of a
// GPU model counts by the model's weight.
func (j JobView) Service() int64 { return j.j.ServiceAt(j.w.Now) }

// Until returns when a running job will have received that much more Service (Tiresias, NSDI'19: in
// whole milliseconds, at the job's present width).
func (j JobView) Until(more int64) cluster.Time {
	rate, weight := j.j.Serves(), j.j.Weight
	if more == math.MaxInt64 || rate <= 0 || weight <= 0 {
		return cluster.Never
	}
	missing := more
	if weight != cluster.Whole {
		missing = order.AddSat(more, j.Service()-j.j.Weighted) // the part under the present weight first, then the rest
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
	// Service counts whole milliseconds of the clock, so the result does not depend on when it is
	// asked.
	now := j.w.Now - j.w.Now%cluster.Time(time.Millisecond)
	return now.Add(time.Duration(ms) * time.Millisecond)
}

// Executed returns the service (see Service) and the wall time that
// the job received since it was last promoted.
func (j JobView) Executed() (service int64, ran time.Duration) {
	return j.Service() - j.j.ServedBefore, j.Ran() - j.j.RanBefore
}

// Ran returns the wall time that the job has held devices, over all runs.
func (j JobView) Ran() time.Duration { return j.j.RanAt(j.w.Now) }

// Served returns the wall time that the job has held GPUs of the model.
func (j JobView) Served(gpu string) time.Duration {
	d := time.Duration(0)
	for i := range j.j.Served {
		if j.j.Served[i].GPU == gpu {
			d = j.j.Served[i].Time
		}
	}
	if j.j.Holding() && inventory.GPUOf(j.w.Store, j.j.Allocs) == gpu {
		d += j.w.Now.Sub(j.j.Acc)
	}
	return d
}

// Done returns the useful work done, as run time on the reference GPU.
func (j JobView) Done() time.Duration { return j.j.DoneAt(j.w.Now) }

// Remaining returns the estimated run time left at the job's present speed, or, while it waits, at
// its last speed, so that being stopped does not change the order. Jobs without an estimate return
// a hundred years. It is never negative.
func (j JobView) Remaining() time.Duration { return j.j.RemainingAt(j.w.Now) }

// Predicted returns how long earlier jobs like this one ran, as of its submission (Helios, SC'21,
// rolling estimate); 0: no job had completed yet, or the policy does not predict (Traits.Predicts).
func (j JobView) Predicted() time.Duration { return j.j.Predicted }

// Rate returns the speed that the job reported last in this run, in ppm of that on
// the reference GPU; 0: none yet.
func (j JobView) Rate() int64 { return j.j.Rate }

// Target returns the job's target in the last plan; nil: it was not in the plan.
func (j JobView) Target() *job.Target { return j.j.Target }
