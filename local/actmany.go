//go:build linux

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Requester is a user who asks for something, and the users whose jobs it may change.
type Requester struct {
	Name string
	Owns func(user string) bool
}

// Many are the verbs that can be done to many jobs at once.
var Many = []string{"cancel", "hold", "release"}

// errNoneActed ends a change that changes nothing: it costs no step.
var errNoneActed = errors.New("nothing to do")

// ActOnAll cancels, holds or releases all jobs of a selection in one step, so that none of them
// starts in between. What cannot be done to a job does not keep it from being done to the others.
func (m *Machine) ActOnAll(ctx context.Context, sel *ask.Selection, verb string, who Requester) (ask.Acted, error) {
	done := ask.Acted{Jobs: []int{}, Refused: []ask.Refusal{}}
	c, err := newPicked(sel, who)
	if err != nil {
		return done, err
	}
	err = m.commit(ctx, func(now cluster.Time) (events []engine.Event, err error) {
		list := c.among(m.jobs)
		events, done.Jobs, m.step.trail = make([]engine.Event, 0, len(list)), make([]int, 0, len(list)),
			slices.Grow(m.step.trail, len(list))
		for _, j := range list {
			ev, err := wish(j, verb)
			switch {
			case !who.Owns(j.Info.User.Name):
				err = fmt.Errorf("job %d is %s's", j.ID, j.Info.User.Name)
			case err == nil:
				applyWish(j, verb, who.Name)
				m.note(ctx, now, verb, j, "")
				events = append(events, ev)
				done.Jobs = append(done.Jobs, int(j.ID))
				continue
			case !c.named(j):
				continue // a filter, or an array, chooses those to which it can be done
			}
			done.Refused = append(done.Refused, ask.Refusal{Job: int(j.ID), Text: err.Error()})
		}
		done.Refused = append(done.Refused, c.missing()...)
		if len(events) == 0 {
			return nil, errNoneActed
		}
		return events, nil
	})
	if errors.Is(err, errNoneActed) {
		err = nil
	}
	return done, err
}

// wish is the event by which a person cancels, holds or releases a job.
func wish(j *job, verb string) (engine.Event, error) {
	switch verb {
	case "cancel":
		return engine.Event{Type: engine.Cancelled, Job: j.ID}, nil
	case "hold":
		if j.Info.Record.State > engine.Placed {
			return engine.Event{}, fmt.Errorf("job %d is %s: only a waiting job can be held", j.ID, j.Info.State)
		}
		return engine.Event{Type: engine.Held, Job: j.ID}, nil
	case "release":
		return engine.Event{Type: engine.Held, Job: j.ID, Undo: true}, nil
	}
	return engine.Event{}, fmt.Errorf("%q cannot be done to several jobs at once", verb)
}

// applyWish notes on the job what its record does not say.
func applyWish(j *job, verb, by string) {
	if verb == "cancel" {
		j.Own().Text = doneBy(verb, by)
		return
	}
	j.Said = append(j.Said, doneBy(verb, by))
}

// picked is a selection, ready to be compared with jobs.
type picked struct {
	*ask.Selection
	who      string
	jobs     map[int]bool         // named; true: found
	elements map[int]map[int]bool // arrays' elements that are named
	found    map[int]bool         // arrays of which an element was found
}

func newPicked(sel *ask.Selection, who Requester) (*picked, error) {
	c := &picked{Selection: sel, who: who.Name, jobs: map[int]bool{}, elements: map[int]map[int]bool{},
		found: map[int]bool{}}
	for _, id := range sel.Jobs {
		c.jobs[id] = false
	}
	for i := range sel.Elements {
		e := &sel.Elements[i]
		list, err := ask.ParseArray(e.Indices)
		if err != nil {
			return nil, &ask.FieldError{Field: fmt.Sprintf("elements[%d].indices", i), Text: err.Error()}
		}
		if c.elements[e.Array] == nil {
			c.elements[e.Array] = map[int]bool{}
		}
		for _, index := range list.Indices {
			c.elements[e.Array][index] = true
		}
	}
	return c, nil
}

// among lists the jobs of a selection by number.
func (c *picked) among(jobs map[cluster.JobID]*job) (list []*job) {
	for _, j := range jobs {
		if c.includes(j) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (c *picked) includes(j *job) bool {
	id, array := int(j.ID), j.Info.Array
	if _, named := c.jobs[id]; named {
		c.jobs[id] = true
		return true
	}
	if _, named := c.jobs[array]; named && array > 0 {
		c.jobs[array] = true
		return true
	}
	if array > 0 && c.elements[array][j.Index] {
		c.found[array] = true
		return true
	}
	return c.passes(j)
}

// passes reports whether a job passes all filters.
func (c *picked) passes(j *job) bool {
	if !c.Filters() || len(c.Users) == 0 && j.Info.User.Name != c.who {
		return false
	}
	among := func(list []string, text string) bool { return len(list) == 0 || slices.Contains(list, text) }
	spec := j.Spec
	return among(c.Users, j.Info.User.Name) && among(c.Names, spec.Name) && among(c.States, j.Info.State) &&
		among(c.Queues, spec.Queue)
}

// named reports whether a job itself was named, not only an array or a filter that includes it.
func (c *picked) named(j *job) bool {
	_, named := c.jobs[int(j.ID)]
	return named && j.Info.Array != int(j.ID) || c.elements[j.Info.Array][j.Index]
}

// missing lists what was named and is not there, or is over.
func (c *picked) missing() (list []ask.Refusal) {
	for _, id := range c.Jobs {
		if !c.jobs[id] {
			list = append(list, ask.Refusal{Job: id, Text: ErrNoJob.Error(), Gone: true})
		}
	}
	for i := range c.Elements {
		if e := &c.Elements[i]; !c.found[e.Array] {
			list = append(list, ask.Refusal{Job: e.Array,
				Text: fmt.Sprintf("no element %s of array %d waits or runs", e.Indices, e.Array), Gone: true})
		}
	}
	return list
}
