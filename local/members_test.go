//go:build linux

package local

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Who is named for a queue, or for the nearest one above it, may submit; where
// nobody is named, everybody may. A default queue is one that takes the user.
func TestMembers(t *testing.T) {
	m := &Machine{opt: Options{Members: map[string]Members{
		"research": {Users: []string{"ann"}, Groups: []string{"root"}},
		"lab":      {Users: []string{"bob"}},
	}}}
	m.opt.Rules.Spec.Queues = []cluster.Queue{{Name: "research"}, {Name: "lab", Parent: "research"}, {Name: "vision", Parent: "research"}, {Name: "open"}}
	ann, bob := &User{Name: "ann", GID: 5}, &User{Name: "bob", GID: 5}
	eve := &User{Name: "eve", GID: 6, Groups: []int{0}}
	for _, c := range []struct {
		u     *User
		queue string
		may   bool
	}{{ann, "research", true}, {ann, "vision", true}, {ann, "lab", false}, {bob, "lab", true}, {bob, "vision", false},
		{bob, "open", true}, {eve, "vision", true}, {eve, "lab", false}, {bob, "unknown", true}} {
		if err := m.maySubmit(c.u, c.queue); (err == nil) != c.may {
			t.Errorf("%s to %s: %v", c.u.Name, c.queue, err)
		}
	}
	for u, want := range map[*User]string{ann: "vision", bob: "lab", {Name: "carl", GID: 5}: "open"} {
		if got := m.defaultQueue(u); got != want {
			t.Errorf("default queue of %s: %s, not %s", u.Name, got, want)
		}
	}
}
