package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
)

// csiNode says how many volumes of each driver a node attaches; -1: any number.
func csiNode(name string, limits map[string]int32) *storagev1.CSINode {
	c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for driver, n := range limits {
		x := storagev1.CSINodeDriver{Name: driver, NodeID: name}
		if n >= 0 {
			x.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To(n)}
		}
		c.Spec.Drivers = append(c.Spec.Drivers, x)
	}
	return c
}

const csi = "csi.example.com"

// bound gives a driver without an API server claims that are bound to volumes of
// their own.
func (d *Driver) boundClaims(mode v1.PersistentVolumeAccessMode, names ...string) {
	for _, name := range names {
		d.volumes.Changed(volumeOf(name,
			v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: csi, VolumeHandle: name}}))
		d.volumes.Changed(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: "v-" + name,
				AccessModes: []v1.PersistentVolumeAccessMode{mode}}})
	}
}

// volumeOf is the volume of a claim.
func volumeOf(claim string, source v1.PersistentVolumeSource) *v1.PersistentVolume {
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v-" + claim},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: source}}
}

// using makes a pod use claims.
func using(p *v1.Pod, claims ...string) *v1.Pod {
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes,
			v1.Volume{Name: c, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	return p
}

// come tells a driver without an API server of pods.
func (d *Driver) come(t testing.TB, now *time.Time, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		p.UID, p.CreationTimestamp = types.UID(p.Name), metav1.NewTime(*now)
		d.podChanged(p)
	}
	*now = now.Add(time.Minute)
	steps(t, d)
}

// places says where pods are on their way to, by node.
func (d *Driver) places(prefix string) map[string]int {
	count := map[string]int{}
	for _, p := range d.pods {
		if at := p.At(); at != "" && strings.HasPrefix(p.Obj.Name, prefix) {
			count[at]++
		}
	}
	return count
}

// Single pods with a volume each, all in one pass, are no more on a node than it
// attaches, and the next says why it waits; what a volume attachment holds, and a
// pod of another scheduler, counts; what is attached already, counts once.
func TestAttachSingles(t *testing.T) {
	d, now := still(t, 3)
	for name, n := range map[string]int32{"n0000": 2, "n0001": 3, "n0002": 1} {
		d.volumes.Changed(csiNode(name, map[string]int32{csi: n}))
	}
	d.boundClaims(v1.ReadWriteOnce, "c0", "c1", "c2", "c3", "c4", "c5", "left")
	d.volumeChanged(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: csi, NodeName: "n0000",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("v-left")}}})
	d.collect()
	foreign := using(controlplane.Pod("foreign", 0, nil), "c5")
	foreign.Spec.SchedulerName, foreign.Spec.NodeName = "other", "n0001"
	d.come(t, now, foreign)
	var list []*v1.Pod
	for i := range 5 {
		list = append(list, using(controlplane.Pod(fmt.Sprintf("p%d", i), 1, nil), fmt.Sprintf("c%d", i)))
	}
	d.come(t, now, list...)
	if on := d.places("p"); on["n0000"] != 1 || on["n0001"] != 2 || on["n0002"] != 1 {
		t.Errorf("the pods are on %v; there is room for 1, 2 and 1", on)
	}
	waiting := 0
	for _, g := range d.gangs {
		if g.Phase <= 1 {
			waiting++
			if !strings.Contains(g.KeptOff, "no more volumes of csi.example.com can be attached") {
				t.Errorf("%s waits because of %q", g.Name, g.KeptOff)
			}
		}
	}
	if waiting != 1 {
		t.Errorf("%d pods wait, not one", waiting)
	}
	d.come(t, now, using(controlplane.Pod("with-foreign", 1, nil), "c5"))
	if on := d.places("with"); on["n0001"] != 1 {
		t.Errorf("the pod whose volume is attached to n0001 already is on %v", on)
	}
}

// A gang is spread by what the nodes attach, and waits as a whole where that is
// not enough; a driver that has to be there is.
func TestAttachGang(t *testing.T) {
	d, now := still(t, 3)
	for i, limit := range []int32{2, 1, 1} {
		name := fmt.Sprintf("n%04d", i)
		d.volumes.Changed(csiNode(name, map[string]int32{csi: limit}))
	}
	d.boundClaims(v1.ReadWriteOnce, "g-0", "g-1", "g-2", "g-3", "h-0", "h-1", "h-2", "h-3", "h-4")
	gang := func(name string, size int) (pods []*v1.Pod) {
		for _, p := range controlplane.Gang(name, size, 1, nil) {
			pods = append(pods, using(p, p.Name))
		}
		return pods
	}
	d.come(t, now, gang("h", 5)...)
	if on := d.places("h"); len(on) != 0 {
		t.Errorf("a gang with 5 volumes, of which 4 can be attached, is on %v", on)
	}
	d.come(t, now, gang("g", 4)...)
	if on := d.places("g"); on["n0000"] != 2 || on["n0001"] != 1 || on["n0002"] != 1 {
		t.Errorf("the gang is on %v; there was room for 2, 1 and 1", on)
	}
}

// A gang of a higher tier takes the place of one whose volumes are all that the
// node attaches: they go with it.
func TestAttachPreempts(t *testing.T) {
	d, now := still(t, 1)
	d.volumes.Changed(csiNode("n0000", map[string]int32{csi: 2}))
	d.boundClaims(v1.ReadWriteOnce, "a", "b", "high")
	low := []*v1.Pod{using(controlplane.Pod("low-a", 4, map[string]string{LabelTier: "best-effort"}), "a"),
		using(controlplane.Pod("low-b", 4, map[string]string{LabelTier: "best-effort"}), "b")}
	d.come(t, now, low...)
	if on := d.places("low"); on["n0000"] != 2 {
		t.Fatalf("low is on %v", on)
	}
	for _, p := range low {
		q := d.pods[p.UID]
		d.bound(q.Gang, q, q.Gang.Run, "n0000", nil)
	}
	steps(t, d)
	d.come(t, now, using(controlplane.Pod("high", 4, nil), "high"))
	var gone *gang.Pod
	for _, p := range low {
		if q := d.pods[p.UID]; q.Leaving {
			gone = q
		}
	}
	if gone == nil {
		t.Fatal("none leaves for a pod of a higher tier")
	}
	d.podGone(gone.Obj)
	*now = now.Add(time.Minute)
	steps(t, d)
	if on := d.places("high"); on["n0000"] != 1 {
		t.Errorf("high is on %v", on)
	}
}

// A claim with ReadWriteOncePod is for one pod at a time, until that is gone; a
// gang of which two use it can never run, and says so.
func TestReadWriteOncePod(t *testing.T) {
	d, now := still(t, 2)
	d.boundClaims(v1.ReadWriteOncePod, "mine", "ours")
	first := using(controlplane.Pod("p-first", 1, nil), "mine")
	d.come(t, now, first, using(controlplane.Pod("p-second", 1, nil), "mine"))
	if on := d.places("p"); on["n0000"]+on["n0001"] != 1 {
		t.Fatalf("two pods with one claim are on %v", on)
	}
	had, other := d.pods["p-first"], d.pods["p-second"]
	if had.At() == "" {
		had, other = other, had
	}
	*now = now.Add(time.Minute)
	steps(t, d)
	d.podGone(had.Obj)
	*now = now.Add(time.Minute)
	steps(t, d)
	if other.At() == "" {
		t.Errorf("the claim is free, and %s waits: %q", other.Obj.Name, other.Gang.Refused)
	}
	d.come(t, now, using(controlplane.Pod("q", 1, nil), "mine"))
	if why, want := d.pods["q"].Gang.Refused,
		"volume claim mine (ReadWriteOncePod) is in use by pod "+other.Obj.Name; why != want {
		t.Errorf("it says %q, not %q", why, want)
	}
	pair := controlplane.Gang("pair", 2, 1, nil)
	d.come(t, now, using(pair[0], "ours"), using(pair[1], "ours"))
	if on := d.places("pair"); len(on) != 0 {
		t.Errorf("a gang of two with one claim is on %v", on)
	}
	if why := d.pods["pair-0"].Gang.Refused; !strings.Contains(why, "both pair-0 and pair-1 of the gang use it") {
		t.Errorf("it says %q", why)
	}
}
