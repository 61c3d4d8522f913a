package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-gpu/muster/kube/fit/volumes"
	"github.com/muster-gpu/muster/kube/retry"
)

// Claims that wait for their first consumer are bound before the pod is: to the volumes that were chosen for them
// (fit/volumes), or to those that their drivers make where it goes.

// errNotYet says that a claim is on its way to be bound, errNotMade that its driver
// cannot make a volume for the node after all: it took back the annotation that asked
// for one.
var (
	errNotYet  = errors.New("a volume claim is not bound yet")
	errNotMade = errors.New("no volume could be made for a claim where the pod was to go")
)

// provide has the claims of a pod bound; errNotYet: ask again in a while.
func (d *Driver) provide(ctx context.Context, obj *v1.Pod, node string, mounts []volumes.Mount) error {
	wait := false
	for i := range mounts {
		m := &mounts[i]
		c, err := d.opt.Client.CoreV1().PersistentVolumeClaims(obj.Namespace).Get(ctx, m.Claim, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case c.Spec.VolumeName != "" && c.Status.Phase == v1.ClaimBound:
			continue
		case m.Volume != "":
			err = d.bindVolume(ctx, c, m.Volume)
		case m.Asked && c.Annotations[volume.AnnSelectedNode] == "":
			return fmt.Errorf("%w: %s", errNotMade, m.Claim)
		case c.Annotations[volume.AnnSelectedNode] != node:
			m.Asked = true
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, c.UID, volume.AnnSelectedNode,
				node)
			_, err = d.opt.Client.CoreV1().PersistentVolumeClaims(obj.Namespace).Patch(ctx, m.Claim,
				types.MergePatchType, patch, metav1.PatchOptions{})
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

// bindVolume gives a volume to a claim; the controller of volumes does the rest.
func (d *Driver) bindVolume(ctx context.Context, c *v1.PersistentVolumeClaim, name string) error {
	v, err := d.opt.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ref := v.Spec.ClaimRef; ref != nil && ref.UID != "" {
		if ref.UID == c.UID {
			return nil
		}
		return apierrors.NewConflict(v1.Resource("persistentvolumes"), name,
			fmt.Errorf("it is %s/%s's now", ref.Namespace, ref.Name))
	}
	v.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace,
		Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
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
func (d *Driver) mounted(ctx context.Context, obj *v1.Pod, node string, mounts []volumes.Mount, try int,
	then func(context.Context), failed func(error)) {
	err := error(nil)
	if len(mounts) > 0 {
		err = d.provide(ctx, obj, node, mounts)
	}
	switch {
	case err == nil:
		then(ctx)
	case try+1 < mountTries && (errors.Is(err, errNotYet) || !retry.Definite(err) && !errors.Is(err, errNotMade)):
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
