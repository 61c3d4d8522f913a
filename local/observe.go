//go:build linux

package local

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/foresight"
)

// Observer counts what happens, for metrics. Its methods return at once.
type Observer interface {
	// Stepped: how long a step took, and how long it took to store it.
	Stepped(took, stored time.Duration)
	// NotStored: the store could not be written.
	NotStored()
	Submitted(jobs int)
	// Preempted: the reason is tier, reclaim, priority or other.
	Preempted(reason string)
	// Predicted: by how much a job started later (or, below 0, earlier) than was first predicted.
	Predicted(late time.Duration)
	Ended(state string)
	// Idle: what was done about a job that does not use its GPUs: warned, demoted, stopped; or busy: it computes again.
	Idle(what string)
}

type noObserver struct{}

func (noObserver) Stepped(_, _ time.Duration) {}
func (noObserver) NotStored()                 {}
func (noObserver) Submitted(int)              {}
func (noObserver) Preempted(string)           {}
func (noObserver) Predicted(time.Duration)    {}
func (noObserver) Ended(string)               {}
func (noObserver) Idle(string)                {}

// observe counts what a step decided.
func (m *Machine) observe(b *engine.Batch, d *engine.Decision) {
	submitted := 0
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Type == engine.Submitted {
			submitted++
			if j := m.jobs[ev.Job]; j != nil {
				m.known.Recent.Add(foresight.Stated(ev.Spec, time.Duration(j.Sub.Estimate)))
			}
		}
	}
	m.known.Started(b.Now, d)
	if submitted > 0 {
		m.opt.Observe.Submitted(submitted)
	}
	for i := range d.Actions {
		a := &d.Actions[i]
		j := m.jobs[a.Job]
		switch {
		case j == nil:
		case a.Type == engine.Preempt && a.Reason == engine.Preempted:
			m.opt.Observe.Preempted(whyPreempted(m.eng, j, a.For))
		case a.Type == engine.Start && j.firstPrediction != 0:
			m.opt.Observe.Predicted(b.Now.Sub(j.firstPrediction))
			j.firstPrediction = 0
		}
	}
}

// whyPreempted says what let one job displace another.
func whyPreempted(e *engine.Engine, victim *job, by cluster.JobID) string {
	other := e.Record(by)
	if by == cluster.NoJob || other == nil {
		return "other"
	}
	v := victim.Spec
	switch {
	case other.Spec.Tier < v.Tier, victim.Info.Record.Demoted && other.Spec.Tier < cluster.BestEffort:
		return "tier"
	case other.Spec.Queue != v.Queue:
		return "reclaim"
	}
	return "priority"
}

// Counts is how many jobs and devices there are in which state.
type Counts struct {
	Jobs   map[string]int // by state; those that are not over
	Idle   map[string]int // by stage: running jobs that do not use their GPUs
	Oldest time.Duration  // how long the oldest waiting job waits already
}

// Counts counts the jobs.
func (m *Machine) Counts() Counts {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := Counts{Jobs: map[string]int{}, Idle: map[string]int{}}
	now := cluster.Time(m.opt.Now().UnixNano())
	for _, j := range m.jobs {
		if !j.Stored() {
			continue
		}
		c.Jobs[j.Info.State]++
		if stage := j.Info.IdleStage(); stage != "" {
			c.Idle[stage]++
		}
		if j.Info.Record.State == engine.Pending && j.Info.Record.Home == nil {
			c.Oldest = max(c.Oldest, now.Sub(j.Info.Record.Since))
		}
	}
	return c
}
