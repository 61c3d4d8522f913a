package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/order"
)

// treatTraffic decides how the network treats the traffic of running jobs, if that may be otherwise than before. A job
// that starts in this step is told with its Start.
func (e *Engine) treatTraffic() {
	if !e.links.Due() {
		return
	}
	for _, j := range e.links.Treat(e.Nodes, e.running.Started()) {
		e.touch(j)
		at := slices.IndexFunc(e.actions, func(a Action) bool { return a.Type == Start && a.Job == j.Spec.ID })
		if at >= 0 {
			e.actions[at].Treatment = j.Treatment
			continue
		}
		e.actions = append(order.Double(e.actions),
			Action{Type: Treat, Job: j.Spec.ID, For: cluster.NoJob, Treatment: j.Treatment})
	}
}

// OnNetwork says how a running job's traffic is treated and what it loses to others; false: it transmits nothing over
// a network that is described.
func (e *Engine) OnNetwork(id cluster.JobID) (links.View, bool) {
	return e.explain.OnNetwork(id)
}

// LinkLoads lists what the links of the network carry, by class, the busiest first.
func (e *Engine) LinkLoads() []links.Load { return e.links.Loads(e.Nodes, e.running.Started()) }

// noteTraffic takes over what was measured of a job's traffic, unless it is about what was known, and what it says of
// its slots.
func (e *Engine) noteTraffic(j *job.State, ev *Event) {
	if e.cfg.Spec.Network == nil {
		return
	}
	if s := j.Account.Slots.After(ev.Slots); s != j.Account.Slots {
		j.Account.Slots = s
		e.links.Changed(j)
	}
	t := ev.Traffic.Value()
	if ev.Iteration > 0 && t.Compute == 0 {
		t.Compute = e.links.Computing(e.Nodes, e.running.Started, j, ev.Iteration)
	}
	if t == (cluster.Traffic{}) || t.Check() != nil || e.links.Traffic(j).Like(&t) {
		return
	}
	known := t
	if j.Account.Traffic != nil {
		known = j.Account.Traffic.Measured(t)
	}
	j.Account.Traffic = &known
	e.links.Changed(j)
}
