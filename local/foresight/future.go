package foresight

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/show"
)

// mostForeseen is for how many waiting jobs an expected start is estimated where
// looking ahead did not reach.
const mostForeseen = 50

// Future is what an engine does at once, and the line of jobs that then wait.
type Future struct {
	eng       *engine.Engine
	starts    map[cluster.JobID]bool
	preempted []engine.Action
	line      []engine.Waiting
	pos       map[cluster.JobID]int // from 1
	seen      *forward.Result
}

// FutureOf lets an engine go on until nothing happens any more at this instant; a job that is to leave leaves at once.
// ahead is how another of the same state goes on in virtual time.
func FutureOf(e *engine.Engine, now cluster.Time, ahead func(forward.Options) (*forward.Result, error)) (f *Future,
	err error) {
	f = &Future{eng: e, starts: map[cluster.JobID]bool{}, pos: map[cluster.JobID]int{}}
	now = max(now, e.Now())
	events := []engine.Event{{Type: engine.Tick}}
	for round := 0; len(events) > 0 && round < mostRounds; round++ {
		d := e.Step(engine.Batch{Now: now, Events: events})
		events = f.follow(&d, now)
	}
	if f.seen, err = ahead(forward.Options{Now: now, Events: []engine.Event{{Type: engine.Tick}}}); err != nil {
		return nil, err
	}
	most := mostForeseen
	if f.seen.Complete() {
		most = 0
	}
	f.line = e.Line(most)
	for i := range f.line {
		f.pos[f.line[i].Job] = i + 1
	}
	return f, nil
}

// mostRounds bounds how often jobs that start make others leave at one instant.
const mostRounds = 16

// follow notes what is decided and returns what comes of it.
func (f *Future) follow(d *engine.Decision, now cluster.Time) (events []engine.Event) {
	for i := range d.Actions {
		a := d.Actions[i]
		switch a.Type {
		case engine.Start:
			f.starts[a.Job] = true
			events = append(events, engine.Event{Type: engine.Started, Job: a.Job, Rate: 1_000_000})
		case engine.Resize:
			events = append(events, engine.Event{Type: engine.Resized, Job: a.Job, Rate: 1_000_000})
		case engine.Preempt:
			if a.Reason != engine.Preempted {
				continue
			}
			f.preempted = append(f.preempted, a)
			rec := f.eng.Record(a.Job)
			done := rec.DoneAt(now)
			if a.How == engine.Kill {
				done = rec.Saved
			}
			events = append(events,
				engine.Event{Type: engine.Stopped, Job: a.Job, Reason: engine.Preempted, Done: done})
		}
	}
	return events
}

// Compare says how two futures differ.
func Compare(before, after *Future, v show.PolicyChange) show.PolicyChange {
	var starts []cluster.JobID
	for id := range after.starts {
		if !before.starts[id] {
			starts = append(starts, id)
		}
	}
	slices.Sort(starts)
	for _, id := range starts {
		v.Starts = append(v.Starts, row(before, after, id))
	}
	for _, a := range after.preempted {
		if slices.ContainsFunc(before.preempted, func(b engine.Action) bool { return b.Job == a.Job }) {
			continue
		}
		j := row(before, after, a.Job)
		j.How = a.How.String()
		if a.For != cluster.NoJob {
			j.For = int(a.For)
		}
		v.Preempted = append(v.Preempted, j)
	}
	for _, w := range after.line {
		v.Waiting = append(v.Waiting, row(before, after, w.Job))
	}
	return v
}

// row is a job in two futures.
func row(before, after *Future, id cluster.JobID) show.PolicyJob {
	spec := after.eng.Spec(id)
	j := show.PolicyJob{Job: int(id), Name: spec.Name, User: spec.User, Queue: spec.Queue,
		GPUs:   float64(spec.GPUMilli()) / float64(cluster.Whole),
		Before: before.pos[id], After: after.pos[id]}
	if j.Before > 0 {
		j.ExpectedBefore = before.start(id)
	}
	if j.After > 0 {
		j.ExpectedAfter = after.start(id)
	}
	return j
}

// start is when a job in line is expected to start.
func (f *Future) start(id cluster.JobID) *time.Time {
	if at, ok := f.seen.Starts[id]; ok {
		return Instant(at)
	}
	return Instant(f.line[f.pos[id]-1].Expected)
}
