package kube

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/relocations"
	"github.com/muster-gpu/muster/kube/terms"
)

// allBound answers all bindings that are on their way.
func (w *world) allBound(t testing.TB) {
	t.Helper()
	for range 3 {
		w.answerAll()
		w.settleDown(t)
	}
}

func (w *world) answerAll() {
	for _, p := range w.pods {
		if p.Binding {
			w.bound(p.Gang, p, p.Gang.Run, p.Assumed, nil)
		}
	}
}

// runs is what the engine knows of the gang of a pod.
func (w *world) runs(t *testing.T, pod string) *engine.JobRecord {
	t.Helper()
	p := w.pods[types.UID(pod)]
	if p == nil || p.Gang == nil || p.Gang.Job == cluster.NoJob {
		t.Fatalf("the engine does not know of %s", pod)
	}
	r := w.eng.Record(p.Gang.Job)
	if r == nil || r.State != engine.Running {
		t.Fatalf("%s does not run: %+v", pod, r)
	}
	return r
}

// clean checks that nothing is kept of what the engine was told, and that it is right.
func (w *world) clean(t *testing.T, jobs int) {
	t.Helper()
	kept := w.unconfirmed.Kept() + w.nodes.Kept().Changed
	if kept > 0 || w.relocations.Busy() {
		t.Errorf("kept of what the engine was told: %+v, nodes %+v, moves %v", w.unconfirmed, w.nodes.Kept(),
			w.relocations)
	}
	if len(w.byID) != jobs || len(w.eng.Beliefs()) > jobs {
		t.Errorf("%d gangs have jobs, and the engine knows of %d; it is %d", len(w.byID), len(w.eng.Beliefs()), jobs)
	}
	if err := w.eng.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// Pods that run are resized, alone and in a gang: the engine counts what they hold, without beginning again.
func TestSteadyResize(t *testing.T) {
	gang := controlplane.Gang("g", 3, 1, nil)
	p := cpus(controlplane.Pod("p", 1, nil), "2")
	w := newWorld(t, nil, someNodes(1, 8), append(gang, p)...)
	p = w.run(t, p)
	for i := range gang {
		gang[i] = w.run(t, gang[i])
	}
	w.steadily(t, "a pod grows", func() { p = w.change(t, p, func(p *v1.Pod) { cpus(p, "60") }) })
	if r := w.runs(t, "p"); r.Allocs[0].CPU != 60_000 {
		t.Errorf("it holds %d milli-cores", r.Allocs[0].CPU)
	}
	w.steadily(t, "one waits for room", func() { w.add(cpus(controlplane.Pod("large", 1, nil), "50")) })
	if w.at("large") != "" {
		t.Errorf("large is at %s", w.at("large"))
	}
	w.steadily(t, "one of a gang grows", func() { gang[1] = w.change(t, gang[1], func(p *v1.Pod) { cpus(p, "20") }) })
	if r := w.runs(t, "g-1"); len(r.Spec.Tasks) != 2 || r.Tasks+int32(r.Spec.Tasks[1].Count) != 3 {
		t.Errorf("the gang is of %+v", r.Spec.Tasks)
	}
	w.same(t)
	w.steadily(t, "both shrink", func() {
		p = w.change(t, p, func(p *v1.Pod) { cpus(p, "1") })
		gang[1] = w.change(t, gang[1], func(p *v1.Pod) { cpus(p, "1") })
	})
	if r := w.runs(t, "g-1"); len(r.Spec.Tasks) != 1 {
		t.Errorf("the gang is of %+v", r.Spec.Tasks)
	}
	if w.at("large") != "n0" {
		t.Errorf("large is at %q: %s", w.at("large"), w.gangs["pod/large"].Refused)
	}
	w.same(t)
	w.clean(t, 3)
}

// A gang that is to be repaired loses a node, and what its owner makes joins it.
func TestSteadyRepair(t *testing.T) {
	repair := map[string]string{"!" + AnnotationLoss: terms.LossRepair}
	gang, nodes := controlplane.Gang("g", 2, 8, repair), someNodes(3, 8)
	for i, p := range gang {
		gang[i] = on(p, "pool", "a")
	}
	nodes[0].Labels["pool"], nodes[1].Labels["pool"] = "a", "a"
	w := newWorld(t, nil, nodes, gang...)
	w.allBound(t)
	lost, kept := "g-0", "g-1"
	node := w.at(lost)
	w.steadily(t, "a node leaves", func() { w.nodeGone(node) })
	if r := w.runs(t, kept); r.Tasks != 1 {
		t.Fatalf("what is left of the gang has %d tasks", r.Tasks)
	}
	w.steadily(t, "another node comes, and another pod", func() {
		n := someNode("n9")
		n.Labels["pool"] = "a"
		w.nodeChanged(n)
		w.podGone(w.pods[types.UID(lost)].Obj)
		again := on(controlplane.Gang("g", 2, 8, repair)[0], "pool", "a")
		again.Name = "again"
		w.add(again)
		w.settleDown(t)
		w.allBound(t)
	})
	r := w.runs(t, kept)
	if r.Tasks != 2 || w.at("again") != "n9" || w.pods["again"].Gang != w.pods[types.UID(kept)].Gang {
		t.Errorf("it runs with %d tasks, and the other pod is at %q", r.Tasks, w.at("again"))
	}
	w.clean(t, 1)
	w.steadily(t, "the gang ends", func() {
		w.podGone(w.pods["again"].Obj)
		w.podGone(w.pods[types.UID(kept)].Obj)
	})
	w.clean(t, 0)
}

// A gang starts with more pods than it needs: it and each of those beyond are gangs by themselves.
func TestSteadyMoldable(t *testing.T) {
	w := newWorld(t, nil, someNodes(2, 8))
	w.steadily(t, "it starts", func() {
		for _, p := range least("g", 7, 2, 2, nil) {
			w.add(p)
		}
		w.settleDown(t)
		w.allBound(t)
	})
	if r := w.runs(t, "g-0"); r.Tasks != 2 || r.Spec.Elastic != (cluster.Elastic{}) {
		t.Errorf("the gang has %d tasks, elastic %+v", r.Tasks, r.Spec.Elastic)
	}
	for i := 2; i < 7; i++ {
		if r := w.runs(t, fmt.Sprint("g-", i)); r.Tasks != 1 {
			t.Errorf("g-%d has %d tasks", i, r.Tasks)
		}
	}
	if n := w.eng.Snapshot().Elastic; n != 0 {
		t.Errorf("%d jobs are elastic", n)
	}
	w.clean(t, 6)
}

// Pods are found bound by a plan while the engine works, as by a scheduler that did not know that another leads: it
// takes over the gangs whose devices are free, and begins again where they are not.
func TestSteadyFound(t *testing.T) {
	w := newWorld(t, nil, someNodes(2, 8))
	text := func(gpus, tasks int, node string) string {
		r := cluster.Request{GPUs: gpus, CPU: 1000}
		p := plans.Plan{Tasks: []cluster.TaskSet{{Count: tasks, Request: r}},
			On: []plans.On{{Node: node, Tasks: tasks}}}
		return p.Text()
	}
	w.steadily(t, "one is found", func() { w.add(boundWith(controlplane.Pod("one", 6, nil), "n0", text(6, 1, "n0"))) })
	if r := w.runs(t, "one"); r.Allocs[0].Node != 0 {
		t.Errorf("it holds %+v", r.Allocs)
	}
	w.steadily(t, "a gang is", func() {
		for _, p := range controlplane.Gang("g", 2, 3, nil) {
			w.add(boundWith(p, "n1", text(3, 2, "n1")))
		}
	})
	if r := w.runs(t, "g-0"); r.Tasks != 2 {
		t.Errorf("it has %d tasks", r.Tasks)
	}
	w.steadily(t, "one with its node", func() {
		w.add(boundWith(controlplane.Pod("early", 8, nil), "n2", text(8, 1, "n2")))
		w.nodeChanged(someNode("n2"))
	})
	w.runs(t, "early")
	w.steadily(t, "others wait", func() {
		w.add(controlplane.Pod("waits", 4, nil))
		w.add(controlplane.Pod("fits", 2, nil))
	})
	if w.at("waits") != "" || w.at("fits") == "" {
		t.Errorf("waits is at %q, fits at %q", w.at("waits"), w.at("fits"))
	}
	w.clean(t, 5)
	life := w.life.count
	w.add(boundWith(controlplane.Pod("twice", 8, nil), "n0", text(8, 1, "n0")))
	if w.settleDown(t); w.life.count == life {
		t.Error("the devices of one that is found are another's, and the engine goes on")
	}
}

// A node is partitioned, and is whole again: what waits for its slices, or for its GPUs, starts.
func TestSteadyPartition(t *testing.T) {
	w := newWorld(t, func(o *Options) { migRules(o) }, []*v1.Node{migNodeOf(nil, nil)})
	w.steadily(t, "one comes", func() { w.add(migPod("slice", "1g.10gb", nil)) })
	note := &mig.Note{By: "muster", Config: "all-1g.10gb", From: "all-disabled", Since: w.now, GPUs: 2}
	note.Offer = &config.MIGOffer{Slices: map[string]int{"1g.10gb": 14}}
	ready := []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	n := migNodeOf(map[string]string{mig.Label: mig.Changing, migConfigLabel: "all-1g.10gb"}, note)
	n.Status.Conditions = ready
	w.steadily(t, "the node is partitioned", func() { w.nodeChanged(n) })
	if got := w.eng.Nodes()[0]; got.MIG == "" || w.nodes.Node("n1").MIG.Stays || w.at("slice") != "" {
		t.Errorf("the engine has %+v, and the pod is at %q", got, w.at("slice"))
	}
	w.steadily(t, "that is done", func() {
		n = n.DeepCopy()
		delete(n.Labels, mig.Label)
		n.Spec.Unschedulable = false
		n.Status.Capacity = mig.DevicesOf(n.Status.Capacity, note.Offer)
		n.Status.Allocatable = n.Status.Capacity
		w.nodeChanged(n)
	})
	if w.at("slice") != "n1" {
		t.Errorf("the pod is at %q: %s", w.at("slice"), w.gangs["pod/slice"].Refused)
	}
	w.clean(t, 1)
	w.steadily(t, "the pod ends, and the node is whole again", func() {
		w.podGone(w.pods["slice"].Obj)
		w.settleDown(t)
		whole := migNodeOf(nil, nil)
		whole.Status.Conditions = ready
		w.nodeChanged(whole)
		w.add(controlplane.Pod("whole", 2, nil))
	})
	if w.at("whole") != "n1" {
		t.Errorf("the pod is at %q: %s", w.at("whole"), w.gangs["pod/whole"].Refused)
	}
	w.clean(t, 1)
}

// A node in use is in another NVLink domain; one that is idle has other GPUs, also when it comes back: the engine takes
// that over. Other GPUs of a node in use have it begin again.
func TestSteadyLabels(t *testing.T) {
	w := newWorld(t, nil, someNodes(2, 8), on(controlplane.Pod("p", 8, nil), "kubernetes.io/hostname", "n0"))
	change := func(name string, how func(*v1.Node)) func() {
		return func() {
			n := w.nodes.Node(name).Obj.DeepCopy()
			how(n)
			w.nodeChanged(n)
		}
	}
	product := func(name string) func(*v1.Node) {
		return func(n *v1.Node) { n.Labels["nvidia.com/gpu.product"], n.Labels["nvidia.com/gpu.memory"] = name, "" }
	}
	w.steadily(t, "another NVLink domain", change("n0", func(n *v1.Node) { n.Labels["nvidia.com/gpu.clique"] = "c7" }))
	w.steadily(t, "other GPUs", change("n1", product("NVIDIA-A100-SXM4-80GB")))
	if list := w.eng.Nodes(); list[0].NVLink != "c7" || list[1].Model != "A100-80GB" {
		t.Errorf("the engine has %+v", list)
	}
	w.steadily(t, "it leaves, and comes back as another", func() {
		n := w.nodes.Node("n1").Obj.DeepCopy()
		w.nodeGone("n1")
		w.settleDown(t)
		product("NVIDIA-A100-PCIE-40GB")(n)
		w.nodeChanged(n)
		w.add(controlplane.Pod("q", 8, nil))
	})
	if list := w.eng.Nodes(); list[1].Model != "A100-40GB" || w.at("q") != "n1" {
		t.Errorf("the engine has %+v, and the pod is at %q: %s", list[1], w.at("q"), w.gangs["pod/q"].Refused)
	}
	w.clean(t, 2)
	life := w.life.count
	change("n0", product("NVIDIA-A100-SXM4-80GB"))()
	if w.settleDown(t); w.life.count == life {
		t.Error("a node in use has other GPUs, and the engine goes on")
	}
}

// A gang is moved so that another fits, and the pods that its owner makes take its place.
func TestSteadyMove(t *testing.T) {
	owned := func(name string) *v1.Pod {
		p, yes := controlplane.Pod(name, 4, map[string]string{"!" + AnnotationMovable: "true"}), true
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Trainer", Name: "t", UID: "t"}}
		p.OwnerReferences[0].Controller = &yes
		return p
	}
	half := func(name string) *v1.Pod { return controlplane.Pod(name, 4, nil) }
	a, x, b, y := owned("a"), half("x"), half("b"), half("y")
	w := newWorld(t, mover(time.Minute), someNodes(2, 8))
	for _, p := range []*v1.Pod{a, x, b, y} {
		w.add(p)
		w.settleDown(t)
	}
	w.allBound(t)
	w.podGone(x)
	w.podGone(y)
	w.steadily(t, "one comes that fits nowhere", func() { w.add(controlplane.Pod("big", 8, nil)) })
	r := relocations.NewRequest(w.gangs["pod/big"].Job, engine.NoCompact)
	w.steadily(t, "the engine is asked for moves", func() {
		if !w.askToMove(r, []cluster.JobID{w.gangs["pod/a"].Job}) || w.askToMove(r, nil) {
			t.Error("it is asked once, and no more at a time")
		}
	})
	if g := w.gangs["pod/a"]; g.Phase != gang.Stopping || g.Relocation == nil {
		t.Fatalf("phase %d, %+v: %+v", g.Phase, g.Relocation, <-r.Answer)
	}
	w.steadily(t, "it leaves, and its owner makes another", func() {
		w.podGone(a)
		w.settleDown(t)
		w.add(owned("again"))
		w.settleDown(t)
		w.allBound(t)
	})
	if rec := w.runs(t, "again"); !rec.Spec.NoRequeue || w.at("again") != w.at("b") || w.at("big") == "" {
		t.Errorf("%+v; it is at %q, b at %q, big at %q", rec.Spec, w.at("again"), w.at("b"), w.at("big"))
	}
	w.clean(t, 3)
	r = relocations.NewRequest(cluster.NoJob, engine.NoCompact)
	w.steadily(t, "it is asked where none is to be moved", func() {
		w.askToMove(r, []cluster.JobID{w.gangs["pod/again"].Job})
	})
	if rec := w.runs(t, "again"); !rec.Spec.NoRequeue {
		t.Error("it comes back though it was not moved")
	}
	w.clean(t, 3)
}

// The engine ignores what it is told: it begins again with what is there.
func TestNotTakenOver(t *testing.T) {
	w := newWorld(t, nil, someNodes(1, 8), controlplane.Pod("p", 2, nil))
	w.allBound(t)
	rec := w.runs(t, "p")
	wrong := *rec
	wrong.Allocs = []engine.Alloc{{Node: 7, Tasks: 1, GPUs: 3}}
	spec := *rec.Spec
	spec.Tasks = []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 3}}}
	wrong.Spec = &spec
	life := w.life.count
	w.pods["p"].Obj.Spec.NodeName, w.pods["p"].Obj.Annotations[AnnotationPlan] = "n0", w.pods["p"].Gang.Plan
	w.queued = append(w.queued, w.unconfirmed.Reshaped(&wrong))
	if w.settleDown(t); w.life.count == life {
		t.Error("the engine goes on")
	}
	if rec := w.runs(t, "p"); rec.Spec.Tasks[0].Request.GPUs != 2 {
		t.Errorf("it holds %+v", rec.Spec.Tasks)
	}
	w.clean(t, 1)
}
