package job

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Carryover is what a job was given under other numbers, before it was submitted under this
// one: on Kubernetes a gang that had to leave is another job once its owner has recreated its
// pods. It continues like a preempted job: what it was given counts with
// every policy, and so does the work that it saved.
type Carryover struct {
	Attained int64         `json:"attained,omitempty"` // milli-GPU-milliseconds
	Service  int64         `json:"service,omitempty"`  // ... by the weights of the GPU models
	Ran      time.Duration `json:"ran,omitempty"`      // wall time on devices
	Done     time.Duration `json:"done,omitempty"`     // useful work that is saved, on the reference GPU
	// the last speed known with its GPUs for itself, ppm; 0: none
	Rate        int64         `json:"rate,omitempty"`
	Preemptions int32         `json:"preemptions,omitempty"`   // how often it had to leave
	FirstStart  cluster.Time  `json:"first_start,omitempty"`   // 0: it never started
	Served      []Served      `json:"served,omitempty"`        // of Ran, by GPU model, where a policy plans
	Promotion   cluster.Time  `json:"promotion,omitempty"`     // the last one by the policy (Promoter); 0: none
	Before      int64         `json:"served_before,omitempty"` // ... what of Service was received before
	RanBefore   time.Duration `json:"ran_before,omitempty"`    // ... and of Ran
	DoneBefore  time.Duration `json:"done_before,omitempty"`   // ... and the useful work that it had then
}

// CarryoverAt is what a job that stops now, for others, carries over to the one that goes on in its place; nil: it was
// given nothing. Served is the time for which it has held GPUs of each model up to now, which is not copied.
func (j *State) CarryoverAt(now cluster.Time, served []Served) *Carryover {
	if j.FirstStart == cluster.Never {
		return nil
	}
	c := &Carryover{Attained: j.AttainedAt(now), Service: j.ServiceAt(now), Ran: j.RanAt(now), Done: j.DoneAt(now),
		Rate: j.Speed, Preemptions: j.Preemptions,
		FirstStart: j.FirstStart, Served: served, Promotion: j.Promotion, Before: j.ServedBefore,
		RanBefore: j.RanBefore, DoneBefore: j.DoneBefore}
	if j.Holding() {
		c.Done -= j.UnsavedAt(now)
	}
	return c
}

// Possible reports whether the numbers can be those of a job, as of now.
func (c *Carryover) Possible(now cluster.Time) bool {
	for _, s := range c.Served {
		if s.Time < 0 || s.Time > c.Ran {
			return false
		}
	}
	return min(c.Attained, c.Service, c.Rate, c.Before) >= 0 && min(c.Ran, c.Done, c.RanBefore, c.DoneBefore) >= 0 &&
		c.Preemptions >= 0 &&
		max(c.Attained, c.Service) <= mostCarried && c.Rate <= mostRate && c.Preemptions <= 1<<20 &&
		max(c.Ran, c.Done, c.DoneBefore) <= cluster.MaxDuration &&
		max(c.FirstStart, c.Promotion) <= now && c.Before <= c.Service && c.RanBefore <= c.Ran
}

// What a job can carry over at most: what it is given from then on does not overflow.
const (
	mostCarried = 1 << 61 // milli-GPU-milliseconds: a year of 70,000 GPUs
	mostRate    = 1e12    // ppm
)

// GoOn gives a job that is submitted what it carries over, which is possible. It has a tenure of its own.
func (j *State) GoOn(c *Carryover) { c.write(&j.Facts, &j.Account, &j.Holdings) }

// To books it in the record of a job that started later, for an engine that goes on from
// that record; false: it cannot be what a job was given.
func (c *Carryover) To(r *Record, now cluster.Time) bool {
	if !c.Possible(now) {
		return false
	}
	c.write(&r.Facts, &r.Account, &r.Holdings)
	return true
}

func (c *Carryover) write(f *Facts, a *Account, h *Holdings) {
	a.Attained, a.Weighted, a.Unweighted = c.Attained, c.Service, c.Attained
	a.Ran, a.Done, a.Saved, a.Speed, f.Preemptions = c.Ran, c.Done, c.Done, c.Rate, c.Preemptions
	a.ServedBefore, a.RanBefore, a.DoneBefore, a.Promotion = c.Before, c.RanBefore, c.DoneBefore, c.Promotion
	h.Served = slices.Clone(c.Served)
	if c.FirstStart > 0 {
		f.FirstStart = c.FirstStart
	}
}
