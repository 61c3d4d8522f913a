//go:build linux

package local

import (
	"fmt"
	"reflect"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/replicas"
	"github.com/muster-gpu/muster/show"
)

// Lender is a service that lends what it does not run.
type Lender struct {
	Owner    User
	Replica  *ask.Submission // of the next replica
	Replicas int             // the most that it may have
}

// Offers is what replicas of services can count on.
func (m *Machine) Offers() replicas.Offers {
	w := m.opt.Rules.Spec.Ways(nil)
	return replicas.Offers{Return: replicas.LeastReturn(m.killWait()), Parts: w.Parts()}
}

// reclaimer is the oldest replica that waits, of a service that says within which time it has GPUs back; nil: none.
func reclaimer(e *engine.Engine, jobs map[cluster.JobID]*job) (first *record.Job) {
	for _, j := range jobs {
		if j.Sub.Lender() != "" && e.Record(j.ID).State <= engine.Placed &&
			(first == nil || j.ID < first.ID) {
			first = &j.Job
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
	return replicas.MakeRoom(e, spec, n, q.now), nil
}

// Lend has these services lend, and no others.
func (m *Machine) Lend(list []Lender) error {
	var lenders []cluster.Lender
	for i := range list {
		l := &list[i]
		spec, err := m.jobOf(l.Replica, &l.Owner)
		if err != nil {
			return fmt.Errorf("service %s: %w", l.Replica.Replica.Service, err)
		}
		lenders = append(lenders, cluster.Lender{Service: l.Replica.Replica.Service, Replica: &spec,
			Replicas: l.Replicas})
	}
	m.mu.RLock()
	known := m.eng.Common().Lenders
	m.mu.RUnlock()
	if !reflect.DeepEqual(known, lenders) {
		m.event(engine.Event{Type: engine.LendersChanged, Lenders: lenders})
	}
	return nil
}

// Loans are what services lend to jobs.
func (m *Machine) Loans() *replicas.Loans { return &m.loans }

// Slowed says what is left of a replica's speed beside the jobs on its GPUs, as it was measured.
func (m *Machine) Slowed(id int, part float64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	j := m.jobs[cluster.JobID(id)]
	if j == nil {
		return
	}
	model := func(id cluster.JobID) string {
		if o := m.jobs[id]; o != nil {
			return o.Spec.Model
		}
		return ""
	}
	if ev, news := replicas.Slowed(m.eng, &j.Job, part, model); news {
		m.event(ev)
	}
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
