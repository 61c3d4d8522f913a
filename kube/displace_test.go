package kube

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
)

func low() map[string]string { return map[string]string{LabelTier: "best-effort"} }

// A pod that has a claim that is for one pod leaves for a pod of a higher tier that starts
// then, and that one is bound when it is gone, not before; no other gets the claim
// meanwhile.
func TestDisplace(t *testing.T) {
	d, now := still(t, 2)
	d.boundClaims(v1.ReadWriteOncePod, "mine")
	d.come(t, now, using(controlplane.Pod("low", 0, low()), "mine"))
	d.answer(t, now)
	d.come(t, now, using(controlplane.Pod("high", 2, nil), "mine"))
	g := d.pods["high"].Gang
	if !d.pods["low"].Leaving || g.Phase != gang.Starting || len(g.Places) != 1 {
		t.Fatalf("low leaves: %v; high is in phase %d: %s", d.pods["low"].Leaving, g.Phase, g.Refused)
	}
	d.expectBinding(t)
	d.come(t, now, using(controlplane.Pod("next", 1, low()), "mine"))
	if why := d.pods["next"].Gang.Refused; !strings.Contains(why,
		"volume claim mine (ReadWriteOncePod) is in use by pod") {
		t.Errorf("the next says %q", why)
	}
	d.podGone(d.pods["low"].Obj)
	steps(t, d)
	d.expectBinding(t, "high")
	d.answer(t, now)
	if why := d.pods["next"].Gang.Refused; why != "volume claim mine (ReadWriteOncePod) is in use by pod high" ||
		g.Phase != gang.Running {
		t.Errorf("high is in phase %d, and the next says %q", g.Phase, why)
	}
}

// On a full node the pod gets what that one leaves, and no other has to.
func TestDisplaceFull(t *testing.T) {
	d, now := still(t, 1)
	d.boundClaims(v1.ReadWriteOncePod, "mine")
	d.come(t, now, using(controlplane.Pod("low", 4, low()), "mine"))
	d.come(t, now, controlplane.Pod("other", 4, low()))
	d.answer(t, now)
	d.come(t, now, using(controlplane.Pod("high", 4, nil), "mine"))
	if !d.pods["low"].Leaving || d.pods["other"].Leaving {
		t.Errorf("low leaves: %v, and the one without a claim: %v", d.pods["low"].Leaving, d.pods["other"].Leaving)
	}
	if r := d.eng.Record(d.pods["high"].Gang.Job); r == nil || r.State != engine.Placed {
		t.Errorf("high is not placed: %+v", r)
	}
	d.podGone(d.pods["low"].Obj)
	*now = now.Add(time.Minute)
	steps(t, d)
	d.expectBinding(t, "high")
}

// None leaves for an equal, for a pod that does not preempt, for one that does not start
// then, for a gang of which two need it, or before the minimum run time is over.
func TestDisplaceNot(t *testing.T) {
	never := controlplane.Pod("never", 1, nil)
	never.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever)
	pair := controlplane.Gang("pair", 2, 1, nil)
	for name, pods := range map[string][]*v1.Pod{"equal": {controlplane.Pod("equal", 1, low())}, "never": {never},
		"large": {controlplane.Pod("large", 8, nil)}, "pair": pair,
		"early": {controlplane.Pod("early", 1, nil)}} {
		d, now := still(t, 1, controlplane.Pod("stays", 1, nil))
		d.answer(t, now)
		d.boundClaims(v1.ReadWriteOncePod, "mine")
		d.come(t, now, using(controlplane.Pod("low", 1, low()), "mine"))
		d.answer(t, now)
		if name == "early" {
			d.opt.Rules.MinRuntime = time.Hour
		}
		for _, p := range pods {
			using(p, "mine")
		}
		d.come(t, now, pods...)
		if g := d.pods[pods[0].UID].Gang; d.pods["low"].Leaving || g.Phase != gang.Gathering ||
			!strings.Contains(g.Refused, "volume claim mine (ReadWriteOncePod)") {
			t.Errorf("%s: low leaves: %v; phase %d: %q", name, d.pods["low"].Leaving, g.Phase, g.Refused)
		}
		if len(d.blocked) == 0 && name != "pair" {
			t.Errorf("%s is not looked at again", name)
		}
	}
}

// A gang that is held gives its places back if one of its pods goes.
func TestDisplaceGone(t *testing.T) {
	d, now := still(t, 1)
	d.boundClaims(v1.ReadWriteOncePod, "mine")
	d.come(t, now, using(controlplane.Pod("low", 0, low()), "mine"))
	d.answer(t, now)
	high := controlplane.Gang("high", 2, 2, nil)
	using(high[0], "mine")
	d.come(t, now, high...)
	if g := d.pods["high-0"].Gang; g.Phase != gang.Starting || !d.heldBack[g] {
		t.Fatalf("high is in phase %d: %s", g.Phase, g.Refused)
	}
	d.podGone(high[1])
	*now = now.Add(time.Minute)
	steps(t, d)
	d.expectBinding(t)
	if len(d.heldBack) != 0 {
		t.Error("it is still held")
	}
	d.podGone(d.pods["low"].Obj)
	d.come(t, now, controlplane.Pod("next", 8, nil))
	d.expectBinding(t, "next")
}

// testDisplace: the real kube-scheduler makes a pod of a lower priority leave that has
// the claim of another, and so does Muster; neither does it for an equal. Muster's is
// bound when that one is gone.
func testDisplace(b *bench) {
	b.nodes(4, "n1")
	b.volume("v-alone", "manual", "", "", v1.ReadWriteOncePod)
	b.claimVolume("alone", "manual", "v-alone", v1.ReadWriteOncePod)
	b.Cleanup(func() {
		_ = b.c.CoreV1().PersistentVolumeClaims("default").Delete(b.ctx, "alone", metav1.DeleteOptions{})
		_ = b.c.CoreV1().PersistentVolumes().Delete(b.ctx, "v-alone", metav1.DeleteOptions{})
	})
	for name, value := range map[string]int32{"test-low": -10, "test-high": 10} {
		b.priorityClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	_, stop := b.schedule()
	defer stop()
	for _, scheduler := range []string{"default-scheduler", "muster"} {
		pod := func(name, class string) *v1.Pod {
			p := using(controlplane.Pod(name, 1, nil), "alone")
			p.Spec.SchedulerName, p.Spec.PriorityClassName = scheduler, class
			return p
		}
		first := pod("first", "test-low")
		b.create(first)
		b.wait("the first has the claim under "+scheduler, func() bool { return live(b.pod("first")) })
		equal := pod("equal", "test-low")
		b.create(equal)
		b.wait("its equal waits under "+scheduler, func() bool {
			return condition(b.pod("equal")).Status == v1.ConditionFalse
		})
		if p := b.pod("first"); !live(p) || p.DeletionTimestamp != nil {
			b.Errorf("the first left for an equal under %s", scheduler)
		}
		b.gone(equal)
		b.create(pod("second", "test-high"))
		b.wait("the second has the claim under "+scheduler, func() bool { return live(b.pod("second")) })
		for _, p := range b.pods() {
			if p.Name == "first" && live(&p) {
				b.Errorf("both have the claim under %s", scheduler)
			}
		}
		b.gone(b.pod("second"))
	}
}
