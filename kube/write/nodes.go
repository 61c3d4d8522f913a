package write

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/retry"
)

// PatchNode writes on a node if nothing forbids it; check, which may be nil, is asked just before, and point names the
// write to tests (Crash). done hears, on the loop, what became of it.
func (w *Writer) PatchNode(name string, change []byte, point string, check func(context.Context) error,
	done func(error)) {
	w.Do(func(ctx context.Context) {
		err := error(nil)
		if check != nil {
			err = check(ctx)
		}
		w.Crash(point)
		if err == nil {
			_, err = w.opt.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{})
		}
		w.opt.Loop(func() { done(err) })
	})
}

// Unused asks the API server itself whether none of the pods on a node, which is cordoned, has something of it: what is
// watched may lag behind.
func (w *Writer) Unused(ctx context.Context, node string, has func(*v1.Pod) bool) error {
	list, err := w.opt.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed && has(p) {
			return fmt.Errorf("pod %s/%s has a GPU there", p.Namespace, p.Name)
		}
	}
	return nil
}

// Load reads a ConfigMap, which question names in the log; nil: there is none.
func (w *Writer) Load(ctx context.Context, namespace, name, question string) (data map[string]string, err error) {
	err = retry.UntilAnswered(ctx, w.opt.Log, question, func(ctx context.Context) error {
		m, err := w.opt.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			data = m.Data
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return data, err
}

// Keep writes a ConfigMap; done hears, on the loop, what became of it.
func (w *Writer) Keep(namespace, name string, data map[string]string, done func(error)) {
	w.Do(func(ctx context.Context) {
		list := w.opt.Client.CoreV1().ConfigMaps(namespace)
		m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: data}
		_, err := list.Update(ctx, m, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = list.Create(ctx, m, metav1.CreateOptions{})
		}
		if ctx.Err() != nil {
			err = nil
		}
		w.opt.Loop(func() { done(err) })
	})
}
