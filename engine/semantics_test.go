package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// To suspend all at once is a rule, not the absence of one; and what a
// caller does to its rules afterwards changes nothing.
func TestStopAllZero(t *testing.T) {
	for how, rules := range map[engine.How]*[3]engine.StopRule{engine.Checkpoint: nil, engine.Suspend: {}} {
		h := newHand(t, "1x2xT4", "srtf", func(c *engine.Config) { c.Stop = rules })
		if rules != nil {
			rules[cluster.Standard] = engine.StopRule{How: engine.Kill, Grace: time.Hour}
		}
		h.want(0, "start 0", submit(job(0, 2, 1000)))
		d := h.e.Step(engine.Batch{Now: cluster.Time(time.Second),
			Events: []engine.Event{ev(engine.Started, 0), submit(job(1, 2, 10))}})
		grace := engine.DefaultStop[cluster.Standard].Grace
		if rules != nil {
			grace = 0
		}
		if len(d.Actions) != 1 || d.Actions[0].How != how || d.Actions[0].Grace != grace {
			t.Errorf("rules %v: %+v; want %s, grace %s", rules, d.Actions, how, grace)
		}
	}
}

// What a user has used is not forgotten when the queues change, nor is a
// budget; both are gone with the queue, and a queue elsewhere in the tree is
// another one.
func TestQueueChangeKeepsHistory(t *testing.T) {
	lab := cluster.Queue{Name: "lab", Limit: -1, Lend: -1, Budget: 2, Period: 24 * time.Hour}
	other, top := queue("other", 0, -1), queue("top", 0, -1)
	moved, longer := lab, lab
	moved.Parent, longer.Period = "top", 48*time.Hour
	change := func(qs ...cluster.Queue) engine.Event { return engine.Event{Type: engine.QueueChanged, Queues: qs} }
	for what, c := range map[string]struct {
		changes []engine.Event
		spent   bool
	}{
		"limit of another":  {[]engine.Event{change(lab, queue("other", 0, 1000))}, true},
		"removed and back":  {[]engine.Event{change(other), change(lab, other)}, false},
		"moved":             {[]engine.Event{change(top, moved, other)}, false},
		"moved down and up": {[]engine.Event{change(top, moved, other), change(lab, other)}, false},
		"another period":    {[]engine.Event{change(longer, other)}, false},
		"twice":             {[]engine.Event{change(other, lab), change(lab, other)}, true},
	} {
		h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Spec.Queues = []cluster.Queue{lab, other} })
		h.want(0, "start 0", submit(job(0, 2, 4000, inQueue("lab"))))
		h.want(1, "", ev(engine.Started, 0))
		h.want(3600, "", stopped(0, engine.Completed))
		for i, ev := range c.changes {
			h.want(3601+i, "", ev)
		}
		want := "start 1"
		if c.spent {
			want = ""
		}
		if got := h.at(3700, submit(job(1, 1, 10, inQueue("lab")))); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// Jobs of a removed queue: those that wait are rejected by name; those that run
// end in peace, owed nothing, and do not come back when they are preempted.
func TestRemovedQueue(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", func(c *engine.Config) {
		c.Spec.Queues = []cluster.Queue{queue("a", 2000, -1), queue("b", 2000, -1)}
	})
	h.want(0, "start 0, start 1", submit(job(0, 1, 1000, inQueue("a"))), submit(job(1, 1, 1000, inQueue("a"))))
	h.want(1, "start 2", ev(engine.Started, 0), ev(engine.Started, 1), submit(job(2, 2, 1000, inQueue("b"))))
	h.want(2, "", ev(engine.Started, 2), submit(job(3, 2, 1000, inQueue("a"))))
	d := h.e.Step(engine.Batch{Now: cluster.Time(3 * time.Second),
		Events: []engine.Event{{Type: engine.QueueChanged, Queues: []cluster.Queue{queue("b", 4000, -1)}}}})
	if len(d.Actions) != 1 || d.Actions[0].Type != engine.Reject || d.Actions[0].Job != 3 ||
		!strings.HasPrefix(d.Actions[0].Text, `unknown queue "a"`) {
		t.Fatalf("%+v", d.Actions)
	}
	d = h.e.Step(engine.Batch{Now: cluster.Time(4 * time.Second),
		Events: []engine.Event{submit(job(4, 1, 1000, inQueue("a"))), submit(job(5, 1, 1000, inQueue("a (removed)")))}})
	if len(d.Actions) != 2 || d.Actions[0].Type != engine.Reject || d.Actions[1].Type != engine.Reject ||
		strings.Contains(d.Actions[0].Text, "removed") {
		t.Fatalf("%+v", d.Actions)
	}
	h.want(5, "preempt 1 for 6", submit(job(6, 1, 1000, inQueue("b"))))
	h.want(6, "reject 1, start 6", stopped(1, engine.Preempted))
	h.want(7, "", engine.Event{Type: engine.QueueChanged,
		Queues: []cluster.Queue{queue("a", 1000, -1), queue("b", 3000, -1)}})
	h.want(8, "", stopped(2, engine.Completed))
	if names, used, _ := h.e.Queues(); len(names) != 2 || used[0] != 1000 || used[1] != 1000 {
		t.Errorf("%v use %v", names, used)
	}
}

// An elastic job loses two nodes at one instant: the driver is told once, and of
// what is left. A loss while that is under way, of another task set, or of too
// much takes the whole job.
func TestElasticLoss(t *testing.T) {
	down := func(n string) engine.Event { return engine.Event{Type: engine.NodeDown, Node: n} }
	start := func(change ...func(*cluster.Job)) *hand {
		h := newHand(t, "4x2xT4", "fifo", nil)
		h.want(0, "start 0", submit(job(0, 1, 1000, append(change, elastic(2, 7))...)))
		h.want(1, "", ev(engine.Started, 0))
		return h
	}
	h := start()
	d := h.e.Step(engine.Batch{Now: cluster.Time(2 * time.Second), Events: []engine.Event{down("n1"), down("n2")}})
	if len(d.Actions) != 1 || d.Actions[0].Type != engine.Resize || d.Actions[0].Reason != engine.NodeLost {
		t.Fatalf("%+v", d.Actions)
	}
	for _, a := range d.Actions[0].Allocs {
		if a.Node < 2 {
			t.Errorf("still on node %d: %+v", a.Node, d.Actions[0].Allocs)
		}
	}
	if err := h.e.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	h.want(3, "preempt 0", down("n4"))

	h = start()
	h.want(2, "resize 0", down("n1"))
	h.want(3, "resize 0", ev(engine.Resized, 0)) // it grows onto the GPU that it left idle
	h.want(4, "", ev(engine.Resized, 0))
	h.want(5, "preempt 0", down("n2"), down("n3"), down("n4"))

	h = start(func(j *cluster.Job) {
		j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: 1}})
	})
	for _, b := range h.e.Beliefs() {
		for _, a := range b.Allocs {
			if a.Set == 1 {
				h.want(2, "preempt 0", down(h.e.Nodes()[a.Node].Name))
				return
			}
		}
	}
	t.Error("the second set is nowhere")
}
