//go:build linux

package local

import (
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/after"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/show"
)

// What-if questions are answered by a second engine, restored from a snapshot
// of the first: the very code that will decide, asked in advance.

// Test says what would become of a submission: an error, or a job that is not
// there with the time at which it would be expected to start.
func (m *Machine) Test(u User, s *ask.Submission) (show.Job, error) {
	if err := u.CanRun(); err != nil {
		return show.Job{}, err
	}
	spec, err := m.jobOf(s, &u)
	if err != nil {
		return show.Job{}, err
	}
	q, err := m.question(s, &spec)
	if err != nil {
		return show.Job{}, err
	}
	m.tests.Lock()
	defer m.tests.Unlock()
	e, err := m.restored(&q.rules, &q.snap)
	if err != nil {
		return show.Job{}, err
	}
	asked := []engine.Event{{Type: engine.Submitted, Job: spec.ID, Spec: &spec}}
	d := e.Step(engine.Batch{Now: max(q.now, e.Now()), Events: asked})
	rec := *e.Record(spec.ID)
	j := record.Job{ID: spec.ID, Spec: rec.Spec, Sub: s,
		Info: &record.Info{User: u, Record: rec, State: record.State(&rec, false)}}
	v := j.View(m.opt.Now())
	if starts(&d, spec.ID) {
		v.Expected = foresight.Instant(q.now)
		return v, nil
	}
	y := e.Why(spec.ID)
	v.Position = y.Ahead + 1
	o, err := q.known.RunAhead(m.second(&q.rules, &q.snap), &q.snap,
		forward.Options{Now: q.now, Events: asked, For: []cluster.JobID{spec.ID}})
	if err != nil {
		return show.Job{}, err
	}
	seen := foresight.Forecast{Seen: o, Waiting: map[cluster.JobID]bool{spec.ID: true}}
	foresight.SetWhen(&v, &seen, &y, q.now)
	if start, ok := seen.Start(spec.ID); ok && v.Expected != nil {
		a := foresight.PredictionOf(&spec, start, q.now)
		m.mu.RLock()
		m.known.Predict(&v, &a, &seen)
		m.mu.RUnlock()
	}
	return v, nil
}

// question is the state in which it is asked what would become of a submission.
type question struct {
	now   cluster.Time
	rules config.Rules
	snap  engine.Snapshot
	known *foresight.Expectations
}

// question prepares a job for a place among those that there are.
func (m *Machine) question(s *ask.Submission, spec *cluster.Job) (q question, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if spec.After, err = m.dependencies(s, firstIndex(s)); err != nil {
		return q, err
	}
	q.now, q.rules = m.clock.Now(), m.rules()
	spec.ID, spec.Submit = m.next, q.now
	guessed := m.known.Guess(spec)
	if text := m.eng.Check(spec); text != "" {
		return q, &ask.FieldError{Field: "submission", Text: text}
	}
	q.snap, q.known = m.eng.Snapshot(), m.expectations()
	if guessed {
		q.known.Guess(spec)
	}
	q.snap.Next++
	return q, nil
}

// firstIndex is the index of the first element that a submission asks for.
func firstIndex(s *ask.Submission) int {
	a, err := ask.ParseArray(s.Array)
	if err != nil {
		return after.NotElement
	}
	return a.Indices[0]
}

// fork makes a second engine in the state of a snapshot.
func (m *Machine) fork(snap *engine.Snapshot) (*engine.Engine, error) {
	rules := m.rules()
	return m.restored(&rules, snap)
}

func starts(d *engine.Decision, id cluster.JobID) bool {
	for i := range d.Actions {
		if d.Actions[i].Type == engine.Start && d.Actions[i].Job == id {
			return true
		}
	}
	return false
}

// mayAsk reports whether a user has the right to what a changed job asks for.
func (m *Machine) mayAsk(who *User, spec, was *cluster.Job) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.access().MayUrge(who, spec, was) == nil
}
