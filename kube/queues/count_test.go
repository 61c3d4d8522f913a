package queues

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// A queue counts its gangs and those of queues below it; what gangs ask for, and since when, counts while they wait.
func TestCounts(t *testing.T) {
	tree := merge([]cluster.Queue{{Name: "top"}, {Name: "a", Parent: "top"}, {Name: "b", Parent: "top"}}, nil, "")
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	own := Counts{}
	own.Add("a", true, 2000, late)
	own.Add("b", true, 1000, early)
	own.Add("b", false, 9000, time.Unix(0, 0))
	own.Add("", false, 1000, early)
	sum := own.Sum(tree)
	if c := sum["top"]; c == nil || *c != (Count{Running: 1, Pending: 2, GPUs: 3000, Oldest: early}) {
		t.Errorf("top: %+v", c)
	}
	if c := sum["a"]; c == nil || *c != (Count{Pending: 1, GPUs: 2000, Oldest: late}) {
		t.Errorf("a: %+v", c)
	}
}

// The status is looked at when something changed, so long after the last time at least, and longer if that took long.
func TestStatusPace(t *testing.T) {
	q := New(nil, "")
	now := cluster.Time(time.Hour)
	if q.NextStatus(time.Second) != cluster.Never {
		t.Error("nothing changed")
	}
	q.StatusSeen(now)
	q.StatusChanged()
	if got := q.NextStatus(time.Second); got != now.Add(time.Second) {
		t.Errorf("next at %v", got)
	}
	if q.StatusTook(time.Minute); q.NextStatus(time.Second) != now.Add(50*time.Minute) {
		t.Errorf("after a look of a minute next at %v", q.NextStatus(time.Second))
	}
}
