package kube

import (
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
)

// objectChanged books an object as it is now, and what depends on it looks again.
func (d *Driver) objectChanged(key gangs.Key, o *unstructured.Unstructured) {
	d.objects.Changed(key, o)
	d.regroupUsers(key)
	d.topologyChanged(key.Kind)
}

// topologyChanged looks again where nodes are, if the objects of a kind say by which labels that is known.
func (d *Driver) topologyChanged(k *gangs.Kind) {
	if k != gangs.TopologyKind || !d.opt.Labels.SetTopologies(d.objects.Topologies()) {
		return
	}
	d.nodes.PlacesDiffer()
	for _, g := range d.gangs {
		if g.Phase == gang.Gathering || g.Phase == gang.Waiting {
			d.agenda.touch(g)
		}
	}
	d.lookAgain()
	d.nodes.World.Changed()
}

// kindReadable books whether the objects of a kind can be known.
func (d *Driver) kindReadable(k *gangs.Kind, so bool) {
	for _, key := range d.objects.SetReadable(k, so) {
		d.regroupUsers(key)
	}
	d.topologyChanged(k)
}

// regroupUsers has the gangs that look at an object look again whose their pods are.
func (d *Driver) regroupUsers(key gangs.Key) {
	for _, g := range d.usersOf(key) {
		d.regroup(g)
	}
}

// usersOf lists the gangs that look at an object.
func (d *Driver) usersOf(key gangs.Key) (list []*gang.Gang) {
	for _, k := range d.objects.Users(key) {
		if g := d.gangs[k]; g != nil {
			list = append(list, g)
		}
	}
	return list
}

// jobChanged books a Job; its pods may belong together now, and the other way
// round. What is bound stays what it is. Pods that came before their Job have
// waited for it, in what would be its gang.
func (d *Driver) jobChanged(j *batchv1.Job) {
	old := d.objects.JobChanged(j)
	for _, g := range d.usersOf(gangs.OwnerKey(j)) { // the gang may be of several Jobs
		d.agenda.touch(g)
	}
	g := d.gangs[gangs.JobKey(j.UID)]
	switch {
	case old != nil && gangs.IsGang(old) != gangs.IsGang(j):
		for _, p := range d.pods {
			if ref := gangs.Owner(p.Obj, "batch", "Job"); ref != nil && ref.UID == j.UID {
				d.rejoin(p)
			}
		}
	case g != nil:
		d.regroup(g)
	case old != nil && !(maps.Equal(old.Labels, j.Labels) && maps.Equal(old.Annotations, j.Annotations)):
		for _, p := range d.pods { // its pods are gangs of one, which look at it
			if ref := gangs.Owner(p.Obj, "batch", "Job"); ref != nil && ref.UID == j.UID && p.Gang != nil {
				d.agenda.touch(p.Gang)
			}
		}
	}
}

// jobGone books that a Job is not there any more.
func (d *Driver) jobGone(j *batchv1.Job) {
	d.objects.JobGone(j)
	for _, g := range d.usersOf(gangs.OwnerKey(j)) {
		d.agenda.touch(g)
	}
	if g := d.gangs[gangs.JobKey(j.UID)]; g != nil {
		d.agenda.touch(g)
	}
}
