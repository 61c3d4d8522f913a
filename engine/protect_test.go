package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// officeHours are protected, in UTC; a run begins so long after a Monday's midnight.
func officeHours(after time.Duration, d engine.Defrag) func(*engine.Config) {
	return func(c *engine.Config) {
		d.Protected = &cluster.Weekly{Zone: "UTC",
			Hours: []cluster.Hours{{Days: 0b111110, From: 8 * time.Hour, To: 18 * time.Hour}}}
		c.Defrag, c.Spec.Epoch = &d, time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC).Add(after).Unix()
	}
}

const protectedText = "protected until 18:00 (UTC)"

// No job is moved in a protected time, by itself or because a person asks; who asks is told
// until when, and what would be moved then. The engine wakes when it ends, also between two
// rounds and whatever happened before in the last of them, and moves are made.
func TestProtected(t *testing.T) {
	var cfg engine.Config
	h := fragmented(t, all(officeHours(16*time.Hour-2*time.Minute, engine.Defrag{Auto: true}), func(c *engine.Config) {
		cfg = *c
	}), func(int) func(*cluster.Job) { return costing(20) })
	h.want(3, "", submit(job(6, 4, 600)))
	end := cluster.Time(2*time.Hour + 2*time.Minute)
	if h.d.WakeAt != end {
		t.Fatalf("wakes at %v", h.d.WakeAt)
	}
	h.want(300, "", askAll)
	if m := h.e.Moved(); len(m) != 1 || m[0].Made || m[0].Worth || m[0].Text != protectedText ||
		movesText(&m[0]) != "0 n1>n2" {
		t.Fatalf("%+v", m)
	}
	if m := h.plan(cfg, 6); m.Worth || m.Text != protectedText || movesText(&m) != "0 n1>n2" {
		t.Fatalf("%+v", m)
	}
	h.want(300, "", empty(engine.EmptyNodes))
	h.want(7319, "", engine.Event{})
	if h.d.WakeAt != end {
		t.Fatalf("wakes at %v", h.d.WakeAt)
	}
	for _, o := range h.andRestored(cfg) {
		o.want(7320, "preempt 0 for 6", engine.Event{})
	}
}

// Likewise for nodes that could be emptied. A period that lies between two protected times
// is used, at its beginning, too.
func TestProtectedCompact(t *testing.T) {
	h := scattered(t, 4, officeHours(16*time.Hour, engine.Defrag{Auto: true, Compact: engine.UsableGPUs}))
	h.want(300, "", empty(engine.UsableGPUs))
	if m := h.e.Moved(); len(m) != 1 || m[0].Made || m[0].Worth || m[0].Text != protectedText || m[0].Empties != "n1" {
		t.Fatalf("%+v", m)
	}
	h.want(7200, "preempt 0", engine.Event{})
}

// A person who asks which nodes could be emptied in a protected time is told all of them.
func TestProtectedCompactAll(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "6x4xT4", "fifo",
		all(officeHours(16*time.Hour, engine.Defrag{}), func(c *engine.Config) { cfg = *c }))
	var first, begun, over []engine.Event
	for id := range 12 { // one of two GPUs on each node is left
		first, begun = append(first, submit(job(id, 2, 36000, costing(20)))), append(begun, ev(engine.Started, id))
		if id%2 == 1 {
			over = append(over, stopped(id, engine.Completed))
		}
	}
	h.at(0, first...)
	h.at(1, begun...)
	h.at(2, over...)
	snap := h.e.Snapshot()
	e, err := engine.Restore(cfg, &snap)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, m := range e.LookForEmptying(engine.EmptyNodes) {
		if m.Empties == "" {
			break
		}
		if m.Worth || m.Made || m.Text != protectedText || len(m.Moves) != 1 {
			t.Fatalf("%+v", m)
		}
		nodes = append(nodes, m.Empties)
	}
	if len(nodes) != 3 {
		t.Fatalf("%v", nodes)
	}
	h.want(3, "", empty(engine.EmptyNodes)) // to ask that it be done moves none
}

// A job that is on its way when a protected time begins arrives in it; then it begins within a
// round, which is not made up for before it ends.
func TestProtectedBegins(t *testing.T) {
	h := fragmented(t, officeHours(8*time.Hour-5*time.Second, engine.Defrag{Every: time.Second}),
		func(int) func(*cluster.Job) { return costing(20) })
	h.want(3, "", submit(job(6, 4, 600)))
	h.want(4, "preempt 0 for 6", askAll)
	h.want(10, "start 0, start 6", stopped(0, engine.Preempted))
	h.want(11, "", ev(engine.Started, 0), ev(engine.Started, 6), stopped(4, engine.Completed))
	h.want(12, "", submit(job(7, 4, 600)), askAll)
	if m := h.e.Moved(); len(m) != 1 || m[0].Made ||
		slices.ContainsFunc(m, func(m engine.Moves) bool { return m.Worth }) {
		t.Fatalf("%+v", m)
	}
}
