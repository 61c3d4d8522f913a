package engine_test

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A job that was found to save nothing keeps its GPUs under a policy that lets jobs take
// turns, unless it saves of its own accord; a restored engine knows, too.
func TestSavesNothing(t *testing.T) {
	var cfg engine.Config
	for _, c := range []struct {
		name string
		ev   engine.Event
		want string // when its turn is over
	}{
		{"unknown", engine.Event{}, "preempt 0"},
		{"saves nothing", engine.Event{Saves: engine.SavesNothing}, ""},
		{"of its own accord", engine.Event{Saves: engine.SavesNothing, Saved: seconds(5)}, "preempt 0"},
		{"saves", engine.Event{Saves: engine.SavesWork}, "preempt 0"},
	} {
		h := newHand(t, "1x2xT4", "gandiva:round=60s,pack=false", func(c *engine.Config) { cfg = *c })
		h.want(0, "start 0", submit(job(0, 2, 1000)))
		h.want(1, "", ev(engine.Started, 0), ev(engine.Progress, 0))
		h.want(2, "", submit(job(1, 2, 1000)))
		c.ev.Type = engine.Progress
		h.want(10, "", c.ev)
		snap := h.e.Snapshot()
		if h.want(60, c.want, ev(engine.Tick, 0)); c.want != "" && h.d.Actions[0].How != engine.Checkpoint {
			t.Errorf("%s: it is not asked any more", c.name)
		}
		e, err := engine.Restore(cfg, &snap)
		if err != nil {
			t.Fatal(err)
		}
		(&hand{t: t, e: e, now: h.now}).want(60, c.want, ev(engine.Tick, 0))
	}
}

// Of two that could leave, the one that saves nothing stays: it would lose all it did. It
// is asked all the same if it must go, since it may have learnt to save.
func TestLosesLeastLeaves(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0, start 1", submit(job(0, 2, 1000)), submit(job(1, 2, 1000)))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	nothing := engine.Event{Type: engine.Progress, Job: 1, Saves: engine.SavesNothing}
	h.want(2, "", nothing)
	h.want(500, "preempt 0 for 2", submit(job(2, 2, 10, tier(cluster.Critical))))
	h.want(501, "preempt 1 for 3", submit(job(3, 2, 10, tier(cluster.Critical))))
	if how := h.d.Actions[0].How; how != engine.Checkpoint {
		t.Errorf("a job that saved nothing so far is stopped by %s", how)
	}
}

// While a job is resized it gets no further: a checkpoint that it reports meanwhile saves no more than
// it has done, and what a driver reckons from its record is what the engine does.
func TestSavedWhileResized(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0, start 1", submit(job(0, 2, 10000)), submit(job(1, 1, 10000, elastic(1, 4))))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(101, "resize 1", stopped(0, engine.Completed))
	done := h.e.Record(1).DoneAt(cluster.Time(seconds(131)))
	if done != seconds(100) {
		t.Errorf("by its record it has done %v while it is resized", done)
	}
	p := ev(engine.Progress, 1)
	p.Saved = done + seconds(30)
	h.want(131, "", p)
	h.want(132, "", ev(engine.Resized, 1))
	if r := h.e.Record(1); r.Saved != seconds(100) || r.Done != seconds(100) {
		t.Errorf("of %v done %v are saved", r.Done, r.Saved)
	}
	if got := h.e.Record(1).DoneAt(cluster.Time(seconds(142))); got != seconds(110) {
		t.Errorf("ten seconds later it has done %v", got)
	}
}
