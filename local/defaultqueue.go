//go:build linux

package local

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// DefaultQueues says in which queue jobs are that name none.
type DefaultQueues struct {
	Queue string            // of everybody who is not in Users; empty: not said
	Users map[string]string // by user
}

// defaultQueue is the queue of a job that names none: the one configured for its user, else for all,
// else the one called like the user or "default", else the only one that takes the user's jobs. Where
// several do, the user has to choose: the first of them is as likely wrong as right.
func (m *Machine) defaultQueue(u *User) (string, error) {
	queues := m.opt.Rules.Spec.Queues
	var takes []string
	for i := range queues {
		name := queues[i].Name
		leaf := !slices.ContainsFunc(queues, func(q cluster.Queue) bool { return q.Parent == name })
		if leaf && m.maySubmit(u, name) == nil {
			takes = append(takes, name)
		}
	}
	d := &m.opt.DefaultQueues
	for _, name := range []string{d.Users[u.Name], d.Queue, u.Name, "default"} {
		if slices.Contains(takes, name) {
			return name, nil
		}
	}
	switch len(takes) {
	case 0:
		return "", &ask.FieldError{Field: "queue", Text: fmt.Sprintf("no queue takes jobs of %s: whoever runs this machine can add %s to one (members)", u.Name, u.Name)}
	case 1:
		return takes[0], nil
	}
	return "", &ask.FieldError{Field: "queue", Text: fmt.Sprintf("several queues take jobs of %s: name one with --queue (%s); default_queue in the configuration makes one of them the default",
		u.Name, strings.Join(takes, ", "))}
}

// checkQueue refuses a queue where none is configured: nothing would be known of it. "default" is what
// everything is in there.
func checkQueue(queues []cluster.Queue, name string) error {
	if len(queues) > 0 || name == "" || name == "default" {
		return nil
	}
	return &ask.FieldError{Field: "queue", Text: fmt.Sprintf("there is no queue %s: none is configured here; leave it out", name)}
}
