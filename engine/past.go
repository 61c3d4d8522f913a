package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// mostPast is how many completed jobs are kept: the last ones.
const mostPast = 1000

// past is the jobs that completed last, the latest last. The first inForce of
// them are those that the policy sees.
type past struct {
	jobs    []sched.Earlier
	inForce int
	period  cluster.Time // in which they were last looked at
	known   sched.Past
	changes int64
}

// learns reports whether completed jobs are kept at all.
func (e *Engine) learns() bool { return e.w.Traits.Learns > 0 || e.w.Traits.Predicts }

// completed keeps what a job tells that completed.
func (e *Engine) completed(j *job.State) {
	if !e.learns() {
		return
	}
	c := sched.Earlier{Milli: j.Spec.GPUMilli(), Ran: j.Ran, Served: j.ServiceAt(e.w.Now)}
	if e.w.Traits.Predicts || e.w.Traits.Alike {
		c.User, c.Name = j.Spec.User, j.Spec.Name
	}
	if e.w.Traits.Alike {
		c.Submit = j.Spec.Submit
	}
	p := &e.past
	p.changes++
	if p.jobs = append(p.jobs, c); len(p.jobs)-p.inForce > mostPast {
		p.jobs = slices.Delete(p.jobs, p.inForce, p.inForce+1) // it would be too old by the time that it counted
	}
}

// learn lets the policy see the jobs that completed since its last period; any
// job's key may change by that.
func (e *Engine) learn() {
	p := cluster.Time(e.w.Traits.Learns)
	if p == 0 || e.w.Now/p == e.past.period {
		return
	}
	e.past.period = e.w.Now / p
	e.past.changes++
	if len(e.past.jobs) == e.past.inForce {
		return
	}
	e.past.jobs = slices.Delete(e.past.jobs, 0, max(0, len(e.past.jobs)-mostPast))
	e.past.count(len(e.past.jobs), e.w.Traits.Alike)
	e.rekey()
	e.running.UpdateKeys()
	e.epoch++
	e.running.WatchAll()
}

// count makes the first n jobs those that the policy sees.
func (p *past) count(n int, alike bool) {
	p.inForce = n
	services, runs := make([]int64, n), make([]time.Duration, n)
	for i := range n {
		services[i], runs[i] = p.jobs[i].Served, p.jobs[i].Ran
	}
	p.known = sched.NewPast(services, runs)
	if alike {
		p.known.OrderSizes(p.jobs[:n])
	}
}

// PastRevision grows whenever Past becomes another.
func (e *Engine) PastRevision() int64 { return e.past.changes }

// PastRecord is the completed jobs that the policy learns from.
type PastRecord struct {
	Jobs    []sched.Earlier `json:"jobs,omitempty"`     // the latest last
	InForce int             `json:"in_force,omitempty"` // so many of them are what the policy sees
	Period  cluster.Time    `json:"period,omitempty"`   // in which it last looked
}

// Past writes down what completed jobs tell; nil: nothing is learned from them.
func (e *Engine) Past() *PastRecord {
	p := &e.past
	if len(p.jobs) == 0 && p.period == 0 {
		return nil
	}
	return &PastRecord{slices.Clone(p.jobs), p.inForce, p.period}
}

// restorePast goes on with what was learned, if this policy learns.
func (e *Engine) restorePast(r *PastRecord) error {
	if r == nil || !e.learns() {
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
	e.past.jobs, e.past.period = slices.Clone(r.Jobs), r.Period
	e.past.count(r.InForce, e.w.Traits.Alike)
	return nil
}

// checkPast checks what is kept of completed jobs.
func (e *Engine) checkPast() error {
	p := &e.past
	if !e.learns() && len(p.jobs) > 0 || p.inForce > min(mostPast, len(p.jobs)) || len(p.jobs) > p.inForce+mostPast ||
		len(p.known.Services) != p.inForce {
		return fmt.Errorf("%d completed jobs are kept, %d of them count, %d are known", len(p.jobs), p.inForce,
			len(p.known.Services))
	}
	return nil
}
