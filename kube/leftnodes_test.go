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
	const many = 16 // nodes that left are forgotten at once
	for i := range pods {
		p := w.pods[pods[i].UID]
		w.bound(p.Gang, p, p.Gang.Run, p.Assumed, nil)
		pods[i] = pods[i].DeepCopy()
		pods[i].Spec.NodeName = p.Node
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
		w.now = w.now.Add(10 * time.Second)
		w.forgetNodes()
	}
	w.settleDown(t)
	if w.nodes.Kept().Known > 3+many || len(w.nodes.Order()) > 3+many || len(w.eng.Nodes()) > 3+many {
		t.Errorf("nodes: %d known, %d in order, %d in the engine; 2 are there", w.nodes.Kept().Known, len(w.nodes.Order()),
			len(w.eng.Nodes()))
	}
	w.now = w.now.Add(24 * time.Hour)
	w.forgetNodes()
	w.settleDown(t)
	if w.nodes.Kept().Known > 3 || len(w.nodes.Order()) > 3 || len(w.eng.Nodes()) > 3 || w.nodes.Kept().Gone > 1 {
		t.Errorf("%d nodes known, %d in the engine's order, %d in the engine, %d left; 2 are there", w.nodes.Kept().Known,
			len(w.nodes.Order()), len(w.eng.Nodes()), w.nodes.Kept().Gone)
	}
	for _, b := range w.eng.Beliefs() {
		for _, a := range b.Allocs {
			if name := w.nodes.Order()[a.Node]; name != w.at("g-0") && name != w.at("g-1") {
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

// forgetNodes has nodes forgotten that left, if that is due.
func (w *world) forgetNodes() {
	if w.nodes.MayForget(w.clock()) {
		w.stale = "nodes left"
	}
}
