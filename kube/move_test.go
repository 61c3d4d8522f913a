package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
)

// mover lets a scheduler of a test move gangs when somebody asks for it.
func mover(await time.Duration) func(*Options) {
	return func(o *Options) { o.Rules.Defrag, o.Await = &engine.Defrag{}, await }
}

// deploy makes a Deployment of one pod with so many GPUs.
func (b *bench) deploy(name string, gpus int) {
	b.Helper()
	one, app := int32(1), map[string]string{"app": name}
	spec := controlplane.Spec(gpus)
	spec.RestartPolicy = v1.RestartPolicyAlways
	grace := int64(1)
	spec.TerminationGracePeriodSeconds = &grace
	_, err := b.c.AppsV1().Deployments("default").Create(b.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: spec}}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
}

// whereabouts is the nodes of the live pods of a name's prefix that are not told to leave.
func (b *bench) whereabouts(prefix string) (on []string) {
	b.Helper()
	for _, p := range b.pods() {
		if strings.HasPrefix(p.Name, prefix) && live(&p) && p.DeletionTimestamp == nil {
			on = append(on, p.Spec.NodeName)
		}
	}
	slices.Sort(on)
	return on
}

// fragment leaves half of two nodes of eight free; gangs are made by the function, once each half is.
func (b *bench) fragment(first, second func()) {
	b.Helper()
	b.nodes(8, "n1", "n2")
	fill := controlplane.Pod("fill", 4, nil)
	b.create(fill)
	b.wait("the filler is bound", func() bool { return len(b.whereabouts("fill")) == 1 })
	at := b.whereabouts("fill")[0]
	first()
	b.wait("the first is beside it", func() bool { return slices.Equal(b.whereabouts("a-"), []string{at}) })
	second()
	b.wait("the second is on the other node", func() bool { on := b.whereabouts("b-"); return len(on) == 1 && on[0] != at })
	b.gone(b.pod("fill"))
}

// ask has moves made for a waiting pod, by its name.
func (b *bench) askMoves(d *Driver, name string) []api.Moves {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	jobs, err := d.View().Jobs(ctx, api.Filter{Name: "default/" + name})
	if err != nil || len(jobs) == 0 {
		b.Fatalf("%v %v", jobs, err)
	}
	list, err := d.View().MakeMoves(ctx, &api.MovesRequest{Job: jobs[0].ID})
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// A replica of one Deployment is moved to the node of another, so that a pod fits that
// asks for a whole node.
func testMove(b *bench) {
	d, stop := b.schedule(mover(time.Minute))
	defer stop()
	b.fragment(func() { b.deploy("a", 4) }, func() { b.deploy("b", 4) })
	b.create(controlplane.Pod("big", 8, nil))
	b.wait("big waits", func() bool { return condition(b.pod("big")).Status == v1.ConditionFalse })
	list := b.askMoves(d, "big")
	if len(list) != 1 || !list[0].Made || len(list[0].Moves) != 1 {
		b.Fatalf("%+v", list)
	}
	b.wait("big has a node of its own", func() bool { return len(b.whereabouts("big")) == 1 })
	b.wait("the two replicas share the other", func() bool {
		x, y := b.whereabouts("a-"), b.whereabouts("b-")
		return len(x) == 1 && slices.Equal(x, y) && x[0] != b.whereabouts("big")[0]
	})
	b.wait("nobody is on the way", func() (none bool) {
		b.look(d, func() { none = len(d.passages) == 0 })
		return none
	})
	b.look(d, func() {
		for _, g := range d.gangs {
			if g.phase == running && (!g.spec.NoRequeue || !d.eng.Spec(g.id).NoRequeue || d.eng.Spec(g.id).Name != g.name) {
				b.Errorf("%s would come back: %+v", g.name, d.eng.Spec(g.id))
			}
		}
	})
}

func TestMoves(t *testing.T) {
	t.Parallel()
	b := newBench(t, controlplane.Options{Controllers: true})
	for _, c := range []struct {
		name string
		f    func(*bench)
	}{{"move", testMove}} {
		b.sub(c.name, c.f)
	}
}

var _ = fmt.Sprint
