//go:build linux

package local

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/foresight"
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
	spec, err := s.Job()
	if err != nil {
		return show.Job{}, err
	}
	spec.User = u.Name
	if err := m.defaults(s, &spec, &u); err != nil {
		return show.Job{}, err
	}
	q, err := m.question(s, &spec)
	if err != nil {
		return show.Job{}, err
	}
	m.outlook.tests.Lock()
	defer m.outlook.tests.Unlock()
	e, err := m.restored(&q.rules, &q.snap)
	if err != nil {
		return show.Job{}, err
	}
	asked := []engine.Event{{Type: engine.Submitted, Job: spec.ID, Spec: &spec}}
	d := e.Step(engine.Batch{Now: max(q.now, e.Now()), Events: asked})
	info := Info{User: u, Record: *e.Record(spec.ID)}
	info.State = stateOf(&info.Record, false)
	v := view(&info, s, int(spec.ID), m.opt.Now())
	if starts(&d, spec.ID) {
		v.Expected = foresight.Instant(q.now)
		return v, nil
	}
	y := e.Why(spec.ID)
	v.Position = y.Ahead + 1
	o, err := m.outlooks(&q.rules, &q.snap, forward.Options{Now: q.now, Events: asked, For: []cluster.JobID{spec.ID}},
		q.known)
	if err != nil {
		return show.Job{}, err
	}
	seen := foresight.Forecast{Seen: o, Waiting: map[cluster.JobID]bool{spec.ID: true}}
	tellWhen(&v, &seen, &y, q.now)
	if start, ok := seen.Start(spec.ID); ok && v.Expected != nil {
		a := askedOf(&spec, start, q.now)
		m.mu.RLock()
		m.correct(&v, &a, &seen)
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
	guessed := m.guess(spec)
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
		return notElement
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

// placed reports whether the job got devices, be it that others leave them first.
func placed(e *engine.Engine, id cluster.JobID) bool {
	s := e.Record(id).State
	return s != engine.Pending && s != engine.Done
}

// change is something that a user could ask for instead.
type change struct {
	text string
	edit func(*cluster.Job)
}

// changes lists what the job could ask for instead, the smallest first.
func (m *Machine) changes(spec *cluster.Job) (list []change) {
	r := spec.Tasks[0].Request
	add := func(text string, edit func(*cluster.Job)) { list = append(list, change{text, edit}) }
	request := func(edit func(*cluster.TaskSet)) func(*cluster.Job) {
		return func(j *cluster.Job) {
			j.Tasks = append([]cluster.TaskSet(nil), j.Tasks...)
			edit(&j.Tasks[0])
		}
	}
	if len(spec.GPUTypes) > 0 {
		add("any GPU model", func(j *cluster.Job) { j.GPUTypes = nil })
	}
	if r.Memory > 0 {
		add("less GPU memory", request(func(t *cluster.TaskSet) { t.Request.Memory = 0 }))
	}
	if r.RAM > 0 {
		add(fmt.Sprintf("half the host memory (%d MiB per task)", r.RAM/2),
			request(func(t *cluster.TaskSet) { t.Request.RAM /= 2 }))
	}
	if r.CPU > 1000 {
		add(fmt.Sprintf("half the CPU cores (%g per task)", float64(r.CPU)/2000),
			request(func(t *cluster.TaskSet) { t.Request.CPU /= 2 }))
	}
	if spec.Topology.Required {
		add("without the required topology level", func(j *cluster.Job) { j.Topology.Required = false })
	}
	if spec.Limit == 0 || spec.Limit > 10*time.Minute {
		add("a time limit of 10m (it may pass in a gap)", func(j *cluster.Job) { j.Limit = 10 * time.Minute })
	}
	for n := spec.Tasks[0].Count - 1; n >= 1 && len(list) < mostChanges; n-- {
		add(fmt.Sprintf("%d tasks instead of %d", n, spec.Tasks[0].Count),
			request(func(t *cluster.TaskSet) { t.Count = n }))
	}
	for g := r.GPUs - 1; g >= 1 && len(list) < mostChanges; g-- {
		add(fmt.Sprintf("%d GPUs per task instead of %d", g, r.GPUs),
			request(func(t *cluster.TaskSet) { t.Request.GPUs = g }))
	}
	if r.GPUs == 1 && r.Profile == "" && !r.Fractional() {
		add("half a GPU", request(func(t *cluster.TaskSet) { t.Request.Share = 500 }))
	}
	if spec.Tier == cluster.Standard {
		add("tier best-effort (it may use what its queue is not owed, and is the first to leave)",
			func(j *cluster.Job) { j.Tier = cluster.BestEffort })
	}
	if spec.Tier != cluster.Critical {
		add("tier critical (it would preempt)", func(j *cluster.Job) { j.Tier = cluster.Critical })
	}
	return list
}

// mostChanges is how many single changes are tried.
const mostChanges = 12

// tryChanges returns the single changes that would give the job devices now, of those that
// who asks may make.
func (m *Machine) tryChanges(who *User, spec *cluster.Job, snap *engine.Snapshot) (list []string, err error) {
	tasks := false
	for _, c := range m.changes(spec) {
		if tasks && c.text[0] >= '1' && c.text[0] <= '9' {
			continue // fewer still would do as well
		}
		e, err := m.fork(snap)
		if err != nil {
			return nil, err
		}
		other := *spec
		c.edit(&other)
		if e.Check(&other) != "" || !m.mayAsk(who, &other, spec) {
			continue
		}
		e.Step(engine.Batch{Now: snap.Now, Events: []engine.Event{{Type: engine.Updated, Job: spec.ID, Spec: &other}}})
		if placed(e, spec.ID) {
			list = append(list, c.text)
			tasks = tasks || c.text[0] >= '1' && c.text[0] <= '9'
		}
	}
	return list, nil
}

// mayAsk reports whether a user has the right to what a changed job asks for.
func (m *Machine) mayAsk(who *User, spec, was *cluster.Job) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.access().MayUrge(who, spec, was) == nil
}
