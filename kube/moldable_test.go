package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/plans"
)

// least is a gang that starts with fewer pods than it has.
func least(name string, size, min, gpus int, more map[string]string) []*v1.Pod {
	pods := controlplane.Gang(name, size, gpus, more)
	for _, p := range pods {
		p.Annotations[AnnotationMin] = fmt.Sprint(min)
	}
	return pods
}

// binding lists the pods of a driver without an API server that are being bound, in order.
func (d *Driver) nowBinding() (names []string) {
	for _, p := range d.pods {
		if p.Binding {
			names = append(names, p.Obj.Name)
		}
	}
	slices.Sort(names)
	return names
}

// answer says of all bindings that are on their way that they succeeded.
func (d *Driver) answer(t *testing.T, now *time.Time) {
	t.Helper()
	for _, p := range d.pods {
		if p.Binding {
			d.bound(p.Gang, p, p.Gang.Run, p.Assumed, nil)
		}
	}
	*now = now.Add(time.Second)
	steps(t, d)
}

func (d *Driver) expectBinding(t *testing.T, want ...string) {
	t.Helper()
	if got := d.nowBinding(); !slices.Equal(got, want) {
		t.Errorf("being bound: %v, not %v", got, want)
	}
}

// A gang with a minimum starts with as many pods as there is room for, in one
// decision: what comes at the same time does not get between. The minimum is bound
// first; the others are gangs of one then, which may be preempted by themselves.
// A pod that comes to a running gang joins it when there is room, and none leaves for it.
func TestMoldable(t *testing.T) {
	d, now := still(t, 2, controlplane.Pod("filler", 4, nil))
	d.answer(t, now)
	d.come(t, now, append(least("g", 7, 2, 2, nil), controlplane.Pod("other", 2, nil))...)
	d.expectBinding(t, "g-0", "g-1")
	g := d.pods["g-0"].Gang
	if r := d.eng.Record(g.Job); r.State != engine.Starting || r.Tasks != 6 || len(g.Places) != 6 {
		t.Fatalf("the engine started it with %d tasks, for %d places; there is room for 6", r.Tasks, len(g.Places))
	}
	d.answer(t, now)
	d.expectBinding(t, "g-2", "g-3", "g-4", "g-5")
	if g.Phase != gang.Running || len(g.Places) != 2 || d.eng.Record(g.Job).Tasks != 2 || d.singletons[g.Key] != 5 {
		t.Fatalf("the gang is in phase %d with %d places, and %d belong to it", g.Phase, len(g.Places), d.singletons[g.Key])
	}
	d.answer(t, now)
	if p := plans.Of(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationPlan: g.Plan}}}); p == nil ||
		p.Tasks[0].Count != 2 || p.Alone {
		t.Errorf("the plan of the gang is %s", g.Plan)
	}
	one := d.pods["g-3"].Gang
	if one.Of != g.Key || one.Phase != gang.Running || !strings.Contains(one.Plan, `"joined_late":true`) {
		t.Errorf("g-3 is in the gang %s, phase %d, with the plan %s", one.Key, one.Phase, one.Plan)
	}
	if d.pods["other"].At() != "" {
		t.Error("one that came after it got between")
	}
	if w := d.pods["g-6"].Gang; w.Of != g.Key || w.Phase != gang.Waiting {
		t.Errorf("g-6 does not wait by itself: phase %d of %s", w.Phase, w.Key)
	}
	series := d.see().Series
	if held := series[len(series)-1].Allocated / cluster.Whole; held != 4+12 {
		t.Errorf("the books say that %d GPUs are held; it is 16", held)
	}
	d.come(t, now, controlplane.Pod("urgent", 4, map[string]string{LabelTier: "critical"}))
	var leave []string
	for _, p := range d.pods {
		if p.Leaving {
			leave = append(leave, p.Obj.Name)
		}
	}
	if len(leave) == 0 || slices.Contains(leave, "g-0") || slices.Contains(leave, "g-1") {
		t.Errorf("%v leave for an urgent pod", leave)
	}
}

// Below its minimum it does not start, and others leave for its minimum only.
func TestMoldablePreempts(t *testing.T) {
	var low []*v1.Pod
	for i := range 8 {
		low = append(low, controlplane.Pod(fmt.Sprintf("low-%d", i), 1, map[string]string{LabelTier: "best-effort"}))
	}
	d, now := still(t, 1, low...)
	d.answer(t, now)
	d.come(t, now, least("same", 4, 2, 2, map[string]string{LabelTier: "best-effort"})...)
	d.expectBinding(t)
	pods := least("g", 5, 2, 2, nil)
	d.come(t, now, pods[:4]...)
	leaving := func() (n int) {
		for _, p := range d.pods {
			if p.Leaving {
				n++
			}
		}
		return n
	}
	if n := leaving(); n != 4 {
		t.Fatalf("%d pods of one GPU leave for a minimum of two pods of two", n)
	}
	d.come(t, now, pods[4]) // it does not take back what the others leave for
	for _, p := range d.pods {
		if p.Leaving {
			d.podGone(p.Obj)
		}
	}
	*now = now.Add(time.Second)
	steps(t, d)
	d.expectBinding(t, "g-0", "g-1")
	d.answer(t, now)
	if n := leaving(); n != 0 {
		t.Errorf("%d pods leave for those beyond the minimum", n)
	}
}

// What is beyond the minimum may go while the minimum is being bound: the gang
// starts all the same. If the minimum cannot be bound, nothing of it is.
func TestMoldableFails(t *testing.T) {
	d, now := still(t, 1)
	pods := least("g", 4, 2, 2, nil)
	d.come(t, now, pods...)
	d.expectBinding(t, "g-0", "g-1")
	g := d.pods["g-0"].Gang
	d.podGone(pods[3])
	d.answer(t, now)
	d.expectBinding(t, "g-2")
	if r := d.eng.Record(g.Job); g.Phase != gang.Running || r.Tasks != 2 {
		t.Fatalf("the gang is in phase %d with %d tasks", g.Phase, r.Tasks)
	}
	d.come(t, now, controlplane.Pod("next", 2, nil))
	if d.pods["next"].At() == "" {
		t.Error("the place of a pod that went is not free")
	}

	d, now = still(t, 1)
	d.come(t, now, least("g", 4, 2, 2, nil)...)
	g = d.pods["g-0"].Gang
	p := d.pods["g-1"]
	d.bound(g, p, g.Run, "n0000", errors.New("no"))
	*now = now.Add(100 * time.Millisecond)
	d.answer(t, now)
	if g.Phase != gang.Unwinding || !d.pods["g-0"].Leaving || d.pods["g-2"].At() != "" {
		t.Errorf("the gang is in phase %d, g-2 is at %q", g.Phase, d.pods["g-2"].At())
	}
	d.podGone(d.pods["g-0"].Obj)
	*now = now.Add(time.Minute)
	steps(t, d)
	if g.Phase != gang.Gathering || d.eng.Record(g.Job) != nil && d.eng.Record(g.Job).State != engine.Done {
		t.Errorf("the gang is in phase %d", g.Phase)
	}
	d.come(t, now, controlplane.Pod("next", 8, nil))
	if d.pods["next"].At() == "" {
		t.Error("what a gang was to have is not free when it did not start")
	}
}

// A gang that starts with its minimum and no more is not one that grows when there is room:
// its other pods follow one by one, whatever the policy.
func TestMoldableLeast(t *testing.T) {
	for _, policy := range []string{"fifo", "optimus", "afs", "lyra", "pollux", "sia", "elasticflow", "hypersched"} {
		d, now := still(t, 1, controlplane.Pod("half", 4, nil))
		d.opt.Rules.Policy, d.stale = policy, "another policy"
		steps(t, d)
		d.answer(t, now)
		d.come(t, now, least("g", 4, 2, 2, nil)...)
		d.answer(t, now)
		g := d.pods["g-0"].Gang
		if r := d.eng.Record(g.Job); g.Phase != gang.Running || r.Tasks != 2 || r.Spec.Elastic != (cluster.Elastic{}) {
			t.Fatalf("%s: the gang is in phase %d with %d tasks, elastic: %v", policy, g.Phase, r.Tasks, r.Spec.Elastic)
		}
		for _, p := range d.pods {
			if p.Obj.Name == "half" {
				d.podGone(p.Obj)
			}
		}
		*now = now.Add(time.Hour)
		steps(t, d)
		d.answer(t, now)
		for _, name := range []string{"g-2", "g-3"} {
			if d.pods[types.UID(name)].Node == "" {
				t.Errorf("%s: %s does not follow", policy, name)
			}
		}
	}
}

// A pod that a gang does not need does not keep it from starting: here two have one
// claim that is for one pod.
func TestMoldableNarrow(t *testing.T) {
	d, now := still(t, 1)
	d.boundClaims(v1.ReadWriteOncePod, "ours")
	pods := least("g", 3, 1, 1, nil)
	for _, p := range pods {
		using(p, "ours")
	}
	d.come(t, now, pods...)
	d.expectBinding(t, "g-0")
	d.answer(t, now)
	if g := d.pods["g-0"].Gang; g.Phase != gang.Running {
		t.Errorf("the gang is in phase %d: %s", g.Phase, g.Refused)
	}
	if why := d.pods["g-1"].Gang.Refused; !strings.Contains(why, "is in use by pod g-0") {
		t.Errorf("g-1 says %q", why)
	}
}

// A Job that may start with two of its six pods starts with the four for which there
// is room. A scheduler that dies when the first beyond the minimum is bound is
// followed by one that takes them for what they are; the others join when there is
// room.
func testMoldable(b *bench) {
	b.nodes(4, "n1")
	spec := controlplane.Spec(1)
	spec.RestartPolicy = v1.RestartPolicyNever
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m",
		Annotations: map[string]string{LabelGang: "true", AnnotationMin: "2"}},
		Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](6), Completions: ptr.To[int32](6),
			Template: v1.PodTemplateSpec{Spec: spec}}}
	if _, err := b.c.BatchV1().Jobs("default").Create(b.ctx, j, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("its pods are there", func() bool { return len(b.pods()) == 6 })
	bound := func() (n int, plans map[string]int) {
		plans = map[string]int{}
		for _, p := range b.pods() {
			if live(&p) {
				n++
				plans[p.Annotations[AnnotationPlan]]++
			}
		}
		return n, plans
	}
	b.child("kube-bound:3")
	before, _ := bound()
	if before < 3 || before > 4 {
		b.Fatalf("%d pods are bound by a scheduler that died after the third", before)
	}
	d, stop := b.schedule()
	defer stop()
	b.wait("four of its pods run", func() bool { n, _ := bound(); return n == 4 })
	if _, plans := bound(); len(plans) != 2 {
		b.Errorf("its pods carry these plans: %v", plans)
	}
	b.wait("the gang is the two that it needs", func() (so bool) {
		b.look(d, func() {
			for _, g := range d.gangs {
				so = so || strings.HasPrefix(g.Key, "job/") && g.Phase == gang.Running && len(g.Places) == 2 &&
					d.singletons[g.Key] == 4
			}
		})
		return so
	})
	b.nodes(4, "n2")
	b.wait("all of its pods run", func() bool { n, _ := bound(); return n == 6 })
}
