//go:build linux

package local

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// Members names users and groups of this machine.
type Members struct {
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// Has reports whether a user is named, or in a group that is.
func (m *Members) Has(u *User) bool {
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

// maySubmit says why a user may not submit to a queue, if so. Who is named for
// a queue, or else for the nearest queue above it, may; where nobody is named,
// everybody may.
func (m *Machine) maySubmit(u *User, queue string) error {
	queues := m.opt.Rules.Spec.Queues
	if err := checkQueue(queues, queue); err != nil {
		return err
	}
	for at := queue; at != ""; {
		if who, ok := m.opt.Members[at]; ok {
			if !who.Has(u) {
				return &ask.FieldError{Field: "queue", Text: fmt.Sprintf("%s is not a member of %s: another queue is needed, or who runs this machine adds %s", u.Name, at, u.Name)}
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
