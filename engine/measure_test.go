package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
)

// sharer is a job of a model with a share of a GPU, and how little of its speed it accepts.
func sharer(id int, model string, share, least int64) cluster.Job {
	return cluster.Job{ID: cluster.JobID(id), Tier: cluster.Standard, Submit: cluster.Time(seconds(id)), Model: model,
		MinSpeed: least,
		Tasks:    []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Share: share}}}}
}

func tells(id int, rate int64) engine.Event {
	return engine.Event{Type: engine.Progress, Job: cluster.JobID(id), Rate: rate}
}

func pairConfig(c *engine.Config) {
	c.Speeds = perf.Belief{Model: &perf.Table{Pairs: map[perf.Pair]int64{{"a", "b"}: 900_000}}}
}

// Each report moves what is believed of a pair by a fifth, down to half of what was
// stated and up to twice; small differences are left alone.
func TestCorrection(t *testing.T) {
	for _, c := range []struct {
		told []int64
		want string
	}{
		{[]int64{860_000}, "[]"}, // less than a hundredth
		{[]int64{800_000}, "[{a b 880000 false}]"},
		{[]int64{800_000, 400_000}, "[{a b 784000 false}]"},
		{[]int64{1, 1, 1, 1, 1, 1}, "[{a b 450000 false}]"},
		{[]int64{1_000_000}, "[{a b 920000 false}]"},
	} {
		h := newHand(t, "1x1xT4", "fifo", pairConfig)
		h.at(0, submit(sharer(0, "a", 250, 0)), submit(sharer(1, "b", 250, 0)))
		h.at(1, ev(engine.Started, 0))
		h.at(2, ev(engine.Started, 1))
		for i, rate := range c.told {
			h.at(3+i, tells(0, rate))
		}
		if got := fmt.Sprint(h.e.Measured()); got != c.want {
			t.Errorf("after %v: %s, want %s", c.told, got, c.want)
		}
	}
}

// The one that came last leaves a job that has been too slow for a minute, and is not put beside
// it again, also after a restart.
func TestTooSlow(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", pairConfig)
	h.want(0, "start 0", submit(sharer(0, "a", 250, 700_000)))
	h.at(1, ev(engine.Started, 0))
	h.want(2, "start 1, start 2", submit(sharer(1, "c", 250, 0)), submit(sharer(2, "b", 250, 0)))
	h.at(3, ev(engine.Started, 1))
	h.at(4, ev(engine.Started, 2))
	h.at(10, tells(0, 670_000)) // nearly enough
	h.want(100, "")
	h.at(100, tells(0, 450_000))
	h.want(130, "", tells(0, 400_000))
	h.want(159, "")
	h.want(160, "preempt 2 for 0")
	h.want(170, "start 2", engine.Event{Type: engine.Stopped, Job: 2, Reason: engine.Preempted})
	if a := h.d.Actions[0].Allocs[0]; a.GPUs != 2 {
		t.Errorf("it goes to GPU %b", a.GPUs)
	}
	if got := fmt.Sprint(h.e.Measured()); got != "[{a b 400000 true}]" {
		t.Errorf("of the pair %s is known", got)
	}
	if s := h.e.Snapshot(); fmt.Sprint(s.Pairs) != "[{a b 400000 true}]" {
		t.Errorf("a snapshot has %v", s.Pairs)
	}
}

// None leaves a job that became too slow for a while only, nor one of which it is not known
// how fast it is alone; one that is critical, or would not come back, stays.
func TestTooSlowNot(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *cluster.Job)
		then   []engine.Event
	}{
		"for a while":   {then: []engine.Event{tells(0, 900_000)}},
		"critical":      {change: func(a, b *cluster.Job) { a.Tier, b.Tier = cluster.Critical, cluster.Critical }},
		"not requeued":  {change: func(a, b *cluster.Job) { a.NoRequeue, b.NoRequeue = true, true }},
		"without model": {change: func(_, b *cluster.Job) { b.Model = "" }},
		"it ends":       {then: []engine.Event{{Type: engine.Stopped, Job: 1, Reason: engine.Completed}}},
		"any speed":     {change: func(a, _ *cluster.Job) { a.MinSpeed = 0 }},
	} {
		a, b := sharer(0, "a", 250, 700_000), sharer(1, "b", 250, 0)
		if c.change != nil {
			c.change(&a, &b)
		}
		h := newHand(t, "1x2xT4", "fifo", pairConfig)
		h.at(0, submit(a), submit(b))
		h.at(1, ev(engine.Started, 0))
		h.at(2, ev(engine.Started, 1))
		h.at(10, tells(0, 400_000))
		h.at(30, c.then...)
		for now := 40; now < 300; now += 10 {
			if got := h.at(now); got != "" {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// A job that does less beside others than they lose by it leaves, though none asks for a speed:
// the last of those of which that is so. It waits where there is no other GPU, also after a
// restart, and what others of these models report does not bring it back.
func TestHarms(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) {
		pairConfig(c)
		cfg = *c
	})
	h.want(0, "start 0, start 1", submit(sharer(0, "a", 600, 0)), submit(sharer(1, "a", 600, 0)))
	h.at(1, ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(2, "start 2, start 3", submit(sharer(2, "b", 400, 0)), submit(sharer(3, "b", 400, 0)))
	h.at(3, ev(engine.Started, 2), ev(engine.Started, 3))
	h.at(10, tells(0, 300_000)) // what b does there is not known yet
	h.want(100, "")
	h.at(110, tells(2, 680_000)) // together 0.98, which measurements do not tell from 1
	h.want(171, "")
	h.at(180, tells(2, 300_000))
	h.want(200, "", tells(0, 290_000))
	for _, o := range h.andRestored(cfg) {
		o.want(239, "")
		o.want(240, "preempt 2 for 2")
		o.want(250, "", engine.Event{Type: engine.Stopped, Job: 2, Reason: engine.Preempted})
		if w := o.e.Why(2); !strings.Contains(fmt.Sprint(w.Blockers),
			"beside a it would be at 0.30 of its speed, and cost the others 0.71 of theirs") {
			t.Errorf("b waits: %+v", w)
		}
		for now := 260; now < 900; now += 20 { // these two bear each other
			o.want(now, "", tells(1, 950_000-int64(now)), tells(3, 950_000-int64(now)))
		}
		o.want(900, "start 2", stopped(0, engine.Completed))
	}
}

// Of several jobs that may leave the last that came leaves, and only if it does less than it
// costs the others, whatever is left of each.
func TestHarmed(t *testing.T) {
	for name, c := range map[string]struct {
		told  [3]int64 // what is left of a, b, c, in this order of coming
		stays int      // which does not come back when it is stopped
		want  string
	}{
		"it does nothing": {[3]int64{900_000, 900_000, 10_000}, -1, "preempt 2 for 2"},
		"nobody":          {[3]int64{700_000, 700_000, 700_000}, -1, ""},
		"all of them":     {[3]int64{200_000, 200_000, 200_000}, -1, "preempt 2 for 1"},
		"it must not":     {[3]int64{200_000, 200_000, 200_000}, 2, "preempt 1 for 1"},
	} {
		jobs := []cluster.Job{sharer(0, "a", 250, 0), sharer(1, "b", 250, 0), sharer(2, "c", 250, 0)}
		if c.stays >= 0 {
			jobs[c.stays].NoRequeue = true
		}
		h := newHand(t, "1x1xT4", "fifo", pairConfig)
		h.at(0, submit(jobs[0]), submit(jobs[1]), submit(jobs[2]))
		for id := range 3 {
			h.at(1+id, ev(engine.Started, id))
		}
		for id, rate := range c.told {
			h.at(10+id, tells(id, rate))
		}
		got := ""
		for now := 60; now < 80 && got == ""; now++ {
			got = h.at(now)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What was measured says something of pairs that were not, in a restored engine, too:
// a job that is like one that was too slow does not go there. What is stated stays.
func TestEstimatedPairs(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) {
		table, _, _ := (&perf.Table{
			Pairs: map[perf.Pair]int64{{"a", "x"}: 900_000, {"b", "x"}: 900_000, {"c", "x"}: 300_000,
				{"c", "y"}: 950_000}}).Predict()
		c.Speeds = perf.Belief{Model: table}
		backfill(engine.Skip)(c)
		cfg = *c
	})
	h.want(0, "start 0", submit(sharer(0, "a", 250, 700_000)))
	h.want(1, "start 1", ev(engine.Started, 0), submit(sharer(1, "y", 250, 0)))
	h.at(2, ev(engine.Started, 1))
	h.at(3, tells(0, 400_000))
	h.want(63, "preempt 1 for 0")
	h.want(70, "start 1", engine.Event{Type: engine.Stopped, Job: 1, Reason: engine.Preempted})
	h.at(71, ev(engine.Started, 1))
	h.at(80, stopped(0, engine.Completed))
	for _, o := range h.andRestored(cfg) {
		// it would have room beside y, and goes where no job is
		o.want(90, "start 2", submit(sharer(2, "b", 900, 700_000)))
		if a := o.d.Actions[0].Allocs[0]; a.GPUs != 1 {
			t.Errorf("b goes to GPU %b", a.GPUs)
		}
		o.want(91, "", ev(engine.Started, 2), submit(sharer(3, "b", 250, 700_000)))
		if w := o.e.Why(3); !strings.Contains(fmt.Sprint(w.Blockers), "it would be at 0.40 of its speed") {
			t.Errorf("b waits: %+v", w)
		}
		o.want(92, "start 4", submit(sharer(4, "c", 250, 700_000)))
	}
}
