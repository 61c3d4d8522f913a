package forward

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// A bounded number of submissions is remembered, and a clone does not see later ones.
func TestRecent(t *testing.T) {
	var r Recent
	at := func(i int) cluster.Time { return cluster.Time(0).Add(time.Duration(i) * time.Second) }
	add := func(i int) { r.Add(&cluster.Job{ID: cluster.JobID(i), Submit: at(i)}) }
	const n = 3*RecentKept + 7
	for i := range n {
		add(i)
	}
	c := r.Clone()
	for i := range 2 * RecentKept {
		add(n + i)
	}
	for _, list := range [][]cluster.Job{c.Arrivals(1_000_000, at(n)), r.Arrivals(1_000_000, at(n+2*RecentKept))} {
		if len(list) < RecentKept || list[0].ID != 1_000_000 {
			t.Fatalf("%d arrivals", len(list))
		}
		if first, last := list[0].Submit, list[RecentKept-1].Submit; last.Sub(first) != (RecentKept-1)*time.Second {
			t.Errorf("the first %d are spread over %v: they do not repeat the latest ones", RecentKept, last.Sub(first))
		}
	}
	if got, want := c.Arrivals(0, at(n))[0].Submit, at(n); got != want {
		t.Errorf("the first is expected at %v, want %v", got, want)
	}
}
