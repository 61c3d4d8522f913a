package engine_test

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A node is given back while a job is being suspended on it: nothing of the job stays there, and it
// starts again elsewhere, from what it had saved.
func TestSuspendedOnLentNode(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x1xT4", "fifo", func(c *engine.Config) {
		c.Spec.Partitions = []cluster.Partition{{Name: "lent", Nodes: []string{"n1"}}, {Name: "own", Nodes: []string{"n2"}}}
		c.Spec.Loans = []cluster.Loan{{Partition: "lent", Back: []cluster.Back{{Hours: cluster.Hours{From: time.Minute, To: time.Hour}, Nodes: 1}}}}
		c.Stop = &[3]engine.StopRule{} // everybody is suspended
		cfg = *c
	})
	h.want(0, "start 0", submit(job(0, 1, 1000, tier(cluster.BestEffort))))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "start 1", submit(job(1, 1, 100)))
	h.want(3, "", ev(engine.Started, 1))
	h.want(55, "preempt 0 for 2", submit(job(2, 1, 1)))
	h.at(60) // the node is given back
	for _, o := range h.andRestored(cfg) {
		o.at(61, stopped(0, engine.Preempted))
		if r := o.e.Record(0); r.Home != nil || r.State != engine.Pending {
			t.Errorf("job 0 is %v, and has memory on %+v", r.State, r.Home)
		}
		o.at(62, stopped(1, engine.Completed))
	}
}
