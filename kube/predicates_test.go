package kube

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/fit"
)

// licence is a predicate of which the scheduler knows nothing: of pods that ask for it, a node takes one.
type licence struct{ users map[*fit.Neighbour]bool }

type licenceNeed string

func (f licence) Read(obj *v1.Pod, _ v1.ResourceList) (fit.Need, bool, error) {
	if name := obj.Annotations["licence"]; name != "" {
		return licenceNeed(name), true, nil
	}
	return nil, false, nil
}

func (f licence) Key(p *fit.Neighbour) string {
	name, _ := fit.Of[licenceNeed](p)
	return string(name)
}

func (f licence) Put(_ *fit.World, p *fit.Neighbour, by int) {
	if delete(f.users, p); by > 0 && f.Key(p) != "" {
		f.users[p] = true
	}
}

func (f licence) NodeChanged(*fit.World, string) {}

func (f licence) Limit(l *fit.Look, p *fit.Neighbour) {
	for q := range f.users {
		if f.Key(p) == f.Key(q) {
			l.Shut(q.Where, "its licence is in use")
		}
	}
}

func (f licence) Together(l *fit.Look) {
	if len(l.Pods) > 1 && f.Key(l.Pods[0]) != "" {
		l.Apart()
	}
}

// What pods can ask for is a matter of predicates alone: one that is put into the list is told to the engine, for gangs
// and for single pods, says why pods wait, and lets them go on when another has left.
func TestForeignPredicate(t *testing.T) {
	d, now := still(t, 3)
	d.nodes.World = fit.NewWorld(licence{map[*fit.Neighbour]bool{}})
	for _, obj := range d.nodes.Objects() {
		d.nodes.World.SetNode(obj.Name, obj)
	}
	licensed := func(pods ...*v1.Pod) []*v1.Pod {
		for _, p := range pods {
			p.Annotations["licence"] = "x"
		}
		return pods
	}
	d.come(t, now, licensed(controlplane.Gang("g", 2, 1, nil)...)...)
	if on := d.places("g"); len(on) != 2 {
		t.Fatalf("the gang is on %v", on)
	}
	d.come(t, now, licensed(controlplane.Pod("one", 1, nil))...)
	d.come(t, now, licensed(controlplane.Pod("two", 1, nil))...)
	d.come(t, now, controlplane.Pod("free", 1, nil))
	d.answer(t, now)
	if on := d.places("one"); len(on) != 1 || len(d.places("two")) != 0 || len(d.places("free")) != 1 {
		t.Fatalf("one is on %v, two on %v, free on %v", on, d.places("two"), d.places("free"))
	}
	if g := d.pods["two"].Gang; !strings.Contains(g.KeptOff, "3: its licence is in use") {
		t.Errorf("two says %q (%s)", g.KeptOff, g.Refused)
	}
	d.podGone(d.pods["one"].Obj)
	*now = now.Add(time.Minute)
	steps(t, d)
	if len(d.places("two")) != 1 {
		t.Errorf("two waits: %s", d.pods["two"].Gang.KeptOff)
	}
}
