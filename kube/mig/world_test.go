package mig

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A change that delays a gang before another in line is found out; one that delays what comes after it, by less than a
// second, or what was not to start anyway, is not.
func TestLater(t *testing.T) {
	line := func(at ...cluster.Time) *world {
		w := &world{}
		for i, x := range at {
			w.line = append(w.line, engine.Waiting{Job: cluster.JobID(i + 1), Expected: x})
		}
		return w
	}
	second := cluster.Time(time.Second)
	for _, c := range []struct {
		name string
		base *world
		with *world
		want bool
	}{
		{"before it, later", line(second, 9*second), line(3*second, 9*second), true},
		{"before it, by less than a second", line(second, 9*second), line(second+second/2, 9*second), false},
		{"before it, never anyway", line(cluster.Never, 9*second), line(cluster.Never, 9*second), false},
		{"before it, it starts now", line(second, 9*second), line(), false},
		{"after it", line(second, second, second), line(second, second, 9*second), false},
	} {
		if got := later(c.base, c.with, 2); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A gang starts on the nodes of its allocations; nodes that only the second engine has are no one's.
func TestOn(t *testing.T) {
	w := &world{starts: map[cluster.JobID][]engine.Alloc{1: {{Node: 1}, {Node: 2}}}}
	order := []string{"a", "b"}
	if w.isOn(1, "a", order) || !w.isOn(1, "b", order) || w.isOn(2, "b", order) {
		t.Error("not where it starts")
	}
}
