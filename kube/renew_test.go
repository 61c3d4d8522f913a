package kube

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/places"
)

// comes lists the pods of a gang, each of so many GPUs, as they come from the API
// server.
func comes(name string, size, gpus int, generation string) []*v1.Pod {
	list := controlplane.Gang(name, size, gpus, nil)
	for _, p := range list {
		p.UID = types.UID(p.Name + generation)
	}
	return list
}

// allBound answers the bindings of a gang that are on their way.
func (d *Driver) allBound(t *testing.T, g *gang.Gang) {
	t.Helper()
	for i := range g.Places {
		s := &g.Places[i]
		d.bound(g, g.Pods[s.Pod], g.Run, s.Node, nil)
	}
	steps(t, d)
}

// A node joins, and is ready by the time at which the engine hears of it: the engine does not take it for one
// that is not.
func TestReadyMeanwhile(t *testing.T) {
	d, _ := still(t, 1)
	for _, p := range comes("train", 2, 8, "") {
		d.podChanged(p)
	}
	steps(t, d)
	g := d.gangs["gang/default/train"]
	if g.Phase != gang.Gathering || g.Refused == "" {
		t.Fatalf("16 GPUs on a node of 8: phase %d, refused %q", g.Phase, g.Refused)
	}
	n := controlplane.Node("n0001", 8, nil)
	d.nodeChanged(n)
	once(t, d)
	n = n.DeepCopy()
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	d.nodeChanged(n)
	if steps(t, d); g.Phase != gang.Starting {
		t.Errorf("both nodes are ready, and the gang is in phase %d", g.Phase)
	}
}

// A gang is told to leave in the moment in which the engine has to begin again: it
// leaves all the same.
func TestLeavesMeanwhile(t *testing.T) {
	d, _ := still(t, 2, controlplane.Gang("train", 2, 8, nil)...)
	g := d.gangs["gang/default/train"]
	d.allBound(t, g)
	if g.Phase != gang.Running {
		t.Fatalf("phase %d", g.Phase)
	}
	full := d.nodes.Node("n0000").Obj.DeepCopy()
	full.Spec.Unschedulable = true
	d.nodeChanged(full)
	steps(t, d)
	lost := g.Pods[g.Places[slices.IndexFunc(g.Places, func(s places.Place) bool { return s.Node == "n0000" })].Pod]
	d.podGone(lost.Obj)
	steps(t, d)
	other := comes("train", 1, 8, "-again")[0]
	other.Name, other.Annotations[AnnotationSize] = "train-again", "2"
	d.podChanged(other) // it cannot be where the lost one was
	labelled := d.nodes.Node("n0001").Obj.DeepCopy()
	labelled.Labels[d.opt.Labels.Clique] = "another"
	life := d.life.count
	d.nodeChanged(labelled)
	d.stale = "test"
	if steps(t, d); g.Phase != gang.Stopping || d.life.count == life {
		t.Errorf("the engine began %d times again, and the gang is in phase %d", d.life.count-life, g.Phase)
	}
}

// A binding is answered when its pod is gone, and pods of a new gang have its
// name: that stays one.
func TestAnsweredLate(t *testing.T) {
	first := comes("train", 2, 4, "-1")
	d, _ := still(t, 1)
	for _, p := range first {
		d.podChanged(p)
	}
	steps(t, d)
	old := d.gangs["gang/default/train"]
	p, run := d.pods[first[0].UID], old.Run
	if old.Phase != gang.Starting {
		t.Fatalf("phase %d", old.Phase)
	}
	for _, p := range first {
		d.podGone(p)
	}
	steps(t, d)
	second := comes("train", 2, 4, "-2")
	d.podChanged(second[0])
	steps(t, d)
	d.bound(old, p, run, "n0000", nil)
	steps(t, d)
	d.podChanged(second[1])
	steps(t, d)
	if g := d.gangs["gang/default/train"]; g == old || g == nil || len(g.Pods) != 2 || g.Phase != gang.Starting {
		t.Errorf("the gang that came second: %+v", g)
	}
}
