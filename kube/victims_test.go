package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
)

// away makes pods keep off those of an application, in the domains of a label.
func away(app, key string, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		affinityOf(p).PodAntiAffinity = &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: key}}}
	}
	return pods
}

// lowly is a pod of the lowest tier, of an application.
func lowly(name, app string, gpus int) *v1.Pod {
	return controlplane.Pod(name, gpus, map[string]string{LabelTier: "best-effort", "app": app})
}

func at(p *v1.Pod, node string) *v1.Pod {
	p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
	return p
}

func onPort(p *v1.Pod) *v1.Pod {
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	return p
}

func asking(p *v1.Pod, name v1.ResourceName, n string) *v1.Pod {
	p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(n)
	return p
}

func evenly(p *v1.Pod, app string) *v1.Pod {
	p.Labels["app"] = app
	p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule,
			NodeAffinityPolicy: ptr.To(v1.NodeInclusionPolicyIgnore),
			LabelSelector:      &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	return p
}

// What keeps a pod off a node though it has room, is there with a pod of a lower tier:
// that leaves, the other is bound when it is gone and not before, and whatever else
// would be in its way does not get between.
func TestLift(t *testing.T) {
	for name, c := range map[string]struct {
		low, high *v1.Pod
		nodes     func(d *Driver)
	}{
		"its anti-affinity": {low: lowly("low", "x", 1),
			high: away("x", v1.LabelHostname, controlplane.Pod("high", 1, nil))[0]},
		"of a zone": {low: at(lowly("low", "x", 1), "n0001"),
			high: at(away("x", "zone", controlplane.Pod("high", 1, nil))[0], "n0000")},
		"the other's anti-affinity": {low: away("y", v1.LabelHostname, lowly("low", "x", 1))[0],
			high: controlplane.Pod("high", 1, map[string]string{"app": "y"})},
		"a host port": {low: onPort(lowly("low", "x", 0)),
			high: onPort(controlplane.Pod("high", 0, nil))},
		"an even spread": {low: at(lowly("low", "x", 1), "n0001"),
			high: at(evenly(controlplane.Pod("high", 1, nil), "x"), "n0000")},
		"a resource beside GPUs": {low: asking(lowly("low", "x", 0), "example.com/hca", "1"),
			high: asking(controlplane.Pod("high", 0, nil), "example.com/hca", "1")},
		"how many pods a node takes": {low: lowly("low", "x", 0), high: controlplane.Pod("high", 0, nil)},
		"how many volumes it attaches": {low: using(lowly("low", "x", 0), "a"),
			high: using(controlplane.Pod("high", 1, nil), "b")},
		"a disk that both name": {low: naming(lowly("low", "x", 0)),
			high: naming(controlplane.Pod("high", 0, nil))},
		"and GPUs": {low: lowly("low", "x", 8),
			high: away("x", v1.LabelHostname, controlplane.Pod("high", 8, nil))[0]},
	} {
		t.Run(name, func(t *testing.T) {
			d, now := still(t, 3)
			d.boundClaims(v1.ReadWriteOnce, "a", "b", "c")
			for i, n := range d.nodes.Order() {
				d.volumes.Changed(csiNode(n, map[string]int32{csi: 1}))
				obj := d.nodes.Node(n).Obj.DeepCopy()
				obj.Labels["zone"] = fmt.Sprint("z", i/2) // n0000 and n0001, n0002
				obj.Status.Allocatable["example.com/hca"] = resource.MustParse("1")
				if obj.Spec.Unschedulable = i > 0 &&
					c.low.Spec.NodeSelector == nil; name == "how many pods a node takes" {
					obj.Status.Allocatable[v1.ResourcePods] = resource.MustParse("1")
				}
				d.nodeChanged(obj)
			}
			steps(t, d)
			d.come(t, now, c.low)
			d.answer(t, now)
			if d.pods["low"].Node == "" {
				t.Fatalf("low waits: %s", d.pods["low"].Gang.KeptOff)
			}
			d.come(t, now, c.high)
			g := d.pods["high"].Gang
			if !d.pods["low"].Leaving {
				t.Fatalf("low stays, and high is in phase %d: %q %q", g.Phase, g.Refused, g.KeptOff)
			}
			d.expectBinding(t)
			again := c.low.DeepCopy()
			again.Name = "again"
			if len(again.Spec.Volumes) > 0 && again.Spec.Volumes[0].PersistentVolumeClaim != nil {
				again.Spec.Volumes = nil // low's is attached already
				using(again, "c")
			}
			if name != "an even spread" { // which keeps no others off
				d.come(t, now, again)
			}
			*now = now.Add(time.Minute)
			steps(t, d)
			d.expectBinding(t)
			d.podGone(d.pods["low"].Obj)
			*now = now.Add(time.Minute)
			steps(t, d)
			d.expectBinding(t, "high")
			d.answer(t, now)
			if g.Phase != gang.Running || len(g.Victims) > 0 || len(d.heldBack) > 0 || len(d.nodes.World.Hidden()) > 0 {
				t.Errorf("high is in phase %d: %+v", g.Phase, g.VictimSearch)
			}
			if on := d.places("again"); len(on) > 0 {
				t.Errorf("the other that came meanwhile is on %v", on)
			}
		})
	}
}

func naming(p *v1.Pod) *v1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes,
		v1.Volume{Name: "disk",
			VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd"}}})
	return p
}

// None leaves for an equal, for a pod that does not preempt, for one that finds no room then
// either, for one that has a place elsewhere, or before the minimum run time is over.
func TestLiftNot(t *testing.T) {
	high := func(gpus int) *v1.Pod { return away("x", v1.LabelHostname, controlplane.Pod("high", gpus, nil))[0] }
	never, equal, elsewhere := high(1), high(1), high(1)
	never.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever)
	equal.Labels[LabelTier] = "best-effort"
	for name, p := range map[string]*v1.Pod{"equal": equal, "never": never, "large": high(9), "elsewhere": elsewhere,
		"early": high(1), "full": high(8)} {
		nodes := 1
		if name == "elsewhere" {
			nodes = 2
		}
		d, now := still(t, nodes)
		if name == "full" {
			d.come(t, now, controlplane.Pod("stays", 1, nil))
			d.answer(t, now)
		}
		d.come(t, now, at(lowly("low", "x", 1), "n0000"))
		d.answer(t, now)
		if name == "early" {
			d.opt.Rules.MinRuntime = time.Hour
		}
		d.come(t, now, p)
		if d.pods["low"].Leaving || (d.places("high")["n0001"] == 1) != (name == "elsewhere") {
			t.Errorf("%s: low leaves: %v; high is on %v", name, d.pods["low"].Leaving, d.places("high"))
		}
		if name != "early" {
			continue
		}
		*now = now.Add(2 * time.Hour)
		d.checked = cluster.Time(now.UnixNano())
		steps(t, d)
		if !d.pods["low"].Leaving {
			t.Error("the minimum run time is over, and low stays")
		}
	}
}

// No more leave than have to, and those whose loss is the least.
func TestLiftLeast(t *testing.T) {
	d, now := still(t, 2)
	large, small := at(lowly("large", "x", 4), "n0000"), at(lowly("small", "x", 2), "n0001")
	d.come(t, now, large, small, at(lowly("beside", "other", 2), "n0001"),
		away("nobody", v1.LabelHostname, at(lowly("shy", "x", 1), "n0001"))[0])
	d.answer(t, now)
	zoned := func(p *v1.Pod) *v1.Pod { return away("x", v1.LabelHostname, p)[0] }
	d.come(t, now, zoned(controlplane.Pod("high", 1, nil)))
	for name, leaves := range map[string]bool{"large": false, "small": true, "beside": false, "shy": true} {
		if d.pods[pidOf(d, name)].Leaving != leaves {
			t.Errorf("%s leaves: %v", name, !leaves)
		}
	}
	if why := d.pods["small"].Gang.Leaves; why != "preempted for default/high, which cannot be where it is" {
		t.Errorf("it is told %q", why)
	}
}

func pidOf(d *Driver, name string) (uid types.UID) {
	for u, p := range d.pods {
		if p.Obj.Name == name {
			uid = u
		}
	}
	return uid
}

// A gang gets as many nodes as it needs, and only there others leave.
func TestLiftGang(t *testing.T) {
	d, now := still(t, 4)
	for i := range 4 {
		d.come(t, now, at(lowly(fmt.Sprint("low-", i), "x", 1+i), d.nodes.Order()[i]))
	}
	d.answer(t, now)
	d.come(t, now, away("x", v1.LabelHostname, controlplane.Gang("high", 2, 8, nil)...)...)
	gone := 0
	for name, p := range d.pods {
		if strings.HasPrefix(string(name), "low") && p.Leaving {
			gone++
		}
	}
	if g := d.pods["high-0"].Gang; gone != 2 {
		t.Fatalf("%d leave for a gang on two nodes: %q %q", gone, g.Refused, g.KeptOff)
	}
	for name, p := range d.pods {
		if strings.HasPrefix(string(name), "low") && p.Leaving {
			d.podGone(p.Obj)
		}
	}
	*now = now.Add(time.Minute)
	steps(t, d)
	d.expectBinding(t, "high-0", "high-1")
}

// If the one for which others leave goes itself, its place is free again; if another
// else is in its way when they have left, it is looked for another.
func TestLiftGone(t *testing.T) {
	for _, what := range []string{"deleted", "overtaken"} {
		d, now := still(t, 1)
		d.come(t, now, onPort(lowly("low", "x", 0)))
		d.answer(t, now)
		d.come(t, now, onPort(controlplane.Pod("high", 4, nil)))
		high := d.pods["high"]
		if !d.pods["low"].Leaving || high.Where != "n0000" || high.Binding {
			t.Fatalf("low leaves: %v; high is expected at %q", d.pods["low"].Leaving, high.Where)
		}
		foreign := onPort(controlplane.Pod("foreign", 0, nil))
		foreign.Spec.SchedulerName, foreign.Spec.NodeName = "other", "n0000"
		if what == "deleted" {
			d.podGone(high.Obj)
		} else {
			d.come(t, now, foreign)
		}
		d.podGone(d.pods["low"].Obj)
		*now = now.Add(time.Minute)
		steps(t, d)
		d.expectBinding(t)
		if len(d.heldBack) != 0 || high.Where != "" {
			t.Errorf("%s: it still has its place", what)
		}
		if what == "deleted" {
			d.come(t, now, onPort(controlplane.Pod("next", 8, nil)))
			d.expectBinding(t, "next")
			continue
		}
		d.podGone(d.pods["foreign"].Obj)
		for range 3 {
			*now = now.Add(2 * time.Minute)
			d.agenda.due(d.clock())
			steps(t, d)
		}
		d.expectBinding(t, "high")
	}
}
