package reports

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Reports are booked a second after the last were, each gang once and in the order in which they told; at once if one
// may be its gang's last.
func TestInbox(t *testing.T) {
	var b Inbox[string]
	now := cluster.Time(time.Hour)
	if b.Next() != cluster.Never || b.Take(now) != nil {
		t.Error("an empty inbox is due")
	}
	for _, g := range []string{"b", "a", "b"} {
		b.Put(g, false)
	}
	if got := b.Take(now); !slices.Equal(got, []string{"b", "a"}) || b.Has("a") || b.Len() != 0 {
		t.Errorf("%q, and %d are left", got, b.Len())
	}
	if b.Put("a", false); b.Urgent() || b.Take(now.Add(time.Second-1)) != nil || b.Next() != now.Add(time.Second) {
		t.Errorf("booked too early; next at %v", b.Next())
	}
	if b.Put("c", true); !b.Urgent() || len(b.Take(now)) != 2 || b.Urgent() {
		t.Error("what is urgent is not booked at once")
	}
	if b.Hurry(); b.Urgent() {
		t.Error("nothing is urgent where nothing was told")
	}
}
