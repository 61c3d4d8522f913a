package kube

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// Nodes that come and go leave nothing behind, also where pods name nodes that never were; a gang that runs keeps its
// place while others are forgotten.
func TestNodesLeave(t *testing.T) {
	nodes := someNodes(4, 8)
	pods := controlplane.Gang("g", 2, 8, nil)
	w := newWorld(t, nil, nodes, pods...)
	for i := range pods {
		p := w.pods[pods[i].UID]
		w.bound(p.gang, p, p.gang.run, p.assumed, nil)
		pods[i] = pods[i].DeepCopy()
		pods[i].Spec.NodeName = p.node
		w.podChanged(pods[i])
	}
	w.settleDown(t)
	for _, n := range nodes {
		if n.Name != w.at("g-0") && n.Name != w.at("g-1") {
			w.nodeGone(n.Name)
		}
	}
	for round := range 60 {
		name := fmt.Sprint("spot", round)
		w.nodeChanged(someNode(name))
		ghost := controlplane.Pod(fmt.Sprint("ghost", round), 1, nil)
		ghost.Spec.NodeName = fmt.Sprint("never", round)
		w.add(ghost)
		w.settleDown(t)
		w.podGone(ghost)
		w.nodeGone(name)
		w.settleDown(t)
		w.now = w.now.Add(forgetEvery)
		w.forgetDue(w.clock())
	}
	w.settleDown(t)
	if len(w.nodes) > 3+forgetMany || len(w.order) > 3+forgetMany || len(w.eng.Nodes()) > 3+forgetMany {
		t.Errorf("nodes: %d known, %d in order, %d in the engine; 2 are there", len(w.nodes), len(w.order),
			len(w.eng.Nodes()))
	}
	w.now = w.now.Add(forgetLate)
	w.forgetDue(w.clock())
	w.settleDown(t)
	if len(w.nodes) > 3 || len(w.order) > 3 || len(w.eng.Nodes()) > 3 || len(w.goneNodes) > 1 {
		t.Errorf("%d nodes known, %d in the engine's order, %d in the engine, %d left; 2 are there", len(w.nodes),
			len(w.order), len(w.eng.Nodes()), len(w.goneNodes))
	}
	for _, b := range w.eng.Beliefs() {
		for _, a := range b.Allocs {
			if name := w.order[a.Node]; name != w.at("g-0") && name != w.at("g-1") {
				t.Errorf("the gang is on %s in the books", name)
			}
		}
	}
	p := controlplane.Pod("p", 1, nil)
	w.add(p)
	w.nodeChanged(someNode("late"))
	w.now = w.now.Add(time.Second)
	w.settleDown(t)
	if w.at("p") != "late" {
		t.Errorf("p is at %q", w.at("p"))
	}
}
