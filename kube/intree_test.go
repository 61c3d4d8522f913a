package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// A volume of a driver that was part of Kubernetes counts among those of its CSI
// driver, once, however a pod names it; those of vSphere do not.
func TestInTreeCounts(t *testing.T) {
	const ebs = "ebs.csi.aws.com"
	d, now := still(t, 1)
	d.csiNodes["n0000"] = csiNode("n0000", map[string]int32{ebs: 2, "csi.vsphere.vmware.com": 0})
	d.boundClaims(v1.ReadWriteMany, "tree", "csi", "other", "vsphere")
	source := func(name string, s v1.PersistentVolumeSource) {
		d.storage.volumes["v-"+name].Spec.PersistentVolumeSource = s
	}
	source("tree", v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-0a"}})
	source("csi", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: ebs, VolumeHandle: "vol-0a"}})
	source("other", v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0b"}})
	source("vsphere", v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] a.vmdk"}})
	inline := controlplane.Pod("p-inline", 1, nil)
	inline.Spec.Volumes = []v1.Volume{{Name: "x", VolumeSource: v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0c"}}}}
	d.come(t, now, using(controlplane.Pod("p-both", 1, nil), "tree", "csi"), using(controlplane.Pod("p-vsphere", 1, nil), "vsphere"))
	d.come(t, now, inline)
	d.come(t, now, using(controlplane.Pod("p-late", 1, nil), "other"))
	d.expectBinding(t, "p-both", "p-inline", "p-vsphere")
	if _, why := d.attaching("n0000", d.toAttach(d.pods["p-late"]), false); why != "no more volumes of ebs.csi.aws.com can be attached" {
		t.Errorf("p-late says %q", why)
	}
	v := d.storage.volumes["v-tree"].DeepCopy() // it changes: what was known of it is not so any more
	v.Spec.AWSElasticBlockStore.VolumeID = "vol-0d"
	d.storage.volumes["v-tree"] = v
	if got := d.translated(v).csi.Spec.CSI.VolumeHandle; got != "vol-0d" {
		t.Errorf("the volume's handle is %s now", got)
	}
}

// Where a volume is, its own node affinity says, or on nodes with the CSI driver that
// driver's; and the labels of its zone.
func TestInTreeReach(t *testing.T) {
	d, _ := still(t, 2)
	in := func(key, zone string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}}}}
	}
	pd := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pd"}, Spec: v1.PersistentVolumeSpec{NodeAffinity: in(v1.LabelTopologyZone, "a"),
		PersistentVolumeSource: v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd"}}}}
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0000", Labels: map[string]string{v1.LabelTopologyZone: "a"}}}
	if !d.reachableFrom(pd, n) {
		t.Error("not by its own node affinity")
	}
	d.csiNodes["n0000"] = csiNode("n0000", nil)
	d.csiNodes["n0000"].Annotations = map[string]string{v1.MigratedPluginsAnnotationKey: "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
	if d.reachableFrom(pd, n) {
		t.Error("its driver names zones by another label, which the node does not have")
	}
	n.Labels["topology.gke.io/zone"] = "a"
	if !d.reachableFrom(pd, n) {
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
		{map[string]string{v1.LabelTopologyZone: "a", v1.LabelTopologyRegion: "r"}, map[string]string{v1.LabelTopologyZone: "a", v1.LabelTopologyRegion: "s"}, false},
	} {
		if got := inZone(c.volume, c.node); got != c.want {
			t.Errorf("a volume with %v on a node with %v: %v", c.volume, c.node, got)
		}
	}
}

// A disk that pods name themselves is used by one of them on a node, unless all read
// only; also where both are of a gang, or come at once.
func TestSameDisk(t *testing.T) {
	with := func(p *v1.Pod, read bool) *v1.Pod {
		p.Spec.Volumes = []v1.Volume{{Name: "x", VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd", ReadOnly: read}}}}
		return p
	}
	d, now := still(t, 2)
	d.come(t, now, with(controlplane.Pod("a", 1, nil), true), with(controlplane.Pod("b", 1, nil), true))
	if on := d.places(""); on["n0000"] != 2 {
		t.Errorf("those that read are on %v", on)
	}
	d.come(t, now, with(controlplane.Pod("c", 1, nil), false), with(controlplane.Pod("d", 1, nil), false))
	d.answer(t, now)
	d.answer(t, now)
	if on := d.places(""); on["n0001"] != 1 || on["n0000"] != 2 {
		t.Errorf("with two that write, the pods are on %v", on)
	}
	d, now = still(t, 2)
	gang := controlplane.Gang("g", 2, 1, nil)
	d.come(t, now, with(gang[0], false), with(gang[1], false))
	if on := d.places("g"); on["n0000"] != 1 || on["n0001"] != 1 {
		t.Errorf("a gang with one disk is on %v", on)
	}
}
