package volumes

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/retry"
)

// Claims that wait for their first consumer are bound before the pod is: to the volumes that were chosen for them, or
// to those that their drivers make where it goes.

// errNotYet says that a claim is on its way to be bound, errNotMade that its driver cannot make a volume for the node
// after all: it took back the annotation that asked for one.
var (
	errNotYet  = errors.New("a volume claim is not bound yet")
	errNotMade = errors.New("no volume could be made for a claim where the pod was to go")
)

// Again reports whether claims that could not be bound may be later.
func Again(err error) bool {
	return errors.Is(err, errNotYet) || !retry.Definite(err) && !errors.Is(err, errNotMade)
}

// Writer has claims bound, on any goroutine.
type Writer struct{ Client kubeapi.Interface }

// Provide has the claims of a pod bound that goes to a node. Where it fails, Again says whether it may succeed later.
func (w Writer) Provide(ctx context.Context, obj *v1.Pod, node string, mounts []Mount) error {
	wait := false
	for i := range mounts {
		m := &mounts[i]
		c, err := w.Client.CoreV1().PersistentVolumeClaims(obj.Namespace).Get(ctx, m.Claim, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case c.Spec.VolumeName != "" && c.Status.Phase == v1.ClaimBound:
			continue
		case m.Volume != "":
			err = w.bindVolume(ctx, c, m.Volume)
		case m.Asked && c.Annotations[SelectedNode] == "":
			return fmt.Errorf("%w: %s", errNotMade, m.Claim)
		case c.Annotations[SelectedNode] != node:
			m.Asked = true
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, c.UID, SelectedNode,
				node)
			_, err = w.Client.CoreV1().PersistentVolumeClaims(obj.Namespace).Patch(ctx, m.Claim,
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
func (w Writer) bindVolume(ctx context.Context, c *v1.PersistentVolumeClaim, name string) error {
	v, err := w.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
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
	v.Annotations[boundByController] = "yes"
	_, err = w.Client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
	return err
}
