package engine_test

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A running job that is demoted may be displaced by its equals, is stopped as its
// own tier is, and is what it was when it waits again; a restored engine goes on
// with it; one that computes again cannot be displaced any more.
func TestDemoted(t *testing.T) {
	var cfg engine.Config
	demote, undo := ev(engine.Demoted, 0), ev(engine.Demoted, 0)
	undo.Undo = true
	begin := func(own, next cluster.Tier) *hand {
		h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { cfg = *c })
		h.want(0, "start 0", submit(job(0, 2, 1000, tier(own))))
		h.want(1, "", ev(engine.Started, 0))
		h.want(2, "", submit(job(1, 2, 10, tier(next))))
		return h
	}
	h := begin(cluster.Standard, cluster.Standard)
	h.want(3, "preempt 0 for 1", demote)
	if how := h.d.Actions[0].How; how != engine.Checkpoint {
		t.Errorf("a demoted standard job is stopped by %s", how)
	}
	h.want(4, "start 1", stopped(0, engine.Preempted))
	if r := h.e.Record(0); r.Demoted || r.Spec.Tier != cluster.Standard || r.State != engine.Pending {
		t.Errorf("when it waits again: %+v", r)
	}
	h.want(5, "", ev(engine.Demoted, 0)) // a late report
	h.want(6, "", ev(engine.Started, 1))
	h.want(7, "start 0", stopped(1, engine.Completed))
	if h.e.Record(0).Demoted {
		t.Error("its next run is demoted")
	}

	h = begin(cluster.Critical, cluster.Standard) // it holds what its queue is owed
	h.want(3, "", demote)
	h = begin(cluster.Standard, cluster.BestEffort) // its equal, now
	h.want(3, "", demote)

	h = newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { cfg = *c })
	h.want(0, "start 0", submit(job(0, 2, 1000)))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "", demote, demote)
	snap := h.e.Snapshot()
	for _, back := range []bool{false, true} {
		e, err := engine.Restore(cfg, &snap)
		if err != nil {
			t.Fatal(err)
		}
		r := &hand{t: t, e: e, now: h.now}
		if !e.Record(0).Demoted {
			t.Fatal("the restored engine does not know that the job is demoted")
		}
		if back {
			r.want(3, "", undo, undo)
			r.want(4, "", submit(job(1, 2, 10)))
		} else {
			r.want(3, "preempt 0 for 1", submit(job(1, 2, 10)))
		}
	}
}

// Of two that could leave, the demoted one does.
func TestDemotedFirst(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0, start 1", submit(job(0, 2, 1000)), submit(job(1, 2, 5000)))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(2, "", ev(engine.Demoted, 1)) // it has more to lose by its number, but does nothing
	h.want(3, "preempt 1 for 2", submit(job(2, 1, 10)))
}

// What a job's progress says of its work moves its expected end, and with it the
// starts of jobs that wait.
func TestReckoned(t *testing.T) {
	for work, want := range map[int]int{0: 1000, 300: 300, 2000: 2000} {
		h := newHand(t, "1x2xT4", "fifo", backfill(engine.EASY))
		h.want(0, "start 0", submit(job(0, 2, 1000)))
		h.want(0, "", ev(engine.Started, 0))
		h.want(2, "", submit(job(1, 2, 10)))
		p := ev(engine.Progress, 0)
		p.Estimate = seconds(work)
		h.want(100, "", p)
		if y := h.e.Why(1); y.Expected != cluster.Time(seconds(want)) {
			t.Errorf("with %d s of work the next one is expected to start at %v: %s", work, y.Expected,
				strings.Join(y.Holders, "; "))
		}
	}
}
