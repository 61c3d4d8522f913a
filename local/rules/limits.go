//go:build linux

package rules

import (
	"encoding/json"
	"fmt"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/account"
)

// Limits bound what one user can ask for. 0: no bound. Operators and admins are bound in sizes, not in numbers.
type Limits struct {
	Jobs      int // jobs that are not over; an array counts its elements
	BareTasks int // tasks of such jobs that ask for neither GPUs nor CPUs, so that nothing else bounds how many run

	Name, Comment, Env, Request int // bytes; Request: the whole submission
}

// LimitError is returned for what a limit does not allow.
type LimitError struct{ Text string }

func (e *LimitError) Error() string { return e.Text }

// raise ends an error about a limit.
func raise(key string) string {
	return fmt.Sprintf("the operator of this machine can raise limits.%s in the daemon's configuration", key)
}

// CheckSizes says which part of a submission is too large, if one is.
func (l *Limits) CheckSizes(s *ask.Submission) error {
	env := 0
	for _, kv := range s.Env {
		env += len(kv) + 1
	}
	for _, v := range []struct {
		field, key string
		size, most int
	}{{"name", "name", len(s.Name), l.Name}, {"comment", "comment", len(s.Comment), l.Comment},
		{"env", "environment", env, l.Env}} {
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
	return &ask.FieldError{Field: field,
		Text: fmt.Sprintf("%d bytes are more than the %d allowed; %s", size, most, raise(key))}
}

// Tally counts what users have that is not over.
type Tally map[string]amount

type amount struct{ jobs, bare int }

// BareTasks counts the tasks of a job that ask for neither GPUs nor CPUs.
func BareTasks(spec *cluster.Job) (n int) {
	for i := range spec.Tasks {
		if r := &spec.Tasks[i].Request; r.GPUs == 0 && r.CPU == 0 {
			n += spec.Tasks[i].Count
		}
	}
	return n
}

// Add counts so many more, or fewer.
func (t Tally) Add(user string, jobs, bare int) {
	a := t[user]
	a.jobs, a.bare = a.jobs+jobs, a.bare+bare
	if t[user] = a; a == (amount{}) {
		delete(t, user)
	}
}

// Room says why a user may not have so much more, if so.
func (t Tally) Room(l *Limits, u *account.User, jobs, bare int) error {
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
