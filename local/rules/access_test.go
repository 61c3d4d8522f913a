//go:build linux

package rules

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/account"
)

// Who is named for a queue, or for the nearest one above it, may submit; where
// nobody is named, everybody may. A default queue is configured, or the only one that takes the user.
func TestMembers(t *testing.T) {
	a := &Access{Members: map[string]Members{
		"research": {Users: []string{"ann"}, Groups: []string{"root"}},
		"lab":      {Users: []string{"bob"}},
	}}
	a.Queues = []cluster.Queue{{Name: "research"}, {Name: "lab", Parent: "research"},
		{Name: "vision", Parent: "research"}, {Name: "open"}}
	ann, bob := &account.User{Name: "ann", GID: 5}, &account.User{Name: "bob", GID: 5}
	eve := &account.User{Name: "eve", GID: 6, Groups: []int{0}}
	for _, c := range []struct {
		u     *account.User
		queue string
		may   bool
	}{{ann, "research", true}, {ann, "vision", true}, {ann, "lab", false}, {bob, "lab", true}, {bob, "vision", false},
		{bob, "open", true}, {eve, "vision", true}, {eve, "lab", false}, {bob, "unknown", true}} {
		if err := a.MaySubmit(c.u, c.queue); (err == nil) != c.may {
			t.Errorf("%s to %s: %v", c.u.Name, c.queue, err)
		}
	}
	carl := &account.User{Name: "carl", GID: 5}
	for u, want := range map[*account.User]string{
		ann: "several queues take jobs of ann: name one with --queue (vision, open)", bob: "several queues",
		carl: "open", eve: "(vision, open)"} {
		got, err := a.DefaultQueue(u)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("default queue of %s: %s, not %s", u.Name, got, want)
		}
	}
	a.Defaults = DefaultQueues{Queue: "open", Users: map[string]string{"bob": "lab", "eve": "lab"}}
	// eve is no member of lab
	for u, want := range map[*account.User]string{ann: "open", bob: "lab", eve: "open", carl: "open"} {
		if got, err := a.DefaultQueue(u); got != want || err != nil {
			t.Errorf("default queue of %s: %s (%v), not %s", u.Name, got, err, want)
		}
	}
	a.Queues = nil
	for queue, may := range map[string]bool{"": true, "default": true, "research": false} {
		if err := a.MaySubmit(ann, queue); (err == nil) != may {
			t.Errorf("where no queue is configured, %q: %v", queue, err)
		}
	}
}
