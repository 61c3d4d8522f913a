package kube

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/show"
)

// mover lets a scheduler of a test move gangs when a person asks for it.
func mover(await time.Duration) func(*Options) {
	return func(o *Options) { o.Rules.Defrag, o.Await = &engine.Defrag{}, await }
}

// service is what pods run that are made again whenever they end.
func service(gpus int) v1.PodSpec {
	spec := controlplane.Spec(gpus)
	spec.RestartPolicy, spec.TerminationGracePeriodSeconds = v1.RestartPolicyAlways, ptr.To(int64(1))
	return spec
}

// deploy makes a Deployment of one pod with so many GPUs.
func (b *bench) deploy(name string, gpus int) {
	b.Helper()
	one, app := int32(1), map[string]string{"app": name}
	_, err := b.c.AppsV1().Deployments("default").Create(b.ctx,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: service(gpus)}}},
		metav1.CreateOptions{})
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
	b.wait("the second is on the other node", func() bool {
		on := b.whereabouts("b-")
		return len(on) == 1 && on[0] != at
	})
	b.gone(b.pod("fill"))
}

// askMoves has moves made for a waiting pod, by its name, until it hears what is wanted: the
// scheduler may not have seen yet what the API server says already.
func (b *bench) askMoves(d *Driver, name, what string, want func(m *show.Moves) bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 4*time.Minute)
	defer cancel()
	jobs, err := d.View().Jobs(ctx, ask.Filter{Name: "default/" + name})
	if err != nil || len(jobs) == 0 {
		b.Fatalf("%v %v", jobs, err)
	}
	b.untilMoves(d, &ask.MovesRequest{Job: jobs[0].ID}, what, want)
}

// untilMoves asks for moves until the answer is what is wanted, and returns that.
func (b *bench) untilMoves(d *Driver, req *ask.MovesRequest, what string,
	want func(m *show.Moves) bool) (m show.Moves) {
	b.Helper()
	b.wait(what, func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		list, err := d.View().MakeMoves(ctx, req)
		if err != nil || len(list) != 1 {
			return false
		}
		m = list[0]
		return want(&m)
	})
	return m
}

// one is moves that were made, of one job.
func one(m *show.Moves) bool { return m.Made && len(m.Moves) == 1 }

// A replica of one Deployment is moved to the node of another, so that a pod fits that
// asks for a whole node.
func testMove(b *bench) {
	d, stop := b.schedule(mover(time.Minute))
	defer stop()
	b.fragment(func() { b.deploy("a", 4) }, func() { b.deploy("b", 4) })
	b.create(controlplane.Pod("big", 8, nil))
	b.wait("big waits", func() bool { return condition(b.pod("big")).Status == v1.ConditionFalse })
	b.askMoves(d, "big", "one is moved", one)
	b.wait("big has a node of its own", func() bool { return len(b.whereabouts("big")) == 1 })
	b.wait("the two replicas share the other", func() bool {
		x, y := b.whereabouts("a-"), b.whereabouts("b-")
		return len(x) == 1 && slices.Equal(x, y) && x[0] != b.whereabouts("big")[0]
	})
	b.wait("none is on the way", func() (none bool) {
		b.look(d, func() { none = !d.relocations.Any() })
		return none
	})
	b.look(d, func() {
		for _, g := range d.gangs {
			if g.Phase == gang.Running &&
				(!g.Spec.NoRequeue || !d.eng.Spec(g.Job).NoRequeue || d.eng.Spec(g.Job).Name != g.Name) {
				b.Errorf("%s would come back: %+v", g.Name, d.eng.Spec(g.Job))
			}
		}
	})
}

// trainer is an owner whose controller does not run here: pods are made by hand.
func (b *bench) trainer(name string) []metav1.OwnerReference {
	b.Helper()
	o, err := b.c.CoreV1().ConfigMaps("default").Create(b.ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = b.c.CoreV1().ConfigMaps("default").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	yes := true
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: o.UID, Controller: &yes}}
}

// work is a pod that may be moved.
func work(name string, gpus int, of []metav1.OwnerReference) *v1.Pod {
	p := controlplane.Pod(name, gpus, map[string]string{"!" + AnnotationMovable: "true"})
	p.OwnerReferences = of
	return p
}

// moved makes a cluster in which a pod of an owner, a-1, is to be moved beside b-1, which is
// no owner's, so that big fits; it returns when the pod is gone. nil: the scheduler is another
// process, and does it by itself.
func (b *bench) moved(d *Driver) []metav1.OwnerReference {
	b.Helper()
	of := b.trainer("trainer")
	b.fragment(func() { b.create(work("a-1", 4, of)) }, func() { b.create(controlplane.Pod("b-1", 4, nil)) })
	b.create(controlplane.Pod("big", 8, nil))
	if d != nil {
		b.wait("big waits", func() bool { return condition(b.pod("big")).Status == v1.ConditionFalse })
		b.askMoves(d, "big", "a-1 is moved", func(m *show.Moves) bool {
			return one(m) && m.Moves[0].Name == "default/a-1"
		})
	}
	b.wait("a-1 has gone", func() bool {
		return !slices.ContainsFunc(b.pods(), func(p v1.Pod) bool { return p.Name == "a-1" })
	})
	return of
}

// said reports whether an event of this reason about this object says so.
func (b *bench) said(reason, about, text string) bool {
	list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
	return err == nil && slices.ContainsFunc(list.Items, func(e v1.Event) bool {
		return e.Reason == reason && e.InvolvedObject.Name == about && strings.Contains(e.Message, text)
	})
}

// The place of a pod that is moved is kept for the one that its owner makes: another that
// waits does not get it.
func testMoveKeeps(b *bench) {
	d, stop := b.schedule(mover(time.Minute))
	defer stop()
	of := b.moved(d)
	b.wait("big runs", func() bool { return len(b.whereabouts("big")) == 1 })
	b.create(controlplane.Pod("between", 4, nil))
	b.wait("the other waits", func() bool { return condition(b.pod("between")).Status == v1.ConditionFalse })
	jobs, err := d.View().Jobs(b.ctx, ask.Filter{Name: "default/a-1-move"})
	if err != nil || len(jobs) != 1 || jobs[0].State != show.StateStarting ||
		!strings.Contains(jobs[0].Reason, "moved to "+b.whereabouts("b-1")[0]) {
		b.Errorf("it is not seen that a place is kept: %+v %v", jobs, err)
	}
	b.create(work("a-2", 4, of))
	b.wait("a-2 is beside b-1", func() bool { return slices.Equal(b.whereabouts("a-2"), b.whereabouts("b-1")) })
	if on := b.whereabouts("between"); len(on) > 0 {
		b.Errorf("the other is on %v", on)
	}
	b.wait("an event says so", func() bool {
		return b.said("Moved", "a-2", "default/a-1") && b.said("Moved", "a-1", "so that default/big fits")
	})
}

// Where the owner makes no other pod in time, the place is let go, and that is said.
func testMoveLate(b *bench) {
	d, stop := b.schedule(mover(3 * time.Second))
	defer stop()
	of := b.moved(d)
	b.create(controlplane.Pod("next", 4, nil))
	b.wait("another gets the place", func() bool { return slices.Equal(b.whereabouts("next"), b.whereabouts("b-1")) })
	b.wait("the owner is told", func() bool {
		return b.said("PlaceLetGo", "trainer", "its owner made no others within 3s")
	})
	b.create(work("a-2", 4, of))
	b.wait("one that comes too late waits like any other", func() bool {
		return condition(b.pod("a-2")).Status == v1.ConditionFalse
	})
	b.gone(b.pod("next"))
	b.wait("... and has its turn", func() bool { return len(b.whereabouts("a-2")) == 1 })
	b.look(d, func() {
		if d.relocations.Any() {
			b.Errorf("%v are on their way", d.relocations)
		}
	})
}

// A pod that asks for something else than the pod that was moved does not get its place, which
// is free for all at once.
func testMoveDiffers(b *bench) {
	d, stop := b.schedule(mover(time.Hour))
	defer stop()
	of := b.moved(d)
	b.create(controlplane.Pod("next", 3, nil))
	b.wait("big runs, the other waits", func() bool {
		return len(b.whereabouts("big")) == 1 && condition(b.pod("next")).Status == v1.ConditionFalse
	})
	b.create(work("a-2", 1, of))
	b.wait("both run", func() bool { return len(b.whereabouts("next")) == 1 && len(b.whereabouts("a-2")) == 1 })
	b.wait("the owner is told", func() bool { return b.said("PlaceLetGo", "trainer", "asks for something else") })
}

// A disruption budget that lets none go keeps a pod where it is; another is moved, if
// there is one.
func testMoveBudget(b *bench) {
	d, stop := b.schedule(mover(time.Minute))
	defer stop()
	b.fragment(func() { b.deploy("a", 4) }, func() { b.deploy("b", 4) })
	on := b.whereabouts("a-")
	none := intstr.FromInt32(0)
	budget := func(app string) {
		_, err := b.c.PolicyV1().PodDisruptionBudgets("default").Create(b.ctx,
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app},
				Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none,
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
			metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = b.c.PolicyV1().PodDisruptionBudgets("default").Delete(context.Background(), app, metav1.DeleteOptions{})
		})
		b.wait("it is counted", func() bool {
			o, err := b.c.PolicyV1().PodDisruptionBudgets("default").Get(b.ctx, app, metav1.GetOptions{})
			return err == nil && o.Status.ObservedGeneration == o.Generation
		})
	}
	budget("a")
	budget("b")
	b.create(controlplane.Pod("big", 8, nil))
	b.wait("big waits", func() bool { return condition(b.pod("big")).Status == v1.ConditionFalse })
	b.askMoves(d, "big", "the budgets let none go", func(m *show.Moves) bool {
		return !m.Made && strings.Contains(m.Text, "disruption budget a lets 0") &&
			strings.Contains(m.Text, "disruption budget b lets 0")
	})
	if err := b.c.PolicyV1().PodDisruptionBudgets("default").Delete(b.ctx, "b", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.askMoves(d, "big", "a gang is moved", func(m *show.Moves) bool { return m.Made })
	b.wait("b is beside a, which has not moved", func() bool {
		return slices.Equal(b.whereabouts("b-"), on) && slices.Equal(b.whereabouts("a-"), on)
	})
	b.wait("big runs", func() bool { return len(b.whereabouts("big")) == 1 })
}

// A Job that does not count disruptions is moved as the gang that it is, and one of a
// StatefulSet under its name; without being asked.
func testMoveOwners(b *bench) {
	_, stop := b.schedule(mover(time.Minute), func(o *Options) {
		o.Rules.Defrag = &engine.Defrag{Auto: true, Every: time.Second}
	})
	defer stop()
	job := func(name string, policy *batchv1.PodFailurePolicy) {
		two := int32(2)
		spec := controlplane.Spec(2)
		spec.RestartPolicy = v1.RestartPolicyNever
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Annotations: map[string]string{LabelGang: "true"}},
			Spec: batchv1.JobSpec{Parallelism: &two, Completions: &two, PodFailurePolicy: policy,
				Template: v1.PodTemplateSpec{Spec: spec}}}
		if _, err := b.c.BatchV1().Jobs("default").Create(b.ctx, j, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	ignore := &batchv1.PodFailurePolicy{
		Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
				{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}}}}
	b.nodes(8, "n1", "n2")
	b.create(controlplane.Pod("fill", 4, nil))
	b.wait("the filler is bound", func() bool { return len(b.whereabouts("fill")) == 1 })
	at := b.whereabouts("fill")[0]
	job("a", ignore)
	b.wait("the Job is beside it", func() bool { return slices.Equal(b.whereabouts("a-"), []string{at, at}) })
	job("b", nil)
	b.wait("the other Job is on the other node", func() bool {
		on := b.whereabouts("b-")
		return len(on) == 2 && on[0] != at
	})
	other := b.whereabouts("b-")
	b.gone(b.pod("fill"))
	b.create(controlplane.Pod("big", 8, nil))
	b.wait("big has the node on which the Job was that may be moved", func() bool {
		return slices.Equal(b.whereabouts("big"), []string{at})
	})
	b.wait("the Job is on the other", func() bool { return slices.Equal(b.whereabouts("a-"), other) })
	if j, err := b.c.BatchV1().Jobs("default").Get(b.ctx, "a", metav1.GetOptions{}); err != nil ||
		j.Status.Failed != 0 {
		b.Errorf("it counts that: %+v %v", j.Status, err)
	}
	if !slices.Equal(b.whereabouts("b-"), other) {
		b.Errorf("the other Job, which would count it, was moved")
	}
}

// A pod of a StatefulSet comes back under its own name, when the one before has gone.
func testMoveSet(b *bench) {
	d, stop := b.schedule(mover(time.Minute))
	defer stop()
	b.fragment(func() {
		one, app := int32(1), map[string]string{"app": "a"}
		_, err := b.c.AppsV1().StatefulSets("default").Create(b.ctx,
			&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: appsv1.StatefulSetSpec{
				Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: service(4)}}},
			metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = b.c.AppsV1().StatefulSets("default").Delete(context.Background(), "a", metav1.DeleteOptions{})
		})
	}, func() { b.create(controlplane.Pod("b-1", 4, nil)) })
	b.create(controlplane.Pod("big", 8, nil))
	b.wait("big waits", func() bool { return condition(b.pod("big")).Status == v1.ConditionFalse })
	uid := b.pod("a-0").UID
	b.askMoves(d, "big", "a gang is moved", func(m *show.Moves) bool { return m.Made })
	b.wait("another a-0 is beside b-1", func() bool {
		return slices.Equal(b.whereabouts("a-0"), b.whereabouts("b-1")) && b.pod("a-0").UID != uid
	})
	b.wait("big runs", func() bool { return len(b.whereabouts("big")) == 1 })
	if err := b.c.AppsV1().StatefulSets("default").Delete(b.ctx, "a", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// Where none waits, a node is emptied: what is there goes to one in use.
func testMoveCompact(b *bench) {
	d, stop := b.schedule(mover(time.Minute))
	defer stop()
	b.fragment(func() { b.deploy("a", 4) }, func() { b.deploy("b", 4) })
	b.wait("the filler has left", func() bool { return len(b.pods()) == 2 })
	m := b.untilMoves(d, &ask.MovesRequest{Compact: engine.EmptyNodes.String()}, "a node is emptied",
		func(m *show.Moves) bool { return m.Made && m.Empties != "" })
	b.wait("one node is empty", func() bool {
		x, y := b.whereabouts("a-"), b.whereabouts("b-")
		return len(x) == 1 && slices.Equal(x, y) && x[0] != m.Empties
	})
}

// A scheduler that dies when the pods of a gang that is moved have gone, and others are not
// there yet, is followed by one that knows nothing of it: the places are free, a gang that waited
// for them starts, and the pods that come are like any others.
func testMoveKilled(b *bench) {
	b.moves = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.child("kube-moving:1")
	}()
	of := b.moved(nil)
	<-done
	d, stop := b.schedule(mover(time.Minute))
	defer stop()
	b.wait("big runs", func() bool { return len(b.whereabouts("big")) == 1 })
	b.create(controlplane.Pod("next", 4, nil))
	b.wait("nothing is kept", func() bool { return slices.Equal(b.whereabouts("next"), b.whereabouts("b-1")) })
	b.create(work("a-2", 4, of))
	b.wait("a-2 waits", func() bool { return condition(b.pod("a-2")).Status == v1.ConditionFalse })
	b.gone(b.pod("next"))
	b.wait("a-2 runs", func() bool { return slices.Equal(b.whereabouts("a-2"), b.whereabouts("b-1")) })
	b.look(d, func() {
		if d.relocations.Any() {
			b.Errorf("%v are on their way", d.relocations)
		}
	})
}

// Random gangs that may be moved, all the time, on nodes that come and go, under schedulers
// that die: all run to their end, and no place is given twice.
func testMoveDeaths(b *bench) {
	b.moves = true
	testDeaths(b)
	list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	told := map[string]int{}
	for _, e := range list.Items {
		switch {
		case e.Reason == "PlaceLetGo":
			told["let go"]++
		case e.Reason == "Moved" && strings.HasPrefix(e.Message, "takes"):
			told["arrived"]++
		case e.Reason == "Moved":
			told["left"]++
		}
	}
	b.Logf("%v", told)
}

// TestMoves plays gangs that are moved on one real API server.
func TestMoves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		name string
		f    func(*bench)
	}{{"deployment", testMove}, {"keeps", testMoveKeeps}, {"late", testMoveLate}, {"differs", testMoveDiffers},
		{"budget", testMoveBudget}, {"owners", testMoveOwners},
		{"set", testMoveSet}, {"compact", testMoveCompact}, {"killed", testMoveKilled}, {"deaths", testMoveDeaths}} {
		b.sub(c.name, c.f)
	}
}
