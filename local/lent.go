//go:build linux

package local

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// What a service does not use, jobs that may be preempted hold meanwhile. Where the service says within which time it
// has it back (ask.Replica), that bounds the time of those that make room for its replicas.

// returnMargin is the part of that time which is not the leaving jobs': for all that happens before and after.
const returnMargin = time.Second

// LeastReturn is the shortest time within which jobs can be sure to have left.
func (m *Machine) LeastReturn() time.Duration { return m.killWait() + returnMargin }

// askBack notes that a job makes room for a replica, and returns how long it has to do so, of the grace of its tier.
func (m *Machine) askBack(j, replica *job, how engine.How, grace time.Duration, now cluster.Time) time.Duration {
	j.hurry = 0
	if replica == nil || replica.Sub.Replica == nil || replica.Sub.Replica.Within == 0 {
		return grace
	}
	within := replica.Sub.Replica.Within
	if replica.loan == nil {
		replica.loan = &show.Loan{Asked: time.Unix(0, int64(now)).UTC(), Within: within}
	}
	replica.loan.Jobs = append(replica.loan.Jobs, int(j.ID))
	j.hurry = within - returnMargin
	if how != engine.Kill { // SIGTERM comes after the grace
		j.hurry -= m.killWait()
	}
	j.hurry = max(j.hurry, time.Millisecond)
	return j.hasten(grace)
}

// hasten is how long a job has to make room, of the grace of its tier.
func (j *job) hasten(grace time.Duration) time.Duration {
	if j.hurry > 0 {
		return min(grace, j.hurry)
	}
	return grace
}

// back notes that what a replica waited for is there.
func (m *Machine) back(j *job, now cluster.Time) {
	info := j.Own()
	if info.Loan = j.loan; j.loan != nil {
		info.Loan.Back, j.loan = time.Unix(0, int64(now)).UTC(), nil
	}
}

// reclaimer is the oldest replica that waits, of a service that says within which time it has GPUs back; nil: none.
func (m *Machine) reclaimer() (first *job) {
	for _, j := range m.jobs {
		if r := j.Sub.Replica; r != nil && r.Within > 0 && m.eng.Record(j.ID).State <= engine.Placed &&
			(first == nil || j.ID < first.ID) {
			first = j
		}
	}
	return first
}

// Lent lists the running jobs that would make room, all or part of what they hold, if a number of jobs of a submission
// came now, in the order in which they would be asked. Nothing is changed: a second engine is asked.
func (m *Machine) Lent(u User, s *ask.Submission, n int) ([]int, error) {
	spec, err := m.jobOf(s, &u)
	if err != nil {
		return nil, err
	}
	q, err := m.question(s, &spec)
	if err != nil {
		return nil, err
	}
	q.snap.Next += cluster.JobID(n - 1)
	m.tests.Lock()
	defer m.tests.Unlock()
	e, err := m.restored(&q.rules, &q.snap)
	if err != nil {
		return nil, err
	}
	var asked []engine.Event
	for i := range n {
		one := spec
		one.ID += cluster.JobID(i)
		asked = append(asked, engine.Event{Type: engine.Submitted, Job: one.ID, Spec: &one})
	}
	var jobs []int
	d := e.Step(engine.Batch{Now: max(q.now, e.Now()), Events: asked})
	for i := range d.Actions {
		a := &d.Actions[i]
		leaves := a.Type == engine.Preempt && a.For >= spec.ID && a.For != cluster.NoJob || a.Type == engine.Resize
		if leaves && a.Job < spec.ID && !slices.Contains(jobs, int(a.Job)) {
			jobs = append(jobs, int(a.Job))
		}
	}
	return jobs, nil
}

// SetLent says of running jobs which service lends them what they hold, in words; those that are not in it hold nothing
// of that kind.
func (m *Machine) SetLent(by map[int]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lent = by
}
