package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// A volume of a driver that was part of Kubernetes counts among those of its CSI
// driver, once, however a pod names it; those of vSphere do not.
func TestInTreeCounts(t *testing.T) {
	const ebs = "ebs.csi.aws.com"
	d, now := still(t, 1)
	d.volumes.Changed(csiNode("n0000", map[string]int32{ebs: 2, "csi.vsphere.vmware.com": 0}))
	d.boundClaims(v1.ReadWriteMany, "tree", "csi", "other", "vsphere")
	source := func(name string, s v1.PersistentVolumeSource) {
		d.volumes.Changed(volumeOf(name, s))
	}
	source("tree", v1.PersistentVolumeSource{
		AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-0a"}})
	source("csi", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: ebs, VolumeHandle: "vol-0a"}})
	source("other", v1.PersistentVolumeSource{
		AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0b"}})
	source("vsphere", v1.PersistentVolumeSource{
		VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] a.vmdk"}})
	inline := controlplane.Pod("p-inline", 1, nil)
	inline.Spec.Volumes = []v1.Volume{
		{Name: "x", VolumeSource: v1.VolumeSource{
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0c"}}}}
	d.come(t, now, using(controlplane.Pod("p-both", 1, nil), "tree", "csi"),
		using(controlplane.Pod("p-vsphere", 1, nil), "vsphere"))
	d.come(t, now, inline)
	d.come(t, now, using(controlplane.Pod("p-late", 1, nil), "other"))
	d.expectBinding(t, "p-both", "p-inline", "p-vsphere")
	if why := d.reader.KeptOff(d.pods["p-late"], "n0000"); why != "no more volumes of ebs.csi.aws.com can be attached" {
		t.Errorf("p-late says %q", why)
	}
}

// A disk that pods name themselves is used by one of them on a node, unless all read
// only; also where both are of a gang, or come at once.
func TestSameDisk(t *testing.T) {
	with := func(p *v1.Pod, read bool) *v1.Pod {
		p.Spec.Volumes = []v1.Volume{
			{Name: "x", VolumeSource: v1.VolumeSource{
				GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd", ReadOnly: read}}}}
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
