package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/fit/volumes"
)

// csiMaker is a driver that says how much it can make volumes of.
const csiMaker = "made.example.com"

// makes gives a driver without an API server the class of such volumes, and claims
// that wait for their pod.
func (d *Driver) makes(size string, names ...string) {
	late := storagev1.VolumeBindingWaitForFirstConsumer
	d.volumes.Changed(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Provisioner: csiMaker,
		VolumeBindingMode: &late})
	d.volumes.Changed(maker(true))
	for _, name := range names {
		d.volumes.Changed(open(name, "made", size))
	}
}

// maker is that driver.
func maker(says bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiMaker},
		Spec: storagev1.CSIDriverSpec{StorageCapacity: &says}}
}

// open is a claim that waits for its pod; size "": it names none.
func open(name, class, size string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	c.Spec.StorageClassName = &class
	if size != "" {
		c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	}
	return c
}

func quantity(s string) *resource.Quantity {
	if s == "" {
		return nil
	}
	return ptr.To(resource.MustParse(s))
}

// left is what a driver says of nodes with a label.
func left(name, key, value, most, largest string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		StorageClassName: "made",
		NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}, Capacity: quantity(most),
		MaximumVolumeSize: quantity(largest)}
}

// report tells a driver of capacities.
func (d *Driver) report(t *testing.T, now *time.Time, list ...*storagev1.CSIStorageCapacity) {
	t.Helper()
	for _, c := range list {
		d.volumeChanged(c)
	}
	d.collect()
	*now = now.Add(time.Minute)
	steps(t, d)
}

// A pod whose volume has to be made goes where its driver has room for it, waits where none has, and says so; more room
// wakes it.
func TestCapacity(t *testing.T) {
	d, now := still(t, 4)
	d.makes("10Gi", "c")
	d.report(t, now, left("a", v1.LabelHostname, "n0000", "9Gi", ""),
		left("b", v1.LabelHostname, "n0001", "100Gi", "8Gi"), left("c", v1.LabelHostname, "n0002", "", ""))
	d.come(t, now, using(controlplane.Pod("p", 1, nil), "c"))
	g := d.pods["p"].Gang
	if len(d.places("p")) != 0 || g.KeptOff != "4: too little storage capacity for its volumes" {
		t.Fatalf("it is on %v and says %q", d.places("p"), g.KeptOff)
	}
	d.report(t, now, left("c", v1.LabelHostname, "n0002", "11Gi", "10Gi"))
	d.expectBinding(t, "p")
	if on := d.places("p"); on["n0002"] != 1 {
		t.Errorf("it is on %v", on)
	}
}

// What the driver does not say it knows, is not looked at; nor is it for claims that
// name no size.
func TestCapacityNot(t *testing.T) {
	for name, f := range map[string]func(d *Driver){
		"the driver publishes none": func(d *Driver) { d.volumes.Changed(maker(false)) },
		"it is not known":           func(d *Driver) { d.volumes.Gone(maker(true)) },
		"no size":                   func(d *Driver) { d.volumes.Changed(open("c", "made", "")) },
	} {
		d, now := still(t, 1)
		d.makes("10Gi", "c")
		f(d)
		d.come(t, now, using(controlplane.Pod("p", 1, nil), "c"))
		if len(d.places("p")) != 1 {
			t.Errorf("%s: it waits: %s", name, d.pods["p"].Gang.KeptOff)
		}
	}
}

// The volumes of a gang are made together: a rack's capacity is shared by its nodes.
func TestCapacityGang(t *testing.T) {
	d, now := still(t, 3)
	zones(d, 2) // n0000 and n0001, n0002
	steps(t, d)
	var pods []*v1.Pod
	for _, p := range controlplane.Gang("g", 4, 1, nil) {
		d.makes("10Gi", p.Name)
		pods = append(pods, using(p, p.Name))
	}
	d.report(t, now, left("a", "zone", "z0", "25Gi", ""), left("b", "zone", "z1", "19Gi", ""))
	d.come(t, now, pods...)
	if on := d.places("g"); len(on) != 0 {
		t.Fatalf("a gang of four is on %v, where three volumes can be made", on)
	}
	d.report(t, now, left("b", "zone", "z1", "20Gi", "10Gi"))
	if on := d.places("g"); on["n0000"]+on["n0001"] != 2 || on["n0002"] != 2 {
		t.Errorf("the gang is on %v; there was room for 2 and 2", on)
	}
}

// A claim for which a volume is being made on a node is for that node, whatever is left
// there now: what it takes may be counted already, or not.
func TestCapacityBegun(t *testing.T) {
	d, now := still(t, 3)
	d.makes("10Gi", "c")
	begun := open("c", "made", "10Gi")
	begun.Annotations = map[string]string{volumes.SelectedNode: "n0001"}
	d.volumes.Changed(begun)
	d.report(t, now, left("a", v1.LabelHostname, "n0001", "10Gi", ""), left("b", v1.LabelHostname, "n0000", "99Gi", ""))
	d.come(t, now, using(controlplane.Pod("p", 1, nil), "c"))
	if on := d.places("p"); on["n0001"] != 1 {
		t.Errorf("it is on %v", on)
	}
}

// Two claims of a pod do not count on the same volume.
func TestFreeVolumeTwice(t *testing.T) {
	d, now := still(t, 1)
	late := storagev1.VolumeBindingWaitForFirstConsumer
	local := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Provisioner: volumes.NoProvisioner, VolumeBindingMode: &late}
	d.volumes.Changed(local)
	free := func(name string) {
		d.volumes.Changed(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
			Spec: v1.PersistentVolumeSpec{StorageClassName: "local",
				Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}}})
	}
	for _, name := range []string{"one", "two"} {
		d.volumes.Changed(open(name, "local", "5Gi"))
	}
	free("v0")
	d.come(t, now, using(controlplane.Pod("p", 1, nil), "one", "two"))
	if g := d.pods["p"].Gang; g.KeptOff != "1: where its volumes are" {
		t.Errorf("two claims and one volume: it says %q", g.KeptOff)
	}
	free("v1")
	d.nodes.World.Changed()
	*now = now.Add(time.Minute)
	steps(t, d)
	d.expectBinding(t, "p")
}

// addMade makes a pod use claims for which a volume has to be made.
func addMade(r *rand.Rand, p *v1.Pod) {
	if p.Namespace == "default" {
		using(p, [][]string{{"late-small"}, {"late-large"}, {"late-small", "late-large"}}[r.IntN(3)]...)
	}
}

// capacities says how much can be made volumes of, and where.
func (b *bench) capacities(r *rand.Rand) {
	b.Helper()
	list := b.c.StorageV1().CSIStorageCapacities("default")
	if err := list.DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	for i := range 5 {
		c := left(fmt.Sprint("c", i), "zone", fmt.Sprint("z", r.IntN(3)),
			[]string{"", "1Gi", "10Gi", "30Gi"}[r.IntN(4)], []string{"", "", "6Gi", "20Gi"}[r.IntN(4)])
		if c.Capacity == nil {
			c.MaximumVolumeSize = nil // with the one and not the other kube-scheduler 1.37 dies, when it scores
		}
		switch r.IntN(5) {
		case 0:
			c.NodeTopology = nil
		case 1:
			c.NodeTopology.MatchLabels[v1.LabelHostname] = fmt.Sprint("n", r.IntN(6))
		case 2:
			c.NodeTopology = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "size", Operator: metav1.LabelSelectorOpIn, Values: []string{"0", "2"}}}}
		case 3:
			c.StorageClassName = []string{"other", "made"}[r.IntN(2)]
		}
		if _, err := list.Create(b.ctx, c, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// maker plays a driver that makes volumes: for the node where the pod is to go.
func (b *bench) maker() {
	made := func(c *v1.PersistentVolumeClaim) string { return "made-" + string(c.UID) }
	pass := func() error {
		claims, err := b.c.CoreV1().PersistentVolumeClaims("default").List(b.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		wanted := map[string]bool{}
		for i := range claims.Items {
			c := &claims.Items[i]
			at := c.Annotations[volumes.SelectedNode]
			if wanted[made(c)] = true; *c.Spec.StorageClassName != "made" || at == "" || c.Spec.VolumeName != "" {
				continue
			}
			v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: made(c)},
				Spec: v1.PersistentVolumeSpec{StorageClassName: "made", AccessModes: c.Spec.AccessModes,
					Capacity:                      c.Spec.Resources.Requests,
					PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
					ClaimRef: &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
						Namespace: c.Namespace, Name: c.Name, UID: c.UID},
					PersistentVolumeSource: v1.PersistentVolumeSource{
						CSI: &v1.CSIPersistentVolumeSource{Driver: csiMaker, VolumeHandle: made(c)}},
					NodeAffinity: &v1.VolumeNodeAffinity{
						Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
							MatchExpressions: []v1.NodeSelectorRequirement{
								{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{at}}}}}}}}}
			if _, err := b.c.CoreV1().PersistentVolumes().Create(b.ctx, v, metav1.CreateOptions{}); err != nil &&
				!apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		volumes, err := b.c.CoreV1().PersistentVolumes().List(b.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range volumes.Items { // of claims that are gone
			if name := volumes.Items[i].Name; strings.HasPrefix(name, "made-") && !wanted[name] {
				if err := b.c.CoreV1().PersistentVolumes().Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil &&
					!apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		return nil
	}
	ctx, cancel := context.WithCancel(b.ctx)
	over, changed := make(chan struct{}), make(chan struct{}, 1)
	followed := b.follow(ctx, kubeapi.Inform(b.c, b.c.CoreV1().PersistentVolumeClaims("default"),
		&v1.PersistentVolumeClaim{}, nil), changed)
	go func() {
		defer close(over)
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			if err := pass(); err != nil && ctx.Err() == nil {
				b.Errorf("the driver that makes volumes: %v", err)
				return
			}
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-over
		followed()
	})
}

// A gang whose pods have volumes on different nodes, as those of a run before, starts with
// each where its volume is; where volumes are reached from nodes in common, all go there.
func TestHomes(t *testing.T) {
	d, now := still(t, 3)
	bound := func(claim string, nodes ...string) {
		d.volumes.Changed(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: claim}})
		d.volumes.Changed(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim},
			Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{
				Required: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
						{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: nodes}}}}}}}})
	}
	gang := func(name string, gpus int, claims ...string) []*v1.Pod {
		pods := controlplane.Gang(name, len(claims), gpus, nil)
		for i := range pods {
			using(pods[i], claims[i])
		}
		return pods
	}
	bound("c0", "n0002")
	bound("c1", "n0000")
	bound("c2", "n0002")
	d.come(t, now, gang("g", 2, "c0", "c1", "c2")...)
	for name, node := range map[string]string{"g-0": "n0002", "g-1": "n0000", "g-2": "n0002"} {
		if at := d.pods[types.UID(name)].At(); at != node {
			t.Errorf("%s is on %q, its volume on %s", name, at, node)
		}
	}
	bound("c3", "n0000", "n0001")
	bound("c4", "n0001", "n0002")
	d.come(t, now, gang("h", 2, "c3", "c4")...)
	if on := d.places("h"); on["n0001"] != 2 {
		t.Errorf("both reach their volumes from n0001 only, and are on %v", on)
	}
	bound("c5", "n0000")
	bound("c6", "n0001")
	d.come(t, now, gang("i", 6, "c5", "c6")...) // four are left there
	if g := d.pods["i-0"].Gang; g.KeptOff != "1: where its volumes are" || len(d.places("i")) > 0 {
		t.Errorf("there is no room where its volumes are, and it says %q, %v", g.KeptOff, d.places("i"))
	}
}
