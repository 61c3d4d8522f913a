package relocations

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
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

// Finder is the engine that decides.
type Finder interface {
	Moved() []engine.Moves
}

// Answered answers what the engine was asked in the step before, if it was, and lists those of the chosen gangs that it
// does not move. It may be asked again then.
func (r *Room) Answered(e Finder, byID map[cluster.JobID]*gang.Gang) (staying []*gang.Gang) {
	q, chosen := r.asking, r.chosen
	if q == nil || !q.sent {
		return nil
	}
	q.Answer <- driver.Moves(e.Moved(), func(id cluster.JobID) int {
		if g := byID[id]; g != nil {
			return g.Book.Number
		}
		return 0
	})
	r.asking, r.chosen = nil, nil
	return slices.DeleteFunc(chosen, func(g *gang.Gang) bool { return g.Phase != gang.Running || g.Relocation != nil })
}
