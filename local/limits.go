//go:build linux

package local

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// Limits bound what one user can ask for. 0: no bound. Operators and admins are bound in sizes, not in numbers.
type Limits struct {
	Jobs      int // jobs that are not over; an array counts its elements
	BareTasks int // tasks of such jobs that ask for neither GPUs nor CPUs, so that nothing else bounds how many run

	Name, Comment, Env, Request int // bytes; Request: the whole submission
}

// Urgency says who may have jobs that go before others'.
type Urgency struct {
	Restricted bool     // to operators, admins and the queues
	Queues     []string // in which, and below which, everybody may who may submit there
}

// LimitError is returned for what a limit does not allow.
type LimitError struct{ Text string }

func (e *LimitError) Error() string { return e.Text }

// raise ends an error about a limit.
func raise(key string) string {
	return fmt.Sprintf("whoever runs this machine can raise limits.%s in the daemon's configuration", key)
}

// checkSizes says which part of a submission is too large, if one is.
func (l *Limits) checkSizes(s *ask.Submission) error {
	env := 0
	for _, kv := range s.Env {
		env += len(kv) + 1
	}
	for _, v := range []struct {
		field, key string
		size, most int
	}{{"name", "name", len(s.Name), l.Name}, {"comment", "comment", len(s.Comment), l.Comment}, {"env", "environment", env, l.Env}} {
		if v.most > 0 && v.size > v.most {
			return tooLarge(v.field, v.key, v.size, v.most)
		}
	}
	if l.Request == 0 {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(text) > l.Request {
		return tooLarge("submission", "request", len(text), l.Request)
	}
	return nil
}

func tooLarge(field, key string, size, most int) error {
	return &ask.FieldError{Field: field, Text: fmt.Sprintf("%d bytes are more than the %d allowed; %s", size, most, raise(key))}
}

// tally counts what users have that is not over.
type tally map[string]amount

type amount struct{ jobs, bare int }

func bareTasks(spec *cluster.Job) (n int) {
	for i := range spec.Tasks {
		if r := &spec.Tasks[i].Request; r.GPUs == 0 && r.CPU == 0 {
			n += spec.Tasks[i].Count
		}
	}
	return n
}

func (t tally) add(user string, jobs, bare int) {
	a := t[user]
	a.jobs, a.bare = a.jobs+jobs, a.bare+bare
	if t[user] = a; a == (amount{}) {
		delete(t, user)
	}
}

func (t tally) count(j *job) {
	j.bare = int32(bareTasks(j.spec))
	t.add(j.info.User.Name, 1, int(j.bare))
}

func (t tally) drop(j *job) { t.add(j.info.User.Name, -1, -int(j.bare)) }

// room says why a user may not have so much more, if so.
func (t tally) room(l *Limits, u *User, jobs, bare int) error {
	a := t[u.Name]
	switch {
	case u.Trusted:
		return nil
	case l.Jobs > 0 && jobs > 0 && a.jobs+jobs > l.Jobs:
		return &LimitError{fmt.Sprintf("%s has %d jobs that are not over, and with %d more would have more than the %d allowed (an array counts its elements); %s",
			u.Name, a.jobs, jobs, l.Jobs, raise("jobs"))}
	case l.BareTasks > 0 && bare > 0 && a.bare+bare > l.BareTasks:
		return &LimitError{fmt.Sprintf("%s has %d tasks that ask for neither GPUs nor CPUs, and with %d more would have more than the %d allowed; ask for CPUs (--cpus), or %s",
			u.Name, a.bare, bare, l.BareTasks, raise("bare_tasks"))}
	}
	return nil
}

// urgent reports whether a job goes before others' by its own wish.
func urgent(spec *cluster.Job) bool { return spec.Tier == cluster.Critical || spec.Priority > 0 }

// mayUrge says why a user may not have a job that goes before others', if so. was is the job before the change that is
// checked; nil: it is new.
func (m *Machine) mayUrge(u *User, spec, was *cluster.Job) error {
	rule := &m.opt.Urgency
	if !rule.Restricted || u.Trusted || !urgent(spec) || m.grants(spec.Queue) {
		return nil
	}
	if was != nil && spec.Queue == was.Queue && spec.Tier >= was.Tier && spec.Priority <= was.Priority { // somebody allowed it
		return nil
	}
	field, what := "priority", fmt.Sprintf("a priority above 0 (%d)", spec.Priority)
	if spec.Tier == cluster.Critical {
		field, what = "tier", "the tier critical"
	}
	how := "an operator can give it to the job"
	if len(rule.Queues) > 0 {
		how += fmt.Sprintf(", or submit to a queue that grants it (%v)", rule.Queues)
	}
	return &ask.FieldError{Field: field, Text: fmt.Sprintf("%s needs a right that %s does not have here: %s (urgent in the daemon's configuration)", what, u.Name, how)}
}

// grants reports whether a queue, or one above it, lets its jobs go before others'.
func (m *Machine) grants(queue string) bool {
	queues := m.opt.Rules.Spec.Queues
	for range len(queues) + 1 {
		if slices.Contains(m.opt.Urgency.Queues, queue) {
			return true
		}
		i := slices.IndexFunc(queues, func(q cluster.Queue) bool { return q.Name == queue })
		if i < 0 || queues[i].Parent == "" {
			return false
		}
		queue = queues[i].Parent
	}
	return false
}
