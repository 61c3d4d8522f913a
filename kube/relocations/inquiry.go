package relocations

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/show"
)

// Request asks the engine that decides for moves.
type Request struct {
	Event  engine.Event
	Answer chan []show.Moves // gets what was found, once
	sent   bool
}

// NewRequest asks for moves that let a job start, or that empty nodes.
func NewRequest(job cluster.JobID, by engine.Compact) *Request {
	return &Request{Event: engine.Event{Type: engine.Defragment, Job: job, Compact: by},
		Answer: make(chan []show.Moves, 1)}
}

// Asked reports whether the engine is being asked.
func (r *Room) Asked() bool { return r.asking != nil }

// Ask notes what the engine is asked next, and the gangs that come back when they are stopped until it has answered, in
// the order of their jobs.
func (r *Room) Ask(q *Request, chosen []*gang.Gang) { r.asking, r.chosen = q, chosen }

// StepBegins notes that all that the engine was to be told is in its next step.
func (r *Room) StepBegins() {
	if r.asking != nil {
		r.asking.sent = true
	}
}

// Answered is what the engine was asked in the step before, and those of the gangs that stay where they are; nil: it
// was not asked. It may be asked again then.
func (r *Room) Answered() (q *Request, staying []*gang.Gang) {
	q, staying = r.asking, r.chosen
	if q == nil || !q.sent {
		return nil, nil
	}
	r.asking, r.chosen = nil, nil
	return q, slices.DeleteFunc(staying, func(g *gang.Gang) bool {
		return g.Phase != gang.Running || g.Relocation != nil
	})
}
