// Package confirm remembers what the engine was told in a step and has to take over: of gangs that run, and of nodes.
// The engine ignores what does not fit, which is found after the step.
package confirm

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/nodes"
)

// Step is what it was told in a step. The zero step is nothing.
type Step struct {
	Events  []engine.Event
	records map[cluster.JobID]*engine.JobRecord // of jobs, as they will be
}

// Record is what the engine knows of a job, or will when it has heard all of this; nil: nothing.
func (s *Step) Record(e *engine.Engine, id cluster.JobID) *engine.JobRecord {
	if r := s.records[id]; r != nil {
		now := *r
		return &now
	}
	return e.Record(id)
}

// Must notes an event that the engine has to take over.
func (s *Step) Must(ev engine.Event) engine.Event {
	s.Events = append(s.Events, ev)
	return ev
}

// Reshaped tells the engine what a gang that runs is made of now.
func (s *Step) Reshaped(rec *engine.JobRecord) engine.Event {
	if s.records == nil {
		s.records = map[cluster.JobID]*engine.JobRecord{}
	}
	s.records[rec.Spec.ID] = rec
	as := &engine.Reshape{Tasks: rec.Spec.Tasks, Allocs: rec.Allocs}
	return s.Must(engine.Event{Type: engine.JobReshaped, Job: rec.Spec.ID, Reshape: as})
}

// Adopted tells the engine of a gang that runs.
func (s *Step) Adopted(rec *engine.JobRecord) engine.Event {
	return s.Must(engine.Event{Type: engine.Adopted, Job: rec.Spec.ID, Record: rec})
}

// Refused lists what the engine did not take over.
func (s *Step) Refused(e *engine.Engine, all *nodes.Room) (list []engine.Event) {
	for i := range s.Events {
		if !tookOver(e, all, &s.Events[i]) {
			list = append(list, s.Events[i])
		}
	}
	return list
}

// tookOver reports whether the engine took over an event. A job that is on its way out has nothing to take over.
func tookOver(e *engine.Engine, all *nodes.Room, ev *engine.Event) bool {
	if ev.Type == engine.NodeChanged {
		return all.TookOver(ev, e.Nodes())
	}
	r := e.Record(ev.Job)
	switch {
	case r == nil:
		return ev.Type != engine.Adopted
	case r.State != engine.Starting && r.State != engine.Running:
		return true
	case ev.Type == engine.JobReshaped:
		return slices.Equal(r.Spec.Tasks, ev.Reshape.Tasks)
	case ev.Type == engine.Updated:
		return r.Spec.NoRequeue == ev.Spec.NoRequeue
	}
	return true
}

// Kept counts what is remembered.
func (s *Step) Kept() int { return len(s.Events) + len(s.records) }
