package kube

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/nodes"
)

// steadily runs f and fails if the engine began again meanwhile.
func (w *world) steadily(t *testing.T, what string, f func()) {
	t.Helper()
	life := w.life.count
	f()
	w.settleDown(t)
	if w.life.count != life || w.stale != "" {
		t.Errorf("%s: the engine began again %d times (%s)", what, w.life.count-life, w.stale)
	}
}

// on has a pod ask for nodes with a label.
func on(p *v1.Pod, key, value string) *v1.Pod {
	p.Spec.NodeSelector = map[string]string{key: value}
	return p
}

// A thousand pods each ask for another set of nodes: each is told to the engine, and none has it begin again.
func TestManySelectors(t *testing.T) {
	nodes := someNodes(1000, 8)
	for i, n := range nodes {
		n.Labels["one"] = fmt.Sprint(i)
		n.Spec.Taints = []v1.Taint{{Key: "own", Value: fmt.Sprint(i), Effect: v1.TaintEffectNoSchedule}}
	}
	w := newWorld(t, nil, nodes)
	pod := func(name string, i, gpus int) *v1.Pod {
		p := on(controlplane.Pod(name, gpus, nil), "one", fmt.Sprint(i))
		p.Spec.Tolerations = []v1.Toleration{{Key: "own", Operator: v1.TolerationOpEqual, Value: fmt.Sprint(i)}}
		return p
	}
	w.steadily(t, "selectors", func() {
		for i := range 1000 {
			w.add(pod(fmt.Sprint("p", i), i, 5))
		}
	})
	for i := range 1000 {
		if name := fmt.Sprint("p", i); w.at(name) != fmt.Sprint("n", i) {
			t.Fatalf("%s is at %q", name, w.at(name))
		}
	}
	w.steadily(t, "a pod that waits, and one that is too large for its nodes", func() {
		w.add(pod("waits", 7, 5))
		w.add(pod("large", 7, 9))
	})
	if g := w.gangs["pod/waits"]; g.Phase != gang.Waiting {
		t.Errorf("the pod that waits: %+v", g)
	}
	if g := w.gangs["pod/large"]; g.Phase != gang.Gathering || g.Refused == "" {
		t.Errorf("a pod that its nodes cannot ever hold is to be refused, not to wait: phase %d, %q", g.Phase,
			g.Refused)
	}
	if n := w.nodes.Kept().Sets; n < 1000 {
		t.Fatalf("%d sets", n)
	}
	w.steadily(t, "the minute", func() { w.compare(w.clock()) })
	if kept := w.nodes.Kept(); kept.Sets > 2 || kept.Log > 0 {
		t.Errorf("%d sets of nodes are known, and %d changes; two pods are not bound", kept.Sets, kept.Log)
	}
	w.stale = "test"
	w.settleDown(t)
	if s := w.eng.Snapshot(); len(s.Sets) != 1 || len(w.nodes.Sets.Named()) != 1 {
		t.Errorf("the engine knows %d sets of nodes, the driver %d; one pod waits", len(s.Sets),
			len(w.nodes.Sets.Named()))
	}
}

// Nodes join, come back, leave, are labelled, tainted, cordoned and resized, and gangs that wait follow.
func TestSteady(t *testing.T) {
	w := newWorld(t, nil, someNodes(2, 8), on(controlplane.Pod("zone", 1, nil), "zone", "a"),
		controlplane.Pod("fills", 8, nil), controlplane.Pod("too", 8, nil),
		controlplane.Pod("waits", 8, nil))
	waits := func(name string) {
		t.Helper()
		if w.at(name) != "" {
			t.Errorf("%s is at %q", name, w.at(name))
		}
	}
	bound := func(name, node string) {
		t.Helper()
		if w.at(name) != node {
			t.Errorf("%s is at %q, not %s: %s", name, w.at(name), node, w.gangs["pod/"+name].Refused)
		}
	}
	waits("zone")
	waits("waits")
	change := func(name string, how func(*v1.Node)) func() {
		return func() {
			n := w.nodes.Node(name).Obj.DeepCopy()
			how(n)
			w.nodeChanged(n)
		}
	}
	n2 := someNode("n2")
	n2.Spec.Unschedulable = true
	w.steadily(t, "a node joins that is cordoned", func() { w.nodeChanged(n2) })
	waits("waits")
	w.steadily(t, "it is opened", change("n2", func(n *v1.Node) { n.Spec.Unschedulable = false }))
	bound("waits", "n2")
	n3 := someNode("n3")
	w.steadily(t, "a node joins", func() { w.nodeChanged(n3) })
	waits("zone")
	w.steadily(t, "a node gets a label", change("n3", func(n *v1.Node) { n.Labels["zone"] = "a" }))
	bound("zone", "n3")
	w.steadily(t, "a pod that may be there waits", func() {
		w.add(on(controlplane.Pod("more", 8, nil), "zone", "a"))
		w.add(on(controlplane.Pod("big", 8, nil), "zone", "b"))
	})
	waits("more")
	n4 := someNode("n4")
	n4.Labels["zone"] = "a"
	w.steadily(t, "another such node joins", func() { w.nodeChanged(n4) })
	bound("more", "n4")
	w.steadily(t, "pods wait for a node that has a taint soon", func() {
		w.add(on(controlplane.Pod("last", 4, nil), "zone", "a"))
		w.add(on(controlplane.Pod("after", 4, nil), "zone", "a"))
	})
	bound("last", "n3")
	waits("after")
	w.steadily(t, "it gets the taint", change("n3", func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}}
	}))
	w.steadily(t, "room is made there", func() { w.podGone(w.pods["zone"].Obj); w.podGone(w.pods["last"].Obj) })
	waits("after")
	if g := w.gangs["pod/after"]; g.Phase != gang.Waiting || len(g.Nodes.Names) != 1 {
		t.Errorf("the nodes that suit the pod that waits: %v", g.Nodes.Names)
	}
	w.steadily(t, "it loses the taint", change("n3", func(n *v1.Node) { n.Spec.Taints = nil }))
	bound("after", "n3")
	w.steadily(t, "the only other node of a zone leaves", func() { w.podGone(w.pods["more"].Obj); w.nodeGone("n4") })
	w.steadily(t, "it comes back", func() { w.nodeChanged(n4.DeepCopy()) })
	w.steadily(t, "its label goes", change("n4", func(n *v1.Node) { n.Labels["zone"] = "c" }))
	if g := w.gangs["pod/big"]; g.Phase != gang.Gathering || g.Refused == "" {
		t.Errorf("no node is of its zone: phase %d, %q", g.Phase, g.Refused)
	}
}

// Foreign pods take CPU and memory of nodes, and give it back: the engine knows, and pods that wait for it get it.
func TestSteadySizes(t *testing.T) {
	w := newWorld(t, nil, someNodes(1, 8)) // 96 CPUs
	foreign := cpus(controlplane.Pod("foreign", 0, nil), "90")
	foreign.Spec.SchedulerName, foreign.Spec.NodeName = "other", "n0"
	w.steadily(t, "a foreign pod", func() { w.add(foreign) })
	w.steadily(t, "pods", func() {
		w.add(cpus(controlplane.Pod("small", 1, nil), "2"))
		w.add(cpus(controlplane.Pod("large", 1, nil), "20"))
	})
	if w.at("small") != "n0" || w.at("large") != "" {
		t.Errorf("small is at %q, large at %q", w.at("small"), w.at("large"))
	}
	w.steadily(t, "it ends", func() { w.podGone(foreign) })
	if w.at("large") != "n0" {
		t.Errorf("large is at %q: %s", w.at("large"), w.gangs["pod/large"].Refused)
	}
	w.steadily(t, "the kubelet keeps more", func() {
		n := w.nodes.Node("n0").Obj.DeepCopy()
		n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("30")
		w.nodeChanged(n)
	})
	w.steadily(t, "one more", func() { w.add(cpus(controlplane.Pod("third", 1, nil), "10")) })
	if w.at("third") != "" {
		t.Errorf("third is at %q, and 8 CPUs are left", w.at("third"))
	}
	if got := w.eng.Nodes()[0].CPU; got != 30_000 {
		t.Errorf("the engine counts %d milli-cores", got)
	}
	w.stale = "test" // the next engine is made with that size
	w.settleDown(t)
	if got := w.eng.Nodes()[0].CPU; got != 30_000 {
		t.Errorf("the next engine counts %d milli-cores", got)
	}
}

// A thousand nodes, each of its own kind by label, come and go: the engine begins again only to forget them, and
// nothing is left of them.
func TestManyNodesComeAndGo(t *testing.T) {
	w := newWorld(t, nil, someNodes(4, 8))
	life := w.life.count
	for i := range 1000 {
		name := fmt.Sprint("spot", i)
		n := someNode(name)
		n.Labels["kind"] = name
		w.nodeChanged(n)
		w.add(on(controlplane.Pod(fmt.Sprint("p", i), 8, nil), "kind", name))
		steps(t, w.Driver)
		if w.at(fmt.Sprint("p", i)) != name {
			t.Fatalf("the pod of %s is at %q", name, w.at(fmt.Sprint("p", i)))
		}
		w.podGone(w.pods[types.UID(fmt.Sprint("p", i))].Obj)
		w.nodeGone(name)
		w.now = w.now.Add(time.Second)
		w.forgetNodes()
		steps(t, w.Driver)
	}
	w.now = w.now.Add(24 * time.Hour)
	w.forgetNodes()
	w.settleDown(t)
	if k := w.life.count - life; k > 1000/16 {
		t.Errorf("the engine began again %d times", k)
	}
	w.compare(w.clock())
	kept := w.nodes.Kept()
	if kept != (nodes.Kept{Known: 4, Numbered: 4}) || len(w.nodes.Order()) != 4 || len(w.eng.Nodes()) != 4 ||
		len(w.nodes.Sets.Named()) != 0 {
		t.Errorf("nodes: %+v; %d in order, %d in the engine; %d sets named", kept, len(w.nodes.Order()),
			len(w.eng.Nodes()), len(w.nodes.Sets.Named()))
	}
}

// A pod that waits is changed in each way that counts: the engine goes on.
func TestSteadyPods(t *testing.T) {
	nodes := someNodes(2, 8)
	nodes[1].Spec.Taints = []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}}
	p := controlplane.Pod("p", 4, nil)
	w := newWorld(t, nil, nodes, controlplane.Pod("fills", 8, nil), p)
	if w.at("p") != "" {
		t.Fatalf("p is at %q", w.at("p"))
	}
	w.steadily(t, "it gets a label", func() {
		p = w.change(t, p, func(p *v1.Pod) { p.Labels[LabelTier] = "critical" })
	})
	w.steadily(t, "it tolerates more", func() {
		p = w.change(t, p, func(p *v1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: "team", Operator: v1.TolerationOpExists})
		})
	})
	if w.at("p") != "n1" {
		t.Errorf("p is at %q: %s", w.at("p"), w.gangs["pod/p"].Refused)
	}
}
