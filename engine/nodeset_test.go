package engine_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

func among(set string) func(*cluster.Job) { return func(j *cluster.Job) { j.Nodes = set } }

// tasks makes a gang of so many tasks.
func tasks(n int) func(*cluster.Job) { return func(j *cluster.Job) { j.Tasks[0].Count = n } }

// on is the node on which a job is, if it is on one.
func (h *hand) on(id int) string {
	r := h.e.Record(cluster.JobID(id))
	if len(r.Allocs) != 1 {
		return ""
	}
	return h.e.Nodes()[r.Allocs[0].Node].Name
}

// restarted goes on from a snapshot, which it returns.
func (h *hand) restarted(cfg engine.Config) engine.Snapshot {
	h.t.Helper()
	snap := h.e.Snapshot()
	e, err := engine.Restore(cfg, &snap)
	if err != nil {
		h.t.Fatal(err)
	}
	h.e = e
	return snap
}

func named(set string, nodes ...string) engine.Event {
	return engine.Event{Type: engine.NodesNamed, Set: &cluster.NodeSet{Name: set, Nodes: nodes}}
}

func sized(node string, cpu cluster.Milli, ram cluster.MiB) engine.Event {
	return engine.Event{Type: engine.NodeResized, Node: node, Size: &engine.NodeSize{CPU: cpu, RAM: ram}}
}

// A job runs within the set of nodes that it names, waits for room there, and is refused where the set can never hold
// it. A snapshot has the sets that jobs name.
func TestNodeSets(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "4x2xT4", "fifo", func(c *engine.Config) { cfg = *c })
	h.want(0, "start 1", named("right", "n3", "n4"), submit(job(1, 2, 1000, among("right"))))
	if on := h.on(1); on != "n3" {
		t.Errorf("it is on %s", on)
	}
	h.want(1, "start 2", submit(job(2, 2, 1000, among("right"))))
	h.want(2, "start 4", submit(job(3, 2, 1000, among("right"))), submit(job(4, 2, 1000)))
	h.want(3, "reject 5", submit(job(5, 1, 1000, among("right"), tasks(6))))
	if text := h.d.Actions[0].Text; !strings.Contains(text, "(4 suitable GPUs)") {
		t.Errorf("it is refused with %q", text)
	}
	h.want(4, "reject 6", submit(job(6, 1, 1000, among("nowhere"))))
	h.want(5, "start 7", named("right", "n1"), named("other", "n2", "gone"), submit(job(7, 1, 1000, among("other"))))
	snap := h.restarted(cfg)
	want := []cluster.NodeSet{{Name: "right", Nodes: []string{"n3", "n4"}}, {Name: "other", Nodes: []string{"n2"}}}
	if !reflect.DeepEqual(snap.Sets, want) {
		t.Errorf("the snapshot has %+v", snap.Sets)
	}
	h.want(6, "start 3", stopped(2, engine.Completed))
	if on := h.on(3); on != "n4" {
		t.Errorf("after a restart it is on %s", on)
	}
}

// In strict order a blocked job lets no job pass to its set of nodes, and any to others; and EASY promises one
// start in each separate part of the cluster.
func TestNodeSetsInOrder(t *testing.T) {
	h := newHand(t, "4x2xT4", "fifo", backfill(engine.Strict))
	h.want(0, "start 1", named("left", "n1", "n2"), named("right", "n3", "n4"),
		submit(job(1, 1, 1000, among("left"), tasks(3))))
	h.want(1, "start 4", submit(job(2, 2, 1000, among("left"))), submit(job(3, 1, 1000, among("left"))),
		submit(job(4, 1, 1000, among("right"))))
	h.want(2, "", submit(job(5, 1, 1000, tasks(8))), submit(job(6, 1, 1000, among("right"))))
	h.want(3, "start 2, start 3", stopped(1, engine.Completed))

	h = newHand(t, "4x2xT4", "fifo", backfill(engine.EASY))
	h.want(0, "start 1, start 2", named("left", "n1", "n2"), named("right", "n3", "n4"),
		submit(job(1, 1, 1000, among("left"), tasks(3))), submit(job(2, 1, 1000, among("right"), tasks(3))))
	h.want(1, "", submit(job(3, 1, 1000, among("left"), tasks(4))), submit(job(4, 1, 1000, among("right"), tasks(4))))
	// they would delay 3 and 4
	h.want(2, "", submit(job(5, 1, 5000, among("left"))), submit(job(6, 1, 5000, among("right"))))
	h.want(3, "start 7, start 8", submit(job(7, 1, 500, among("left"))), submit(job(8, 1, 500, among("right"))))
}

// A node gets more CPU, and a job that waits for it, or was impossible before, starts; it has less, and what has its
// place there and has not started gives it up.
func TestNodeResized(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x2xT4", "fifo", func(c *engine.Config) {
		defer func() { cfg = *c }()
		for i := range c.Spec.Nodes {
			c.Spec.Nodes[i].CPU, c.Spec.Nodes[i].RAM = 8000, 1000
		}
	})
	cpu := func(m cluster.Milli) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Tasks[0].Request.CPU = m }
	}
	h.want(0, "start 1", submit(job(1, 1, 1000, cpu(6000))))
	h.want(1, "start 2", submit(job(2, 1, 1000, cpu(6000))))
	h.want(2, "reject 4", submit(job(3, 1, 1000, cpu(5000))), submit(job(4, 1, 1000, cpu(9000))))
	h.want(3, "start 3", sized("n2", 12_000, 1000))
	h.want(4, "", submit(job(5, 1, 1000, cpu(11_000))))
	snap := h.restarted(cfg)
	if fmt.Sprint(snap.Resized) != "[n2]" || snap.Nodes[1].CPU != 12_000 {
		t.Errorf("the snapshot has sizes of %v, and %+v", snap.Resized, snap.Nodes[1])
	}
	h.want(5, "", sized("n2", 11_000, 1000), stopped(2, engine.Completed))
	h.want(6, "start 5", stopped(3, engine.Completed))
	h.want(7, "", sized("n2", 11_000, 1000), sized("nowhere", 1, 1))
	h.want(8, "reject 6", stopped(5, engine.Completed), sized("n2", 4000, 1000), submit(job(6, 1, 1000, cpu(9000))))
}
