package engine_test

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/policy"
)

// Under antman with measured memory best-effort jobs come beside another one by one, as
// far as it leaves memory; when it comes to use more than that, the job that came last is
// stopped, in a restored engine, too. The most that it used counts.
func TestMeasuredMemory(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "1x1xV100-32GB", "fifo", func(c *engine.Config) {
		var err error
		if c.Policy, err = policy.New("antman:memory=measured"); err != nil {
			t.Fatal(err)
		}
		c.Speeds = perf.Belief{
			Model: &perf.Table{Pairs: map[perf.Pair]int64{{"main", "*"}: 990_000, {"light", "*"}: 500_000}}}
		cfg = *c
	})
	named := func(id int, model string, gib int64, change ...func(*cluster.Job)) cluster.Job {
		j := job(id, 1, 1000, change...)
		j.Model, j.Tasks[0].Request.Memory = model, gib<<10
		return j
	}
	uses := func(id int, gib int64) engine.Event {
		return engine.Event{Type: engine.Progress, Job: cluster.JobID(id), Memory: gib << 10}
	}
	h.want(0, "start 0", submit(named(0, "main", 0)))
	h.want(1, "", ev(engine.Started, 0), submit(named(1, "light", 8, tier(cluster.BestEffort))),
		submit(named(2, "light", 4, tier(cluster.BestEffort))),
		submit(named(3, "light", 1, tier(cluster.BestEffort))))
	h.want(2, "", uses(0, 16))
	h.want(11, "start 1")
	h.want(12, "", ev(engine.Started, 1))
	// 15 GiB are left to others, of which it takes four; the third would fit, too, and comes later
	h.want(21, "start 2")
	h.want(22, "", ev(engine.Started, 2), uses(0, 12))
	h.want(30, "", uses(0, 18)) // 13 are left: it is known a moment later
	for _, o := range h.andRestored(cfg) {
		o.want(31, "start 3")
		o.want(32, "", ev(engine.Started, 3))
		o.want(41, "")
		o.want(42, "", uses(0, 19)) // 12
		o.want(51, "preempt 3")
		o.want(52, "", stopped(3, engine.Preempted))
		if r := o.e.Record(0); r.Memory != 19<<10 || len(r.Guests) != 2 {
			t.Errorf("%+v", r)
		}
	}
}
