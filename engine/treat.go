package engine

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
)

// treat decides how the network treats the traffic of running jobs, if that may be otherwise than before. A job that
// starts in this step is told with its Start.
func (e *Engine) treat() {
	if !e.links.Due() {
		return
	}
	var running []*job.State
	e.byKey().Walk(func(it order.Item) bool {
		if j := e.jobs[it.ID]; j.State == job.Starting || j.State == job.Running {
			running = append(running, j)
		}
		return true
	})
	slices.SortFunc(running, func(a, b *job.State) int { return int(a.Spec.ID - b.Spec.ID) })
	for _, j := range e.links.Treat(e.Nodes, running) {
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

// noteTraffic takes over what was measured of a job's traffic, unless it is about what was known.
func (e *Engine) noteTraffic(j *job.State, t *cluster.Traffic) {
	if t == nil || t.Check() != nil || e.cfg.Spec.Network == nil || e.links.Traffic(j).Like(t) {
		return
	}
	known := *t
	if j.Account.Traffic != nil {
		known = j.Account.Traffic.Measured(*t)
	}
	j.Account.Traffic = &known
	e.links.Changed(j)
}
