package look

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// What blocks a gang is said in a stem, which is news when it is another, and what changes all the time beside it.
func TestFull(t *testing.T) {
	at := cluster.Time(100 * time.Second)
	for _, c := range []struct {
		y          engine.Why
		keptOff    string
		stem, full string
	}{
		{engine.Why{Text: "after two", Expected: cluster.Never}, "", "waits for its turn after two",
			"waits for its turn after two"},
		{engine.Why{Blockers: []string{"full", "quota"}, Expected: at - 1}, "2: tainted",
			"full; quota (of 9 nodes, 2: tainted)", "full; quota (of 9 nodes, 2: tainted)"},
		{engine.Why{Blockers: []string{"full"}, Holders: []string{"a", "b"}, Expected: at + 1, Rough: true}, "", "full",
			"full. Held by a; b. Expected to start at the earliest about 1970-01-01T00:01:40Z"},
		{engine.Why{Blockers: []string{"full"}, Holders: []string{"a", "b", "c", "d"}, Expected: at + 1}, "", "full",
			"full. Held by a; b; c; and 1 more. Expected to start at the earliest 1970-01-01T00:01:40Z"},
	} {
		stem := Stem(&c.y, c.keptOff, 9)
		if full := Full(stem, &c.y, at); stem != c.stem || full != c.full {
			t.Errorf("%q: %q", stem, full)
		}
	}
}

// Only so many are found out of in a look, but what was found out of one that is behind another holds for all that ask
// for the same; when it is expected is each one's own.
func TestExplanations(t *testing.T) {
	now := time.Unix(0, 0)
	x := NewExplanations(func() time.Time { return now })
	found := 0
	find := func() engine.Why {
		found++
		return engine.Why{Ahead: found - 1, Blockers: []string{"full"}, Expected: 7}
	}
	j := func(queue string) *cluster.Job { return &cluster.Job{Queue: queue} }
	for range 20 {
		if y, ok := x.Of(j("a"), find); !ok || found > explainMost && y.Expected != cluster.Never {
			t.Fatalf("%v: %+v", ok, y)
		}
	}
	if found != explainMost {
		t.Errorf("%d are found out of", found)
	}
	slow := func() engine.Why {
		now = now.Add(2 * explainTime)
		return find()
	}
	if _, ok := x.Of(j("b"), slow); !ok || x.Late() {
		t.Error("finding out takes none of the time in which others are told")
	}
	if _, ok := x.Of(j("c"), find); ok {
		t.Error("after a slow one another is found out of")
	}
	if y, ok := x.Of(j("a"), find); !ok || y.Expected != cluster.Never {
		t.Errorf("what is known of others is not said: %+v", y)
	}
	if now = now.Add(2 * explainTime); !x.Late() {
		t.Error("it takes longer than it may")
	}
}
