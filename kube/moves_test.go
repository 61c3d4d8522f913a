package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/moves"
)

// scattered has all pods be bound where they were put, two of them end after a while, and a
// pod of eight GPUs come, which fits nowhere then.
func scattered(t *testing.T, d *Driver, now *time.Time, after time.Duration, x, y *v1.Pod) {
	t.Helper()
	for _, g := range d.gangs {
		for _, p := range g.Pods {
			p.Node, p.Binding = g.Places[0].Node, false
		}
		d.agenda.touch(g)
	}
	steps(t, d)
	*now = now.Add(after)
	d.podGone(x)
	d.podGone(y)
	big := controlplane.Pod("big", 8, nil)
	big.UID, big.CreationTimestamp = "big", metav1.NewTime(*now)
	d.podChanged(big)
	steps(t, d)
}

// Two nodes of eight have half of their GPUs free each, and a pod asks for eight. Whose
// pods are made again could be elsewhere; not one without an owner, nor one that has to stay by a
// node selector, a port or a volume. Nothing is changed by looking.
func TestPlanMoves(t *testing.T) {
	owned := func(p *v1.Pod) *v1.Pod {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Trainer", Name: p.Name, UID: types.UID(p.Name), Controller: &yes}}
		return p
	}
	for _, c := range []struct {
		name   string
		change func(a, b *v1.Pod)
		want   string
	}{
		{"both are made again", func(a, b *v1.Pod) { owned(a); owned(b) }, "a n0000>n0001"},
		{"one is", func(_, b *v1.Pod) { owned(b) }, "b n0001>n0000"},
		{"none is", func(_, _ *v1.Pod) {}, "no running job may be moved"},
		{"a selector", func(a, b *v1.Pod) {
			owned(a).Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n0000"}
			owned(b)
		}, "b n0001>n0000"},
		{"a port", func(a, _ *v1.Pod) {
			owned(a).Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, "no running job may be moved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, x, b, y := controlplane.Pod("a", 4, nil), controlplane.Pod("a-ends", 4, nil),
				controlplane.Pod("b", 4, nil), controlplane.Pod("b-ends", 4, nil)
			c.change(a, b)
			d, now := still(t, 2, a, x, b, y)
			scattered(t, d, now, time.Minute, x, y)
			before := d.eng.Snapshot().Hash
			snap, cfg, err := d.movable(nil)
			if err != nil {
				t.Fatal(err)
			}
			e, err := engine.Restore(cfg, &snap)
			if err != nil {
				t.Fatal(err)
			}
			list := e.LookForMoves(cluster.NoJob)
			if len(list) != 1 {
				t.Fatalf("%+v", list)
			}
			got := list[0].Text
			for _, m := range list[0].Moves {
				got = fmt.Sprintf("%s %s>%s", m.Name[len("default/"):], m.From[0], m.To[0])
				if m.Lost != time.Minute || m.Cost != 4*time.Minute {
					t.Errorf("%+v: what it did since its start is lost", m)
				}
			}
			if got != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
			for _, g := range d.gangs {
				if g.Spec != nil && !g.Spec.NoRequeue {
					t.Errorf("%s comes back in the engine that decides", g.Name)
				}
			}
			if d.eng.Snapshot().Hash != before {
				t.Error("something was decided")
			}
		})
	}
}

// What a gang says of being moved counts before what its owner is, and what it says of
// its checkpoints is what a move loses.
func TestMovable(t *testing.T) {
	for _, c := range []struct {
		kind  string
		says  map[string]string
		moves bool
		lost  time.Duration
	}{
		{"ReplicaSet", nil, true, 2 * time.Minute},
		{"ReplicaSet", map[string]string{"!" + AnnotationMovable: "false"}, false, 0},
		{"Trainer", nil, false, 0},
		{"Trainer", map[string]string{"!" + AnnotationMovable: "true"}, true, 2 * time.Minute},
		{"ReplicaSet", map[string]string{"!" + AnnotationSaves: "50s"}, true, 20 * time.Second},
	} {
		yes, a := true, controlplane.Pod("a", 4, c.says)
		a.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: c.kind, Name: "a", UID: "a", Controller: &yes}}
		x, b, y := controlplane.Pod("a-ends", 4, nil), controlplane.Pod("b", 4, nil), controlplane.Pod("b-ends", 4, nil)
		d, now := still(t, 2, a, x, b, y)
		d.opt.Rules.Defrag = &engine.Defrag{}
		scattered(t, d, now, 2*time.Minute, x, y)
		snap, cfg, err := d.movable(nil)
		if err != nil {
			t.Fatal(err)
		}
		list, err := (&moves.Question{Job: cluster.NoJob, Snapshot: snap, Config: cfg}).Look()
		if err != nil || len(list) != 1 || (len(list[0].Moves) == 1) != c.moves {
			t.Fatalf("%+v: %+v %v", c, list, err)
		}
		if c.moves && list[0].Moves[0].Lost != c.lost {
			t.Errorf("%+v: %+v", c, list[0].Moves[0])
		}
	}
	for key, want := range map[string]string{AnnotationMovable: "neither true nor false", AnnotationSaves: "above 0"} {
		p := controlplane.Pod("p", 1, map[string]string{"!" + key: "0s"})
		d, _ := still(t, 1, p)
		for _, g := range d.gangs {
			if g.Phase != gang.Gathering || !strings.Contains(g.Refused, want) || !strings.Contains(g.Refused, key) {
				t.Errorf("%s: phase %d, %s", key, g.Phase, g.Refused)
			}
		}
	}
}

// In a protected time no moves are made even where people ask for them.
func TestMovesProtected(t *testing.T) {
	d, now := still(t, 1) // Sunday, 1 March 2026, 12:00 UTC
	d.opt.Rules.Defrag = &engine.Defrag{Protected: &cluster.Weekly{Zone: "UTC",
		Hours: []cluster.Hours{{From: 12*time.Hour + 2*time.Minute, To: 14 * time.Hour}}}}
	if _, err := (d.View()).MakeMoves(t.Context(), &ask.MovesRequest{}); errors.Is(err, ErrProtected) {
		t.Errorf("at noon: %v", err)
	}
	*now = now.Add(time.Hour)
	if _, err := (d.View()).MakeMoves(t.Context(), &ask.MovesRequest{}); !errors.Is(err, ErrProtected) ||
		!strings.Contains(err.Error(), "protected until 14:00 (UTC)") {
		t.Errorf("at one: %v", err)
	}
}
