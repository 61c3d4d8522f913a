// Package past keeps what completed jobs tell: what a policy learns from them, once per period (Traits.Learns), and how
// long a job is likely to run.
package past

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// mostJobs is how many completed jobs are kept: the last ones.
const mostJobs = 1000

// Book is the jobs that completed last.
type Book struct {
	world   *sched.World
	jobs    []sched.Earlier // the latest last
	inForce int             // so many of them are what the policy sees
	period  cluster.Time    // in which they were last looked at
	known   sched.Past
	changes int64
}

// New makes a book that has no jobs.
func New(w *sched.World) Book { return Book{world: w} }

// Known is what the policy sees.
func (b *Book) Known() *sched.Past { return &b.known }

// Learns reports whether completed jobs are kept at all.
func (b *Book) Learns() bool { return b.world.Traits.Learns > 0 || b.world.Traits.Predicts }

// Completed keeps what a job tells that completed now.
func (b *Book) Completed(j *job.State) {
	if !b.Learns() {
		return
	}
	c, traits := sched.Earlier{Milli: j.Spec.GPUMilli(), Ran: j.Ran, Served: j.ServiceAt(b.world.Now)}, &b.world.Traits
	if traits.Predicts || traits.Alike {
		c.User, c.Name = j.Spec.User, j.Spec.Name
	}
	if traits.Alike {
		c.Submit = j.Spec.Submit
	}
	b.changes++
	if b.jobs = append(b.jobs, c); len(b.jobs)-b.inForce > mostJobs {
		b.jobs = slices.Delete(b.jobs, b.inForce, b.inForce+1) // it would be too old by the time that it counted
	}
}

// Learn lets the policy see the jobs that completed since its last period, once that is over. It reports whether there
// are such: any job's key may change by that.
func (b *Book) Learn() bool {
	p := cluster.Time(b.world.Traits.Learns)
	if p == 0 || b.world.Now/p == b.period {
		return false
	}
	b.period = b.world.Now / p
	b.changes++
	if len(b.jobs) == b.inForce {
		return false
	}
	b.jobs = slices.Delete(b.jobs, 0, max(0, len(b.jobs)-mostJobs))
	b.count(len(b.jobs))
	return true
}

// count makes the first n jobs those that the policy sees.
func (b *Book) count(n int) {
	b.inForce = n
	services, runs := make([]int64, n), make([]time.Duration, n)
	for i := range n {
		services[i], runs[i] = b.jobs[i].Served, b.jobs[i].Ran
	}
	b.known = sched.NewPast(services, runs)
	if b.world.Traits.Alike {
		b.known.OrderSizes(b.jobs[:n])
	}
}

// Revision grows whenever Record becomes another.
func (b *Book) Revision() int64 { return b.changes }

// Record is the completed jobs that the policy learns from.
type Record struct {
	Jobs    []sched.Earlier `json:"jobs,omitempty"`     // the latest last
	InForce int             `json:"in_force,omitempty"` // so many of them are what the policy sees
	Period  cluster.Time    `json:"period,omitempty"`   // in which it last looked
}

// Record writes down what completed jobs tell; nil: nothing is learned from them.
func (b *Book) Record() *Record {
	if len(b.jobs) == 0 && b.period == 0 {
		return nil
	}
	return &Record{slices.Clone(b.jobs), b.inForce, b.period}
}

// Restore goes on with what was learned, if this policy learns. The error says what of the record cannot be.
func (b *Book) Restore(r *Record) error {
	if r == nil || !b.Learns() {
		return nil
	}
	if r.InForce < 0 || r.InForce > len(r.Jobs) || r.Period < 0 {
		return fmt.Errorf("snapshot: past: in_force %d of %d jobs, period %d", r.InForce, len(r.Jobs), r.Period)
	}
	for i := range r.Jobs {
		if c := &r.Jobs[i]; c.Served < 0 || c.Ran < 0 || c.Milli < 0 {
			return fmt.Errorf("snapshot: past: job %d has a negative service, run time or size", i)
		}
	}
	b.jobs, b.period = slices.Clone(r.Jobs), r.Period
	b.count(r.InForce)
	return nil
}

// Check checks how many jobs are kept and known.
func (b *Book) Check() error {
	if !b.Learns() && len(b.jobs) > 0 || b.inForce > min(mostJobs, len(b.jobs)) || len(b.jobs) > b.inForce+mostJobs ||
		len(b.known.Services) != b.inForce {
		return fmt.Errorf("%d completed jobs are kept, %d of them count, %d are known", len(b.jobs), b.inForce,
			len(b.known.Services))
	}
	return nil
}
