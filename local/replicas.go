//go:build linux

package local

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// Slowed says what is left of a replica's speed beside the jobs on its GPUs, as it was measured. The engine learns from
// it which models should not meet.
func (m *Machine) Slowed(id int, part float64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	j := m.jobs[cluster.JobID(id)]
	if j == nil || j.Sub.Replica == nil || !j.Spec.Shares() || len(m.eng.Company(j.ID)) == 0 {
		return
	}
	rate := int64(part * perf.Million)
	far := func(a, b int64) bool { return max(a-b, b-a) >= perf.Million/50 }
	believed := max(rate, perf.Million/2) // as far as that goes by reports
	if far(m.eng.Record(j.ID).Rate, rate) || far(m.believed(j), believed) {
		m.event(engine.Event{Type: engine.Progress, Job: j.ID, Rate: rate})
	}
}

// believed is what the engine believes to be left of a job's speed beside the one other on its GPUs, in ppm; nothing is
// lost beside several, which say nothing of one.
func (m *Machine) believed(j *job) int64 {
	among := m.eng.Company(j.ID)
	if len(among) == 1 {
		for _, p := range m.eng.Measured() {
			if o := m.jobs[among[0]]; o != nil && p.Model == j.Spec.Model && p.Beside == o.Spec.Model {
				return p.Speed
			}
		}
	}
	return perf.Million
}

// Beside lists by replica the models of the jobs that compute in shares of its GPUs and are no replicas; "": one states
// none.
func (m *Machine) Beside() map[int][]string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	models := map[int][]string{}
	for id, j := range m.jobs {
		if j.Sub.Replica == nil || !j.Stored() {
			continue
		}
		for _, other := range m.eng.Company(id) {
			if o := m.jobs[other]; o != nil && o.Sub.Replica == nil {
				models[int(id)] = append(models[int(id)], o.Spec.Model)
			}
		}
	}
	return models
}

// Replicas lists the jobs that are replicas of services and are not over.
func (m *Machine) Replicas() (list []show.Job) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, j := range m.jobs {
		if j.Sub.Replica != nil && j.Stored() {
			list = append(list, m.view(j))
		}
	}
	return list
}
