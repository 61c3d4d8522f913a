//go:build linux

package rules

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/account"
)

// Access says who may submit where, and whose jobs go before others'.
type Access struct {
	Queues   []cluster.Queue
	Members  map[string]Members // by queue
	Defaults DefaultQueues
	Urgency  Urgency
}

// Members names users and groups of this machine.
type Members struct {
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// Has reports whether a user is named, or in a group that is.
func (m *Members) Has(u *account.User) bool {
	if slices.Contains(m.Users, u.Name) {
		return true
	}
	for _, name := range m.Groups {
		g, err := user.LookupGroup(name)
		if err != nil {
			continue // a group that does not exist has no members
		}
		if id, err := strconv.Atoi(g.Gid); err == nil && (id == u.GID || slices.Contains(u.Groups, id)) {
			return true
		}
	}
	return false
}

// DefaultQueues says in which queue jobs are that name none.
type DefaultQueues struct {
	Queue string            // of everybody who is not in Users; empty: not said
	Users map[string]string // by user
}

// Urgency says who may have jobs that go before others'.
type Urgency struct {
	Restricted bool     // to operators, admins and the queues
	Queues     []string // in which, and below which, everybody may who may submit there
}

// MaySubmit says why a user may not submit to a queue, if so. Who is named for
// a queue, or else for the nearest queue above it, may; where nobody is named,
// everybody may.
func (a *Access) MaySubmit(u *account.User, queue string) error {
	queues := a.Queues
	if err := checkQueue(queues, queue); err != nil {
		return err
	}
	for at := queue; at != ""; {
		if who, ok := a.Members[at]; ok {
			if !who.Has(u) {
				return wrongQueue("%s is not a member of %s: another queue is needed, or who runs this machine adds %s",
					u.Name, at, u.Name)
			}
			return nil
		}
		i := slices.IndexFunc(queues, func(q cluster.Queue) bool { return q.Name == at })
		if i < 0 {
			return nil
		}
		at = queues[i].Parent
	}
	return nil
}

// DefaultQueue is the queue of a job that names none: the one configured for its user, else for all,
// else the one called like the user or "default", else the only one that takes the user's jobs. Where
// several do, the user has to choose: the first of them is as likely wrong as right.
func (a *Access) DefaultQueue(u *account.User) (string, error) {
	queues := a.Queues
	var takes []string
	for i := range queues {
		name := queues[i].Name
		leaf := !slices.ContainsFunc(queues, func(q cluster.Queue) bool { return q.Parent == name })
		if leaf && a.MaySubmit(u, name) == nil {
			takes = append(takes, name)
		}
	}
	d := &a.Defaults
	for _, name := range []string{d.Users[u.Name], d.Queue, u.Name, "default"} {
		if slices.Contains(takes, name) {
			return name, nil
		}
	}
	switch len(takes) {
	case 0:
		return "", wrongQueue("no queue takes jobs of %s: the operator of this machine can add %s to one (members)",
			u.Name, u.Name)
	case 1:
		return takes[0], nil
	}
	return "", wrongQueue("several queues take jobs of %s: name one with --queue (%s); "+
		"default_queue in the configuration makes one of them the default", u.Name, strings.Join(takes, ", "))
}

// checkQueue refuses a queue where none is configured: nothing would be known of it. "default" is what
// everything is in there.
func checkQueue(queues []cluster.Queue, name string) error {
	if len(queues) > 0 || name == "" || name == "default" {
		return nil
	}
	return wrongQueue("there is no queue %s: none is configured here; leave it out", name)
}

func wrongQueue(format string, args ...any) error {
	return &ask.FieldError{Field: "queue", Text: fmt.Sprintf(format, args...)}
}

// urgent reports whether a job goes before others' by its own wish.
func urgent(spec *cluster.Job) bool { return spec.Tier == cluster.Critical || spec.Priority > 0 }

// MayUrge says why a user may not have a job that goes before others', if so. was is the job before the change that is
// checked; nil: it is new.
func (a *Access) MayUrge(u *account.User, spec, was *cluster.Job) error {
	rule := &a.Urgency
	if !rule.Restricted || u.Trusted || !urgent(spec) || a.grants(spec.Queue) {
		return nil
	}
	if was != nil && spec.Queue == was.Queue && spec.Tier >= was.Tier && spec.Priority <= was.Priority {
		return nil // it was allowed before
	}
	field, what := "priority", fmt.Sprintf("a priority above 0 (%d)", spec.Priority)
	if spec.Tier == cluster.Critical {
		field, what = "tier", "the tier critical"
	}
	how := "an operator can give it to the job"
	if len(rule.Queues) > 0 {
		how += fmt.Sprintf(", or submit to a queue that grants it (%v)", rule.Queues)
	}
	return &ask.FieldError{Field: field,
		Text: fmt.Sprintf("%s needs a right that %s does not have here: %s (urgent in the daemon's configuration)",
			what, u.Name, how)}
}

// grants reports whether a queue, or one above it, lets its jobs go before others'.
func (a *Access) grants(queue string) bool {
	queues := a.Queues
	for range len(queues) + 1 {
		if slices.Contains(a.Urgency.Queues, queue) {
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
