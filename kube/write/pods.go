package write

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/fit/volumes"
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/retry"
)

// Binding is a pod that goes to a node.
type Binding struct {
	Pod    *v1.Pod // as it was seen
	Node   string
	Notes  map[string]string // annotations that it gets
	Claims []claims.Given    // devices that were chosen for it
	Mounts []volumes.Mount   // ... and volumes
	// Reserved hears, on the loop, of claims as they are once devices are reserved in them; Done what became of the
	// whole, nil: the pod is bound.
	Reserved func([]*resourceapi.ResourceClaim)
	Done     func(error)
}

// mountTries bounds how long a pod waits for its volume claims, at half a second each: five minutes.
const mountTries = 600

// Bind binds a pod once its volumes are there and its devices reserved.
func (w *Writer) Bind(b *Binding) { w.Do(func(ctx context.Context) { w.mount(ctx, b, 0) }) }

// mount has the volume claims of a pod bound, then goes on.
func (w *Writer) mount(ctx context.Context, b *Binding, try int) {
	err := volumes.Writer{Client: w.opt.Client}.Provide(ctx, b.Pod, b.Node, b.Mounts)
	switch {
	case err == nil:
		w.bind(ctx, b)
	case try+1 < mountTries && volumes.Again(err):
		again := func(ctx context.Context) { w.mount(ctx, b, try+1) }
		w.later(ctx, 500*time.Millisecond, again, func() { w.done(b, ctx.Err()) })
	default:
		w.done(b, err)
	}
}

func (w *Writer) done(b *Binding, err error) { w.opt.Loop(func() { b.Done(err) }) }

func (w *Writer) bind(ctx context.Context, b *Binding) {
	written, err := w.claims().Reserve(ctx, b.Pod, b.Claims)
	if len(written) > 0 {
		w.opt.Loop(func() { b.Reserved(written) })
	}
	if err == nil {
		w.Crash("kube-binding")
		err = w.bindNow(ctx, b)
		w.Crash("kube-bound")
	}
	w.done(b, err)
}

// bindNow binds a pod, and tries again what may be a passing trouble.
func (w *Writer) bindNow(ctx context.Context, b *Binding) error {
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: b.Pod.Namespace, Name: b.Pod.Name, UID: b.Pod.UID,
		Annotations: b.Notes}, Target: v1.ObjectReference{Kind: "Node", Name: b.Node}}
	for try := 0; ; try++ {
		err := w.opt.Client.CoreV1().Pods(b.Pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err):
			if bound, open := w.conflict(ctx, b); bound {
				return nil
			} else if !open {
				return err
			}
		case retry.Definite(err):
			return err
		}
		if try+1 == retry.Tries || !retry.Pause(ctx, min(100*time.Millisecond<<try, 10*time.Second)) {
			return err
		}
	}
}

// conflict looks what is behind a conflict. It may be our own success, when no answer came of it; and the API server
// calls it a conflict, too, when its store failed: then the pod is still open.
func (w *Writer) conflict(ctx context.Context, b *Binding) (bound, open bool) {
	now, err := w.opt.Client.CoreV1().Pods(b.Pod.Namespace).Get(ctx, b.Pod.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return false, !retry.Definite(err)
	case now.UID != b.Pod.UID:
		return false, false
	case now.Spec.NodeName != "":
		return now.Spec.NodeName == b.Node, false
	}
	return false, now.DeletionTimestamp == nil && len(now.Spec.SchedulingGates) == 0
}

// TakeBack takes back devices that are reserved for a pod that could not be bound, until that is done; done hears, on
// the loop, of the claims as they are then.
func (w *Writer) TakeBack(pod *v1.Pod, list []claims.Given, done func([]*resourceapi.ResourceClaim)) {
	w.Do(func(ctx context.Context) { w.takeBack(ctx, pod, list, done, 0) })
}

func (w *Writer) takeBack(ctx context.Context, pod *v1.Pod, list []claims.Given,
	done func([]*resourceapi.ResourceClaim), try int) {
	var written []*resourceapi.ResourceClaim
	now, err := w.opt.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case err == nil && now.UID == pod.UID && now.Spec.NodeName != "": // it was bound after all
	case err == nil || apierrors.IsNotFound(err):
		w.Crash("kube-releasing")
		written, err = w.claims().Unreserve(ctx, pod, list)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		if try%10 == 0 && ctx.Err() == nil {
			w.opt.Log.Warn("devices cannot be taken back yet", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
		again := func(ctx context.Context) { w.takeBack(ctx, pod, list, done, try+1) }
		w.later(ctx, min(100*time.Millisecond<<min(try, 8), 10*time.Second), again, func() {})
		return
	}
	w.opt.Loop(func() { done(written) })
}

// Departure is a request for a pod to go. It holds for the pod as it was seen: the API server refuses it if the pod has
// changed since.
type Departure struct {
	Pod     *v1.Pod
	Seconds int64 // that it has to end
	Force   bool  // its node is gone: nothing else will say that it ended
	Evict   bool  // a disruption budget may refuse it
}

// Remove asks once for a pod to go, on the worker that calls it.
func (w *Writer) Remove(ctx context.Context, l *Departure) error {
	pods := w.opt.Client.CoreV1().Pods(l.Pod.Namespace)
	if l.Evict {
		w.Crash("kube-evicting")
		return pods.EvictV1(ctx,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: l.Pod.Namespace, Name: l.Pod.Name},
				DeleteOptions: patch.DeleteAsSeen(l.Pod, l.Seconds)})
	}
	now, err := pods.Patch(ctx, l.Pod.Name, types.StrategicMergePatchType,
		patch.Disrupted(l.Pod, l.Force, w.opt.Now()), metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	return pods.Delete(ctx, l.Pod.Name, *patch.DeleteAsSeen(now, l.Seconds))
}

// After is how long after so many tries it is asked again for a pod to go.
func (l *Departure) After(err error, try int) time.Duration {
	if apierrors.IsConflict(err) {
		return min(100*time.Millisecond<<min(try, 8), 10*time.Second)
	}
	return min(time.Second<<min(try, 5), 30*time.Second)
}

// Annotate writes annotations to a pod: by its status, as it is how a scheduler is permitted to write to pods that
// wait. failed hears, beside the loop, why it could not.
func (w *Writer) Annotate(pod *v1.Pod, notes map[string]string, failed func(error)) {
	change := patch.JSON(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": notes}})
	w.Do(func(ctx context.Context) {
		if _, err := w.opt.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, change,
			metav1.PatchOptions{}, "status"); err != nil {
			failed(err)
		}
	})
}
