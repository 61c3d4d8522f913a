//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/plain"
	"github.com/muster-gpu/muster/local/after"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/store"
)

// ErrNoJob is returned for a job that there is not.
var ErrNoJob = errors.New("no such job")

// ErrStuck is returned for a change that could not be stored: it is carried out
// when it can be, unless the daemon ends before.
var ErrStuck = errors.New("the state cannot be written (is its disk full?); what was asked is done when it can be, if the daemon lives until then")

// Submit accepts a job, or an array, for a user. When it returns, the jobs are
// stored: they survive whatever happens next. A second submission of the user
// with the same key answers with the jobs of the first.
func (m *Machine) Submit(ctx context.Context, u User, s *ask.Submission, key string) ([]int, error) {
	if err := u.CanRun(); err != nil {
		return nil, err
	}
	spec, err := m.jobOf(s, &u)
	if err != nil {
		return nil, err
	}
	sharing, err := m.choose(s, &spec)
	if err != nil {
		return nil, err
	}
	array := ask.Array{Indices: []int{after.NotElement}}
	if s.Array != "" {
		if array, err = ask.ParseArray(s.Array); err != nil {
			return nil, &ask.FieldError{Field: "array", Text: err.Error()}
		}
	}
	var ids []int
	err = m.commit(ctx, func(now cluster.Time) ([]engine.Event, error) {
		var err error
		if ids, err = m.sameKey(u.Name, key); err != nil || ids != nil {
			return nil, err
		}
		if err := m.tally.Room(&m.opt.Limits, &u, len(array.Indices),
			len(array.Indices)*rules.BareTasks(&spec)); err != nil {
			return nil, err
		}
		after, err := m.afterEach(s, array.Indices)
		if err != nil {
			return nil, err
		}
		spec.After = after(0)
		spec.ID, spec.Submit = m.next, now
		folder, err := record.GoesOn(s, &u, known{m, m.eng, m.keeper.Places})
		if err != nil {
			return nil, err
		}
		guessed := m.known.Guess(&spec)
		if text := m.eng.Check(&spec); text != "" {
			return nil, &ask.FieldError{Field: "submission", Text: text}
		}
		rec := engine.JobRecord{Facts: engine.JobFacts{Since: now}}
		info := record.Info{User: u, Record: rec, Guessed: guessed, Sharing: sharing, Folder: folder}
		events := make([]engine.Event, 0, len(array.Indices))
		of := m.newArray(s, array, &info)
		for k, index := range array.Indices {
			j := m.newJob(s, spec, &info)
			if j.Spec.After = after(k); of != nil {
				of.Add(&j.Job, index, array.Cap)
			}
			ids = append(ids, int(j.ID))
			events = append(events, engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j.Spec})
		}
		if key != "" {
			m.step.keys = append(m.step.keys, submissionKey{u.Name, key, ids})
		}
		return events, nil
	})
	return ids, err
}

// afterEach translates what the elements of an array wait for: each for its like, or all for the same. All of
// it is known before the first job is made, so that a submission that is refused leaves none behind.
func (m *Machine) afterEach(s *ask.Submission, indices []int) (after func(k int) []cluster.Dependency, err error) {
	n := 1
	if s.Corresponds() {
		n = len(indices)
	}
	lists := make([][]cluster.Dependency, n)
	for k := range lists {
		if lists[k], err = m.dependencies(s, indices[k]); err != nil {
			return nil, err
		}
	}
	return func(k int) []cluster.Dependency { return lists[min(k, n-1)] }, nil
}

// submissionKey is an idempotency key with the jobs that came of it.
type submissionKey struct {
	user, key string
	ids       []int
}

// sameKey returns the jobs of an earlier submission with the key; nil: none.
func (m *Machine) sameKey(user, key string) ([]int, error) {
	if key == "" {
		return nil, nil
	}
	for _, k := range m.step.keys { // of this very step
		if k.user == user && k.key == key {
			return k.ids, nil
		}
	}
	text, err := m.store.Key(m.running, user, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []int
	return ids, json.Unmarshal([]byte(text), &ids)
}

// jobOf is the job that a user's submission asks for, with what was left open filled in, in both.
func (m *Machine) jobOf(s *ask.Submission, u *User) (spec cluster.Job, err error) {
	if spec, err = s.Job(); err != nil {
		return spec, err
	}
	spec.User = u.Name
	m.mu.RLock()
	defer m.mu.RUnlock()
	if s.Dir == "" {
		s.Dir = u.Home
	}
	if err := s.CheckTexts(); err != nil {
		return spec, err
	}
	if s.Name == "" {
		switch {
		case s.ScriptName != "":
			s.Name = plain.Text(filepath.Base(s.ScriptName))
		case len(s.Command) > 0:
			s.Name = plain.Text(filepath.Base(s.Command[0]))
		default:
			s.Name = "job"
		}
		spec.Name = s.Name
	}
	if err := m.checkHosts(&spec); err != nil {
		return spec, err
	}
	if spec.Queue == "" && len(m.opt.Rules.Spec.Queues) > 0 {
		name, err := m.access().DefaultQueue(u)
		if err != nil {
			return spec, err
		}
		spec.Queue, s.Queue = name, name
	}
	if err := m.access().MaySubmit(u, spec.Queue); err != nil {
		return spec, err
	}
	if err := m.opt.Limits.CheckSizes(s); err != nil {
		return spec, err
	}
	return spec, m.access().MayUrge(u, &spec, nil)
}

// newArray makes an array known of which the next job will be the first element; nil: it is a single job. info
// is what the elements have in common.
func (m *Machine) newArray(s *ask.Submission, list ask.Array, info *record.Info) *record.Array {
	if s.Array == "" {
		return nil
	}
	extent := rangeOf(list)
	info.Indices = &extent
	a := record.NewArray(m.next, list.Indices, s, info)
	m.step.arrived = append(m.step.arrived, a)
	return a
}

func rangeOf(a ask.Array) record.ArrayRange {
	n := len(a.Indices)
	return record.ArrayRange{Count: n, Min: a.Indices[0], Max: a.Indices[n-1], Step: a.Step()}
}

// newJob makes a job known under the next number.
func (m *Machine) newJob(s *ask.Submission, spec cluster.Job, info *record.Info) *job {
	spec.ID = m.next
	m.next++
	j := &job{Job: record.Job{ID: spec.ID, Sub: s, Spec: &spec, Info: info}}
	if info.Array == 0 {
		info.Record.Spec = j.Spec
	}
	m.jobs[j.ID] = j
	j.count(m.tally)
	return j
}

// commit lets change run at the beginning of the next step, with the state
// locked, and returns when its events are stored.
func (m *Machine) commit(ctx context.Context, change func(cluster.Time) ([]engine.Event, error)) error {
	done := make(chan error, 1)
	m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		if ctx.Err() != nil {
			done <- ctx.Err() // the caller has gone: nothing happens
			return nil, nil
		}
		events, err := change(now)
		if err != nil {
			done <- err
			return nil, nil
		}
		return events, func(err error) { done <- err }
	})
	return m.await(ctx, done)
}

// await returns what becomes of a change, unless it cannot be stored now.
func (m *Machine) await(ctx context.Context, done <-chan error) error {
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-m.running.Done():
			return errors.New("the daemon is ending")
		case <-look.C:
			if m.Stuck() {
				return ErrStuck
			}
		}
	}
}
