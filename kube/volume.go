package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-gpu/muster/kube/fit"
)

// Volumes bind pods to where their data is. A claim that is bound says where; one
// that waits for its first consumer is bound to a volume, or has one made, where
// the pod goes, and only then the pod is.

// storage is what the driver knows of volumes.
type storage struct {
	claims  map[string]*v1.PersistentVolumeClaim // by namespace/name
	volumes map[string]*v1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	taken   map[string]string // volumes that were chosen: for which claim

	csiNodes   map[string]*storagev1.CSINode
	csiDrivers map[string]*storagev1.CSIDriver
	attached   map[string]map[string]*storagev1.VolumeAttachment // by node and name

	translations map[string]translation // of volumes, by name

	reported   map[string]*storagev1.CSIStorageCapacity // by namespace/name
	capacities map[string]*capacities                   // ... by storage class; nil: to be made anew
}

func newStorage() storage {
	return storage{claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, taken: map[string]string{},
		csiNodes: map[string]*storagev1.CSINode{}, csiDrivers: map[string]*storagev1.CSIDriver{}, attached: map[string]map[string]*storagev1.VolumeAttachment{},
		translations: map[string]translation{}, reported: map[string]*storagev1.CSIStorageCapacity{}}
}

// claimsOf lists the claims that a pod uses, by name.
func claimsOf(obj *v1.Pod) (list []string) {
	for i := range obj.Spec.Volumes {
		switch v := &obj.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			list = append(list, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			list = append(list, obj.Name+"-"+v.Name) // made for it, with this name
		}
	}
	return list
}

// late is a claim that waits for its first consumer.
type late struct {
	claim *v1.PersistentVolumeClaim
	class *storagev1.StorageClass
}

// begun is the node for which a volume is being made already; "": none is.
func (w *late) begun() string { return w.claim.Annotations[volume.AnnSelectedNode] }

// claimsFor lists a pod's claims: those that have a volume, and those that wait for
// it, the smallest first, so that the larger volumes are left for the larger claims.
func (d *Driver) claimsFor(p *pod) (bound []*v1.PersistentVolumeClaim, open []late, err error) {
	for _, name := range p.volumesOf().claims {
		c := d.claims[p.obj.Namespace+"/"+name]
		if c == nil || c.DeletionTimestamp != nil {
			return nil, nil, fmt.Errorf("volume claim %s does not exist", name)
		}
		if c.Spec.VolumeName != "" {
			bound = append(bound, c)
			continue
		}
		class, err := d.classOf(c)
		if err != nil {
			return nil, nil, err
		}
		open = append(open, late{c, class})
	}
	slices.SortStableFunc(open, func(a, b late) int {
		x, y := a.claim.Spec.Resources.Requests[v1.ResourceStorage], b.claim.Spec.Resources.Requests[v1.ResourceStorage]
		return x.Cmp(y)
	})
	return bound, open, nil
}

// limitVolumes bounds nodes by where the pod's volumes are, or can be.
func (d *Driver) limitVolumes(l *fit.Look, p *pod) {
	bound, open, err := d.claimsFor(p)
	if err != nil {
		l.Never(err.Error())
		return
	}
	for _, c := range bound {
		if d.storage.volumes[c.Spec.VolumeName] == nil {
			l.Never(fmt.Sprintf("volume %s of claim %s does not exist", c.Spec.VolumeName, c.Name))
			return
		}
	}
	if len(open) == 0 {
		return
	}
	l.Open(func(name string, n *v1.Node) {
		if why := d.unserved(open, n, len(l.Pods) == 1); why != "" {
			l.Shut(name, why)
		}
	})
}

// volumeHomes lists for each of the pods that has volumes the nodes that reach them.
func (d *Driver) volumeHomes(pods []*pod) (homes [][]string) {
	for _, p := range pods {
		bound, _, err := d.claimsFor(p)
		if err != nil || len(bound) == 0 {
			continue
		}
		homes = append(homes, slices.DeleteFunc(slices.Clone(d.order), func(name string) bool {
			n := d.nodes[name]
			return n == nil || n.obj == nil || !d.reaches(bound, n.obj)
		}))
	}
	return homes
}

// reaches reports whether a node reaches the volumes of some claims.
func (d *Driver) reaches(bound []*v1.PersistentVolumeClaim, n *v1.Node) bool {
	return !slices.ContainsFunc(bound, func(c *v1.PersistentVolumeClaim) bool {
		v := d.storage.volumes[c.Spec.VolumeName]
		return v == nil || !d.reachableFrom(v, n)
	})
}

// limitHomes keeps pods where their volumes are. If all pods of a gang have some, and in places
// that have no node in common (local volumes; zones), each place takes as many of them
// as have theirs there; which those are, is settled when they are seated. Else
// all go where all the volumes can be reached.
func (d *Driver) limitHomes(l *fit.Look, pods []*pod) {
	homes := d.volumeHomes(pods)
	if len(homes) == 0 {
		return
	}
	places, count, in := map[string][]string{}, map[string]int{}, map[string]int{}
	for _, nodes := range homes {
		key := strings.Join(nodes, " ")
		places[key] = nodes
		count[key]++
	}
	apart := len(homes) == len(pods) && places[""] == nil && !slices.ContainsFunc(pods, func(p *pod) bool { return p.request != pods[0].request })
	for _, nodes := range places {
		for _, name := range nodes { // counting: the order does not matter
			in[name]++
			apart = apart && in[name] == 1
		}
	}
	l.ShutIf(itsVolumes, func(n *v1.Node) bool { return in[n.Name] == 0 || !apart && in[n.Name] < len(places) })
	if !apart || len(places) == 1 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(places)) {
		l.Group(places[key], count[key])
	}
}

// atHome reports whether a pod's volumes can be reached from a node.
func (d *Driver) atHome(p *pod, n *v1.Node) bool {
	if len(p.volumesOf().claims) == 0 {
		return true
	}
	bound, _, err := d.claimsFor(p)
	return err != nil || d.reaches(bound, n)
}

// itsVolumes is what keeps a pod off nodes that do not reach them.
const itsVolumes = "where its volumes are"

// unserved says why claims that wait for their first consumer cannot be bound where a
// node reaches them; "": they can. A volume that is being made for another node already
// is waited for, if the pod is alone: those of a gang may be made anew together.
func (d *Driver) unserved(open []late, n *v1.Node, alone bool) string {
	var not []string
	for i := range open {
		w := &open[i]
		switch at := w.begun(); {
		case at != "" && at != n.Name && alone:
			return itsVolumes
		case at != n.Name:
			if v := d.freeVolume(w.claim, n, not); v != "" {
				not = append(not, v)
				continue
			}
		}
		if w.class.Provisioner == volume.NotSupportedProvisioner || !reachable(w.class, n) {
			return itsVolumes
		}
		if !d.canMake(w, n) {
			return noCapacity
		}
	}
	return ""
}

// classOf is the storage class of a claim that waits for its first consumer.
func (d *Driver) classOf(c *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := volume.GetPersistentVolumeClaimClass(c)
	class := d.classes[name]
	if class == nil || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return nil, fmt.Errorf("volume claim %s is not bound yet", c.Name)
	}
	return class, nil
}

// reachable reports whether a class can make volumes for a node.
func reachable(class *storagev1.StorageClass, n *v1.Node) bool {
	return len(class.AllowedTopologies) == 0 || slices.ContainsFunc(class.AllowedTopologies, func(t v1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchLabelExpressions, func(r v1.TopologySelectorLabelRequirement) bool {
			v, ok := n.Labels[r.Key]
			return !ok || !slices.Contains(r.Values, v)
		})
	})
}

// freeVolume finds the smallest volume that a node can use for a claim, but none
// of some; "": there is none.
func (d *Driver) freeVolume(c *v1.PersistentVolumeClaim, n *v1.Node, not []string) string {
	var best *v1.PersistentVolume
	want := c.Spec.Resources.Requests[v1.ResourceStorage]
	sel, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
	if err != nil {
		return ""
	}
	if c.Spec.Selector == nil {
		sel = labels.Everything()
	}
	key := c.Namespace + "/" + c.Name
	for name, v := range d.storage.volumes {
		ref, has := v.Spec.ClaimRef, v.Spec.Capacity[v1.ResourceStorage]
		for1, taken := d.taken[name]
		switch {
		case slices.Contains(not, name) || taken && for1 != key || v.DeletionTimestamp != nil:
		case ref != nil && (ref.Namespace != c.Namespace || ref.Name != c.Name || ref.UID != "" && ref.UID != c.UID):
		case ref == nil && v.Status.Phase != v1.VolumeAvailable:
		case volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(c) || has.Cmp(want) < 0 || !sel.Matches(labels.Set(v.Labels)):
		case modeOf(v.Spec.VolumeMode) != modeOf(c.Spec.VolumeMode) || !offers(v.Spec.AccessModes, c.Spec.AccessModes):
		case volume.CheckNodeAffinity(v, n.Labels) != nil:
		case best == nil || smaller(v, best):
			best = v
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

func smaller(a, b *v1.PersistentVolume) bool {
	x, y := a.Spec.Capacity[v1.ResourceStorage], b.Spec.Capacity[v1.ResourceStorage]
	if c := x.Cmp(y); c != 0 {
		return c < 0
	}
	return a.Name < b.Name
}

func modeOf(m *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if m == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *m
}

func offers(has, want []v1.PersistentVolumeAccessMode) bool {
	return !slices.ContainsFunc(want, func(m v1.PersistentVolumeAccessMode) bool { return !slices.Contains(has, m) })
}

// mount is a claim that has to be bound before the pod; volume "": to one that is
// made for it.
type mount struct {
	claim, volume string
	asked         bool // its driver was asked to make it
}

// choose finds the volumes for the claims of a pod that goes to a node.
func (d *Driver) choose(p *pod, node string) (list []mount, err error) {
	n := d.nodes[node]
	if n == nil || n.obj == nil {
		return nil, nil
	}
	_, open, err := d.claimsFor(p)
	if err != nil {
		return nil, err
	}
	var not []string
	for i := range open {
		w, v := &open[i], ""
		if w.begun() != node {
			v = d.freeVolume(w.claim, n.obj, not)
		}
		if v == "" && w.class.Provisioner == volume.NotSupportedProvisioner {
			return nil, fmt.Errorf("no volume for claim %s on node %s any more", w.claim.Name, node)
		}
		if v != "" {
			not, d.taken[v] = append(not, v), w.claim.Namespace+"/"+w.claim.Name
		}
		list = append(list, mount{claim: w.claim.Name, volume: v})
	}
	return list, nil
}

// hasFree reports whether volumes of a class are there that nobody has.
func (d *Driver) hasFree(class string) bool {
	for _, v := range d.storage.volumes {
		if v.Status.Phase == v1.VolumeAvailable && volume.GetPersistentVolumeClass(v) == class {
			return true
		}
	}
	return false
}

// errNotYet says that a claim is on its way to be bound, errNotMade that its driver
// cannot make a volume for the node after all: it took back the annotation that asked
// for one.
var (
	errNotYet  = errors.New("a volume claim is not bound yet")
	errNotMade = errors.New("no volume could be made for a claim where the pod was to go")
)

// provide has the claims of a pod bound; errNotYet: ask again in a while.
func (d *Driver) provide(ctx context.Context, obj *v1.Pod, node string, mounts []mount) error {
	wait := false
	for i := range mounts {
		m := &mounts[i]
		c, err := d.opt.Client.CoreV1().PersistentVolumeClaims(obj.Namespace).Get(ctx, m.claim, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case c.Spec.VolumeName != "" && c.Status.Phase == v1.ClaimBound:
			continue
		case m.volume != "":
			err = d.claim(ctx, c, m.volume)
		case m.asked && c.Annotations[volume.AnnSelectedNode] == "":
			return fmt.Errorf("%w: %s", errNotMade, m.claim)
		case c.Annotations[volume.AnnSelectedNode] != node:
			m.asked = true
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, c.UID, volume.AnnSelectedNode, node)
			_, err = d.opt.Client.CoreV1().PersistentVolumeClaims(obj.Namespace).Patch(ctx, m.claim, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			return err
		}
		wait = true
	}
	if wait {
		return errNotYet
	}
	return nil
}

// claim gives a volume to a claim; the controller of volumes does the rest.
func (d *Driver) claim(ctx context.Context, c *v1.PersistentVolumeClaim, name string) error {
	v, err := d.opt.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ref := v.Spec.ClaimRef; ref != nil && ref.UID != "" {
		if ref.UID == c.UID {
			return nil
		}
		return apierrors.NewConflict(v1.Resource("persistentvolumes"), name, fmt.Errorf("it is %s/%s's now", ref.Namespace, ref.Name))
	}
	v.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
	if v.Annotations == nil {
		v.Annotations = map[string]string{}
	}
	v.Annotations[volume.AnnBoundByController] = "yes"
	_, err = d.opt.Client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
	return err
}

// mountTries bounds how long a pod waits for its claims, at half a second each:
// five minutes.
const mountTries = 600

// mounted has the claims bound, then goes on; done hears of what cannot be.
func (d *Driver) mounted(ctx context.Context, obj *v1.Pod, node string, mounts []mount, try int, then func(context.Context), failed func(error)) {
	err := error(nil)
	if len(mounts) > 0 {
		err = d.provide(ctx, obj, node, mounts)
	}
	switch {
	case err == nil:
		then(ctx)
	case try+1 < mountTries && (errors.Is(err, errNotYet) || !definite(err) && !errors.Is(err, errNotMade)):
		time.AfterFunc(500*time.Millisecond, func() {
			select {
			case d.work <- func(ctx context.Context) { d.mounted(ctx, obj, node, mounts, try+1, then, failed) }:
			case <-ctx.Done():
				failed(ctx.Err())
			}
		})
	default:
		failed(err)
	}
}
