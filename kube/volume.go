package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
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
}

func newStorage() storage {
	return storage{claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, taken: map[string]string{},
		csiNodes: map[string]*storagev1.CSINode{}, csiDrivers: map[string]*storagev1.CSIDriver{}, attached: map[string]map[string]*storagev1.VolumeAttachment{},
		translations: map[string]translation{}}
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

// volumes adds where the pod's volumes are, or can be.
func (l *looker) volumes(p *pod) {
	for _, name := range p.needs.claims {
		key := p.obj.Namespace + "/" + name
		c := l.d.claims[key]
		if c == nil || c.DeletionTimestamp != nil {
			l.why = fmt.Sprintf("volume claim %s does not exist", name)
			return
		}
		if c.Spec.VolumeName != "" {
			v := l.d.storage.volumes[c.Spec.VolumeName]
			if v == nil {
				l.why = fmt.Sprintf("volume %s of claim %s does not exist", c.Spec.VolumeName, name)
				return
			}
			l.shutIf("where its volumes are", func(n *v1.Node) bool { return !l.d.reachableFrom(v, n) })
			continue
		}
		class, err := l.d.classOf(c)
		if err != nil {
			l.why = err.Error()
			return
		}
		if class.Provisioner == volume.NotSupportedProvisioner {
			l.shutIf("where its volumes are", func(n *v1.Node) bool { return l.d.freeVolume(c, n, nil) == "" })
			continue
		}
		l.shutIf("where its volumes are", func(n *v1.Node) bool { return !reachable(class, n) && l.d.freeVolume(c, n, nil) == "" })
	}
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
type mount struct{ claim, volume string }

// choose finds the volumes for the claims of a pod that goes to a node.
func (d *Driver) choose(p *pod, node string) (list []mount, err error) {
	n := d.nodes[node]
	if p.needs == nil || n == nil || n.obj == nil {
		return nil, nil
	}
	var not []string
	for _, name := range p.needs.claims {
		key := p.obj.Namespace + "/" + name
		c := d.claims[key]
		if c == nil {
			return nil, fmt.Errorf("volume claim %s does not exist", name)
		}
		if c.Spec.VolumeName != "" {
			continue
		}
		class, err := d.classOf(c)
		if err != nil {
			return nil, err
		}
		v := d.freeVolume(c, n.obj, not)
		if v == "" && class.Provisioner == volume.NotSupportedProvisioner {
			return nil, fmt.Errorf("no volume for claim %s on node %s any more", name, node)
		}
		if v != "" {
			not, d.taken[v] = append(not, v), key
		}
		list = append(list, mount{name, v})
	}
	return list, nil
}

// errNotYet says that a claim is on its way to be bound.
var errNotYet = errors.New("a volume claim is not bound yet")

// provide has the claims of a pod bound; errNotYet: ask again in a while.
func (d *Driver) provide(ctx context.Context, obj *v1.Pod, node string, mounts []mount) error {
	wait := false
	for _, m := range mounts {
		c, err := d.opt.Client.CoreV1().PersistentVolumeClaims(obj.Namespace).Get(ctx, m.claim, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case c.Spec.VolumeName != "" && c.Status.Phase == v1.ClaimBound:
			continue
		case m.volume != "":
			err = d.claim(ctx, c, m.volume)
		case c.Annotations[volume.AnnSelectedNode] != node:
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
	case try+1 < mountTries && (errors.Is(err, errNotYet) || !definite(err)):
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
