package look

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// When a gang is expected to start is said to be at the earliest: it rests on what those ahead state, and later
// ones may come first.
func TestExpectedAtTheEarliest(t *testing.T) {
	now := cluster.Time(time.Hour)
	spec := &cluster.Job{Tier: cluster.Standard,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	r := &Row{Spec: spec, Submit: 1, State: show.StatePending, Position: 2, Expected: now.Add(time.Hour),
		End: cluster.Never}
	if j := r.Job(now); j.Expected == nil || !j.AtEarliest {
		t.Errorf("expected at %v, at the earliest: %v", j.Expected, j.AtEarliest)
	}
	r.Expected = cluster.Never
	if j := r.Job(now); j.Expected != nil || j.AtEarliest {
		t.Errorf("nothing is expected, but %v", j.Expected)
	}
}

// Rows are chosen by what they are and by words, those of gangs that are over with the others; the latest first.
func TestChoose(t *testing.T) {
	row := func(number int, name, state string, ended cluster.Time) *Row {
		return &Row{Number: number, Name: name, User: "default", State: state, Ended: ended,
			Spec: &cluster.Job{Queue: "q"}}
	}
	l := Sight{Rows: []*Row{row(1, "default/train", show.StateStarting, 0)},
		Past: []*Row{row(2, "default/high", show.StateCompleted, 100)}}
	for _, c := range []struct {
		f    ask.Filter
		want []int
	}{{ask.Filter{}, []int{2, 1}}, {ask.Filter{States: show.Live}, []int{1}}, {ask.Filter{Name: "high"}, []int{2}},
		{ask.Filter{Name: "default/high"}, []int{2}}, {ask.Filter{Search: "IGH"}, []int{2}},
		{ask.Filter{Before: 2}, []int{1}}, {ask.Filter{Limit: 1}, []int{2}}, {ask.Filter{User: "nobody"}, nil},
		{ask.Filter{Since: 101}, []int{1}}} {
		var got []int
		for _, r := range l.Choose(c.f) {
			got = append(got, r.Number)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v chooses %v, not %v", c.f, got, c.want)
		}
	}
}
