package engine

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// Given is what a job was given under other numbers, before it was submitted under this
// one: on Kubernetes a gang that had to leave is another job once its owner has recreated its
// pods. It continues like a preempted job: what it was given counts with
// every policy, and so does the work that it saved.
type Given struct {
	Attained int64         `json:"attained,omitempty"` // milli-GPU-milliseconds
	Service  int64         `json:"service,omitempty"`  // ... by the weights of the GPU models
	Ran      time.Duration `json:"ran,omitempty"`      // wall time on devices
	Done     time.Duration `json:"done,omitempty"`     // useful work that is saved, on the reference GPU
	// the last speed known with its GPUs for itself, ppm; 0: none
	Rate        int64         `json:"rate,omitempty"`
	Preemptions int32         `json:"preemptions,omitempty"`   // how often it had to leave
	FirstStart  cluster.Time  `json:"first_start,omitempty"`   // 0: it never started
	Served      []job.Served  `json:"served,omitempty"`        // of Ran, by GPU model, where a policy plans
	Promotion   cluster.Time  `json:"promotion,omitempty"`     // the last one by the policy (Promoter); 0: none
	Before      int64         `json:"served_before,omitempty"` // ... what of Service was received before
	RanBefore   time.Duration `json:"ran_before,omitempty"`    // ... and of Ran
	DoneBefore  time.Duration `json:"done_before,omitempty"`   // ... and the useful work that it had then
}

// valid reports whether the numbers can be those of a job, as of now.
func (b *Given) valid(now cluster.Time) bool {
	for _, s := range b.Served {
		if s.Time < 0 || s.Time > b.Ran {
			return false
		}
	}
	return min(b.Attained, b.Service, b.Rate, b.Before) >= 0 && min(b.Ran, b.Done, b.RanBefore, b.DoneBefore) >= 0 &&
		b.Preemptions >= 0 &&
		max(b.Attained, b.Service) <= mostGiven && b.Rate <= mostRate && b.Preemptions <= 1<<20 &&
		max(b.Ran, b.Done, b.DoneBefore) <= cluster.MaxDuration &&
		max(b.FirstStart, b.Promotion) <= now && b.Before <= b.Service && b.RanBefore <= b.Ran
}

// What a job can have been given at most: what it is given from then on does not overflow.
const (
	mostGiven = 1 << 61 // milli-GPU-milliseconds: a year of 70,000 GPUs
	mostRate  = 1e12    // ppm
)

// Given is what a job that stops now, for others, has been given, for the one that goes
// on in its place; nil: nothing, or there is no such job.
func (e *Engine) Given(id cluster.JobID, now cluster.Time) *Given {
	j := e.job(id)
	if j == nil || j.FirstStart == cluster.Never {
		return nil
	}
	b := &Given{Attained: j.AttainedAt(now), Service: j.ServiceAt(now), Ran: j.RanAt(now), Done: j.DoneAt(now),
		Rate: j.Speed, Preemptions: j.Preemptions,
		FirstStart: j.FirstStart, Served: slices.Clone(j.Served), Promotion: j.Promotion, Before: j.ServedBefore,
		RanBefore: j.RanBefore, DoneBefore: j.DoneBefore}
	if j.Holding() {
		b.Done -= j.UnsavedAt(now)
		if gpu := inventory.GPUOf(&e.st, j.Allocs); e.plan.Active() && now > j.Acc {
			b.Served = job.Serve(b.Served, gpu, now.Sub(j.Acc))
		}
	}
	return b
}

// goOn gives a job that is submitted what it was given before.
func (e *Engine) goOn(j *job.State, b *Given) {
	if b == nil || !b.valid(e.w.Now) {
		return
	}
	e.giveTenure(j)
	j.Attained, j.Weighted, j.Unweighted = b.Attained, b.Service, b.Attained
	j.Ran, j.Done, j.Saved, j.Speed, j.Preemptions = b.Ran, b.Done, b.Done, b.Rate, b.Preemptions
	j.ServedBefore, j.RanBefore, j.DoneBefore, j.Promotion = b.Before, b.RanBefore, b.DoneBefore, b.Promotion
	if j.Served = slices.Clone(b.Served); b.FirstStart > 0 {
		j.FirstStart = b.FirstStart
	}
}

// To books it in the record of a job that started later, for an engine that goes on from
// that record; false: it cannot be what a job was given.
func (b *Given) To(r *job.Record, now cluster.Time) bool {
	if !b.valid(now) {
		return false
	}
	r.Attained, r.Weighted, r.Unweighted = b.Attained, b.Service, b.Attained
	r.Ran, r.Done, r.Saved, r.Speed, r.Preemptions = b.Ran, b.Done, b.Done, b.Rate, b.Preemptions
	r.ServedBefore, r.RanBefore, r.DoneBefore, r.Promotion = b.Before, b.RanBefore, b.DoneBefore, b.Promotion
	r.Served = slices.Clone(b.Served)
	if b.FirstStart > 0 {
		r.FirstStart = b.FirstStart
	}
	return true
}
