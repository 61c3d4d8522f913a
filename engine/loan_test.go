package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// A node is given back while a job is being suspended on it: nothing of the job stays there, and it
// starts again elsewhere, from what it had saved.
func TestSuspendedOnLentNode(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x1xT4", "fifo", func(c *engine.Config) {
		c.Spec.Partitions = []cluster.Partition{{Name: "lent", Nodes: []string{"n1"}},
			{Name: "own", Nodes: []string{"n2"}}}
		c.Spec.Loans = []cluster.Loan{
			{Partition: "lent", Back: []cluster.Back{
				{Hours: cluster.Hours{From: time.Minute, To: time.Hour}, Nodes: 1}}}}
		c.Stop = &[3]engine.StopRule{} // all are suspended
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

// lentNodes is an engine of n nodes, half of which are lent and given back.
func lentNodes(t testing.TB, n int) (engine.Config, engine.Snapshot) {
	spec, err := cluster.ParseShort(fmt.Sprintf("%dx8xT4", n))
	if err != nil {
		t.Fatal(err)
	}
	lent := cluster.Partition{Name: "lent"}
	for i := range n / 2 {
		lent.Nodes = append(lent.Nodes, spec.Nodes[2*i].Name)
	}
	spec.Partitions = []cluster.Partition{lent}
	spec.Loans = []cluster.Loan{
		{Partition: "lent", Back: []cluster.Back{{Hours: cluster.Hours{From: 0, To: 24 * time.Hour}, Nodes: n / 2}}}}
	cfg := engine.Config{Spec: *spec}
	if cfg.Policy, err = policy.New("fifo"); err != nil {
		t.Fatal(err)
	}
	if cfg.Placer, err = place.New("best-fit"); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.Step(engine.Batch{Seq: 1,
		Events: []engine.Event{{Type: engine.Tick}, {Type: engine.NodeDrained, Node: spec.Nodes[1].Name}}})
	return cfg, e.Snapshot()
}

// What is given back and drained is so after a restart; what is of no loan any more takes jobs again.
func TestRestoreGivenBack(t *testing.T) {
	cfg, snap := lentNodes(t, 8)
	if len(snap.Given) != 4 || len(snap.Drained) != 1 {
		t.Fatalf("given back: %v, drained: %v", snap.Given, snap.Drained)
	}
	for _, loans := range []bool{true, false} {
		if !loans {
			cfg.Spec.Loans = nil
		}
		e, err := engine.Restore(cfg, &snap)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range e.Nodes() {
			given, up := i%2 == 0 && loans, i%2 == 0 && !loans || i%2 == 1 && i != 1
			if e.IsGivenBack(n.Name) != given || (n.State == cluster.Up) != up {
				t.Errorf("loans %v: %s is %v, given back: %v", loans, n.Name, n.State, e.IsGivenBack(n.Name))
			}
		}
		if given := e.GivenBack(); loans && !slices.Equal(given, snap.Given) || !loans && given != nil {
			t.Errorf("loans %v: %v are given back", loans, given)
		}
		if e.IsGivenBack("nobody") {
			t.Error("a node that is not known is given back")
		}
	}
}

// BenchmarkRestoreLoans restores engines of which half of the nodes are given back: the time grows as the nodes do.
func BenchmarkRestoreLoans(b *testing.B) {
	for _, n := range []int{2500, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cfg, snap := lentNodes(b, n)
			for b.Loop() {
				if _, err := engine.Restore(cfg, &snap); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
