package volumes

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/kube/fit"
)

const csi = "csi.example.com"

// none decides about no pods.
func none() *Volumes { return New(Books{Ours: func(*fit.Neighbour) bool { return false }}) }

func csiNode(name string, limits map[string]int32) *storagev1.CSINode {
	c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for driver, n := range limits {
		x := storagev1.CSINodeDriver{Name: driver, NodeID: name,
			Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(n)}}
		c.Spec.Drivers = append(c.Spec.Drivers, x)
	}
	return c
}

// The bound that holds for any pods of a gang, against trying all of them.
func TestAttachBound(t *testing.T) {
	all, world := none(), fit.NewWorld()
	exact := 0
	for seed := range 2000 {
		r := rand.New(rand.NewPCG(uint64(seed), 0x617474616368))
		limit, pods := r.IntN(5), 1+r.IntN(5)
		all.Changed(csiNode("n0000", map[string]int32{csi: int32(limit)}))
		w := &toAttach{each: make([][]attachable, pods), users: map[attachable]int{}, drivers: []string{csi}}
		kind := r.IntN(3) // each has its own; all have the same; anything
		for i := range w.each {
			for k := range 3 {
				a := attachable{csi, fmt.Sprint(k)}
				switch kind {
				case 0:
					a.handle = fmt.Sprint(i, "-", k%2)
				case 2:
					a.handle = fmt.Sprint(r.IntN(5))
				}
				if kind == 2 && r.IntN(2) == 0 || k > limit && kind == 1 || k > 0 && kind == 0 {
					continue
				}
				if w.users[a]++; len(w.each[i]) == 0 || w.each[i][len(w.each[i])-1] != a {
					w.each[i] = append(w.each[i], a)
				}
			}
		}
		got, _ := all.attaching(world, "n0000", w, false)
		safe := pods
		for set := range 1 << pods {
			used := map[attachable]bool{}
			for i, list := range w.each {
				for _, a := range list {
					if set>>i&1 != 0 {
						used[a] = true
					}
				}
			}
			if len(used) > limit {
				safe = min(safe, bits.OnesCount(uint(set))-1)
			}
		}
		if got > safe {
			t.Fatalf("seed %d: %d of %v are said to fit into %d; %d do, whichever they are", seed, got, w.each, limit,
				safe)
		}
		if kind < 2 && got != safe {
			t.Errorf("seed %d: %d of %v are said to fit into %d; %d do", seed, got, w.each, limit, safe)
		}
		if got == safe {
			exact++
		}
	}
	if exact < 1500 {
		t.Errorf("the bound is exact for %d of 2000 only", exact)
	}
}

// A driver that asks for it attaches volumes only to nodes that say that it is there.
func TestServes(t *testing.T) {
	all, w := none(), fit.NewWorld()
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csi}}
	driver.Spec.PreventPodSchedulingIfMissing = ptr.To(true)
	all.Changed(driver)
	one := &toAttach{each: [][]attachable{{{csi, "x"}}}, users: map[attachable]int{{csi, "x"}: 1},
		drivers: []string{csi}}
	if k, why := all.attaching(w, "n0000", one, false); k != 0 || !strings.Contains(why, "not there") {
		t.Errorf("on a node without the driver there is room for %d (%s)", k, why)
	}
}

// What is known of a volume's other form is not so any more when it changes.
func TestTranslated(t *testing.T) {
	all := none()
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "tree"}}
	for _, id := range []string{"vol-0a", "vol-0d"} {
		v = v.DeepCopy()
		v.Spec.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id}
		all.Changed(v)
		if got := all.translated(v).csi.Spec.CSI.VolumeHandle; got != id {
			t.Errorf("the volume's handle is %s, not %s", got, id)
		}
	}
}

// Where a volume is, its own node affinity says, or on nodes with the CSI driver that
// driver's; and the labels of its zone.
func TestInTreeReach(t *testing.T) {
	all := none()
	in := func(key, zone string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}}}}
	}
	pd := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pd"},
		Spec: v1.PersistentVolumeSpec{NodeAffinity: in(v1.LabelTopologyZone, "a"),
			PersistentVolumeSource: v1.PersistentVolumeSource{
				GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd"}}}}
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0000", Labels: map[string]string{v1.LabelTopologyZone: "a"}}}
	if !all.reachableFrom(pd, n) {
		t.Error("not by its own node affinity")
	}
	replaced := csiNode("n0000", nil)
	replaced.Annotations = map[string]string{
		v1.MigratedPluginsAnnotationKey: "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
	all.Changed(replaced)
	if all.reachableFrom(pd, n) {
		t.Error("its driver names zones by another label, which the node does not have")
	}
	n.Labels["topology.gke.io/zone"] = "a"
	if !all.reachableFrom(pd, n) {
		t.Error("not by its driver's label")
	}
	for _, c := range []struct {
		volume, node map[string]string
		want         bool
	}{
		{map[string]string{v1.LabelTopologyZone: "a"}, map[string]string{"x": "y"}, true},
		{map[string]string{v1.LabelTopologyZone: "a"}, map[string]string{v1.LabelTopologyZone: "a"}, true},
		{map[string]string{v1.LabelTopologyZone: "a"}, map[string]string{v1.LabelTopologyZone: "b"}, false},
		{map[string]string{v1.LabelTopologyZone: "a"}, map[string]string{v1.LabelTopologyRegion: "r"}, false},
		{map[string]string{v1.LabelFailureDomainBetaZone: "a__b"}, map[string]string{v1.LabelTopologyZone: "b"}, true},
		{map[string]string{v1.LabelFailureDomainBetaZone: "a__c"}, map[string]string{v1.LabelTopologyZone: "b"}, false},
		{map[string]string{v1.LabelTopologyZone: "a"}, map[string]string{v1.LabelFailureDomainBetaZone: "a"}, false},
		{map[string]string{v1.LabelTopologyZone: "a__"}, map[string]string{v1.LabelTopologyZone: "b"}, true},
		{map[string]string{v1.LabelTopologyZone: "a", v1.LabelTopologyRegion: "r"},
			map[string]string{v1.LabelTopologyZone: "a", v1.LabelTopologyRegion: "s"}, false},
	} {
		if got := inZone(c.volume, c.node); got != c.want {
			t.Errorf("a volume with %v on a node with %v: %v", c.volume, c.node, got)
		}
	}
}
