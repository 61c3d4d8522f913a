package progress

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/show"
)

// Metrics are kept: the last ones, and the first at or after each mark, of each
// trial of a group; numbers that are none are null; what is too much is not kept.
func TestMeasured(t *testing.T) {
	p := Lines{}
	lines := `{"step": 1, "metric": {"loss": 3}}
{"step": 2, "metric": {"loss": NaN, "other": -Infinity}}
{"step": 5, "metric": {"loss": 1, "accuracy": 0.5}}
my own words
{"step": 6}
{"step": 4, "metric": {"loss": 2}}
`
	if _, heard, _ := p.Take([]byte(lines), false); !heard || p.Last.Step != 4 || len(p.Said) != 4 {
		t.Fatalf("%+v, %d lines with metrics", p.Last, len(p.Said))
	}
	list := Keep(nil, &ask.Trial{Marks: []int64{2, 5}}, p.Said, time.Unix(1, 0))
	got := map[int64]show.Metrics{}
	for _, m := range list {
		got[m.Mark] = m
	}
	if len(list) != 3 || *got[0].Of["loss"] != 2 || got[2].Step != 2 || got[2].Of["loss"] != nil ||
		*got[5].Of["loss"] != 1 || *got[5].Of["accuracy"] != 0.5 {
		t.Errorf("%+v", list)
	}
	group := &ask.Trial{Marks: []int64{3}, Fused: []ask.FusedTrial{{Number: 4}, {Number: 7}}}
	one, two := 1.0, 2.0
	list = Keep(nil, group,
		[]Measure{{Trial: 4, Step: 3, Of: map[string]*float64{"a": &one}},
			{Trial: 7, Step: 3, Of: map[string]*float64{"a": &two}},
			{Trial: 9, Step: 3, Of: map[string]*float64{"a": &two}}}, time.Unix(1, 0))
	if len(list) != 4 || list[0].Trial != 4 || list[3].Trial != 7 || list[3].Mark != 3 {
		t.Errorf("%+v", list)
	}
	many := map[string]*float64{strings.Repeat("x", show.MaxMetric+1): &one}
	for i := range 40 {
		many[string(rune('a'+i))] = &one
	}
	list = Keep(nil, nil, []Measure{{Trial: 0, Step: 3, Of: many}}, time.Unix(1, 0))
	if n := len(list[0].Of); n != show.MaxMetrics {
		t.Errorf("%d metrics are kept", n)
	}
}

// The metric that trials are compared by is kept beside fifteen others, and counts
// from the first report at or after the mark that has it, even if it stands on lines
// of its own.
func TestMeasuredMetric(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	many := map[string]*float64{"val": v(1)}
	for i := range 40 {
		many[string(rune('A'+i))] = v(0)
	}
	s := &ask.Trial{Metric: "val", Marks: []int64{3}}
	list := Keep(nil, s, []Measure{
		{Trial: 0, Step: 3, Of: map[string]*float64{"train": v(9)}},
		{Trial: 0, Step: 4, Of: many}, {Trial: 0, Step: 5, Of: map[string]*float64{"train": v(8)}}}, time.Unix(1, 0))
	got := map[int64]show.Metrics{}
	for _, m := range list {
		got[m.Mark] = m
	}
	if m := got[3]; m.Step != 4 || m.Of["val"] == nil || *m.Of["val"] != 1 || len(m.Of) != show.MaxMetrics {
		t.Errorf("at the mark: step %g, %d metrics", m.Step, len(m.Of))
	}
	if m := got[0]; m.Step != 5 || *m.Of["train"] != 8 || m.Of["val"] == nil || *m.Of["val"] != 1 {
		t.Errorf("last: %+v", m)
	}
}
