package kube

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// Two nodes of eight have half of their GPUs free each, and a pod asks for eight. Whose
// pods are made anew could be elsewhere; not who is nobody's, nor who has to stay by a
// node selector, a port or a volume. Nothing is changed by looking.
func TestPlanMoves(t *testing.T) {
	owned := func(p *v1.Pod) *v1.Pod {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Trainer", Name: p.Name, UID: types.UID(p.Name), Controller: &yes}}
		return p
	}
	for _, c := range []struct {
		name   string
		change func(a, b *v1.Pod)
		want   string
	}{
		{"both are made anew", func(a, b *v1.Pod) { owned(a); owned(b) }, "a n0000>n0001"},
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
			a, x, b, y := controlplane.Pod("a", 4, nil), controlplane.Pod("a-ends", 4, nil), controlplane.Pod("b", 4, nil), controlplane.Pod("b-ends", 4, nil)
			c.change(a, b)
			d, now := still(t, 2, a, x, b, y)
			for _, g := range d.gangs {
				for _, p := range g.pods {
					p.node, p.binding = g.slots[0].node, false
				}
				d.touch(g)
			}
			steps(t, d)
			*now = now.Add(time.Minute)
			d.podGone(x)
			d.podGone(y)
			big := controlplane.Pod("big", 8, nil)
			big.UID, big.CreationTimestamp = "big", metav1.NewTime(*now)
			d.podChanged(big)
			steps(t, d)
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
				if g.spec != nil && !g.spec.NoRequeue {
					t.Errorf("%s comes back in the engine that decides", g.name)
				}
			}
			if d.eng.Snapshot().Hash != before {
				t.Error("something was decided")
			}
		})
	}
}
