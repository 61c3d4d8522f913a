// Package watch sees what is in the cluster: informers, whose objects are booked on the scheduler's loop, one after the
// other.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/fit/volumes"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/retry"
)

// Options say by what the cluster is seen.
type Options struct {
	Client  kubeapi.Interface
	Dynamic dynamic.Interface // nil: there are neither Queue objects nor kinds that not every cluster has
	Rescan  time.Duration     // how often it is looked which of these are served; 0: every minute
	Maps    []mig.Rule        // whose ConfigMaps are watched
	Log     *slog.Logger
	Loop    func(func()) // has something done on the loop, in the order in which it was put
	Go      func(func()) // has something run beside it until the context ends
}

// On is what is done on the loop with objects of a type. An object that is not the one which had its name before is
// gone first.
type On[T any] struct{ Changed, Gone func(T) }

// Handlers are what is done with what is seen.
type Handlers struct {
	Nodes      On[*v1.Node]
	Pods       On[*v1.Pod]
	Jobs       On[*batchv1.Job]
	Namespaces On[*v1.Namespace]
	Maps       On[*v1.ConfigMap]
	Queues     On[*unstructured.Unstructured]
	Volumes    On[any] // claims, volumes and all that says where these are, or can be
	Devices    On[any] // device classes, resource slices and resource claims
	Served     func()  // is called before, and not on the loop, where the API server has such
	// Object is what makes gangs, as it is now; nil: it is gone. Readable says whether the objects of a kind can be
	// known.
	Object   func(gangs.Key, *unstructured.Unstructured)
	Readable func(kind *gangs.Kind, so bool)
}

// watcher sees the cluster.
type watcher struct {
	Options
	on *Handlers
}

// Run starts the informers and returns when all that is there was given to the loop. A relist reaches the loop as the
// differences that it found. What makes gangs comes before the pods, so that nothing that is found bound is taken for
// what it is not.
func Run(ctx context.Context, opt Options, on *Handlers) error {
	w := &watcher{opt, on}
	s := &kubeapi.Informers{}
	w.endWith(ctx, s)
	core, storage, all := w.Client.CoreV1(), w.Client.StorageV1(), v1.NamespaceAll
	list := []watched{
		watches(w, inform(w, s, core.Nodes(), &v1.Node{}), on.Nodes),
		watches(w, inform(w, s, w.Client.BatchV1().Jobs(all), &batchv1.Job{}), on.Jobs),
		watches(w, inform(w, s, core.Namespaces(), &v1.Namespace{}), on.Namespaces),
	}
	for _, in := range []cache.SharedIndexInformer{
		inform(w, s, core.PersistentVolumeClaims(all), &v1.PersistentVolumeClaim{}),
		inform(w, s, core.PersistentVolumes(), &v1.PersistentVolume{}),
		inform(w, s, storage.StorageClasses(), &storagev1.StorageClass{}),
		inform(w, s, storage.CSINodes(), &storagev1.CSINode{}),
		inform(w, s, storage.CSIDrivers(), &storagev1.CSIDriver{}),
		inform(w, s, storage.CSIStorageCapacities(all), &storagev1.CSIStorageCapacity{}),
		inform(w, s, storage.VolumeAttachments(), &storagev1.VolumeAttachment{}),
	} {
		list = append(list, differing(watches(w, in, on.Volumes)))
	}
	if err := await(ctx, s, list); err != nil {
		return err
	}
	if err := w.maps(ctx); err != nil {
		return err
	}
	if err := w.devices(ctx, s); err != nil {
		return err
	}
	if err := w.kinds(ctx); err != nil {
		return err
	}
	queues, err := w.queues(ctx)
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), queues...) {
		return errors.Join(ctx.Err(), fmt.Errorf("the cluster's queues could not be listed"))
	}
	return await(ctx, s, []watched{watches(w, inform(w, s, core.Pods(all), &v1.Pod{}), on.Pods)})
}

// inform adds an informer of what a client lists, without what is not read here.
func inform[L runtime.Object](w *watcher, to *kubeapi.Informers, client kubeapi.Lister[L], like runtime.Object,
) cache.SharedIndexInformer {
	return to.Add(kubeapi.Inform(w.Client, client, like, current), trim)
}

// endWith waits beside the loop for informers to end with the context.
func (w *watcher) endWith(ctx context.Context, s *kubeapi.Informers) {
	w.Go(func() {
		<-ctx.Done()
		s.Wait()
	})
}

// rescan is how often it is looked what is served.
func (w *watcher) rescan() time.Duration {
	if w.Rescan == 0 {
		return time.Minute
	}
	return w.Rescan
}

// watched is an informer and what is done with what it sees.
type watched struct {
	in      cache.SharedIndexInformer
	changed func(old, obj any)
	gone    func(obj any)
}

// watches is an informer whose objects are looked at on the loop.
func watches[T any](w *watcher, in cache.SharedIndexInformer, on On[T]) watched {
	put := func(obj any, f func(T)) {
		if o, ok := obj.(T); ok && f != nil {
			w.Loop(func() { f(o) })
		}
	}
	return watched{in, func(_, obj any) { put(obj, on.Changed) }, func(obj any) { put(obj, on.Gone) }}
}

// differing leaves out that a storage capacity is written again as it was.
func differing(w watched) watched {
	changed := w.changed
	w.changed = func(old, obj any) {
		was, _ := old.(*storagev1.CSIStorageCapacity)
		if c, ok := obj.(*storagev1.CSIStorageCapacity); !ok || was == nil || !volumes.SameCapacity(was, c) {
			changed(old, obj)
		}
	}
	return w
}

// handler passes on what an informer sees. An object that is not the one which had its name before comes as one that
// changed, if the end of that was missed: a relist knows names only.
func (w *watched) handler() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { w.changed(nil, obj) },
		UpdateFunc: func(old, obj any) {
			if another(old, obj) {
				w.gone(old)
				old = nil
			}
			w.changed(old, obj)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			w.gone(obj)
		},
	}
}

// await starts informers and waits until all that is there was given to the loop.
func await(ctx context.Context, s *kubeapi.Informers, these []watched) error {
	var synced []cache.InformerSynced
	for _, w := range these {
		reg, err := w.in.AddEventHandler(w.handler())
		if err != nil {
			return err
		}
		synced = append(synced, reg.HasSynced)
	}
	s.Start(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return errors.Join(ctx.Err(), fmt.Errorf("the cluster's pods, nodes and jobs could not be listed"))
	}
	return nil
}

// current has a list show all that was written before it was asked for. A client takes what a cache of an API server
// has otherwise, and what a scheduler before this one bound last may be missing there.
func current(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

// another reports whether an object is not the one that had its name before.
func another(old, obj any) bool {
	a, ok := old.(metav1.Object)
	b, is := obj.(metav1.Object)
	return ok && is && a.GetUID() != b.GetUID()
}

// trim drops what is not read here: most of an object's bytes.
func trim(obj any) (any, error) {
	if m, ok := obj.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// devices watches claims and devices, where the API server has them.
func (w *watcher) devices(ctx context.Context, s *kubeapi.Informers) error {
	err := retry.UntilAnswered(ctx, w.Log, "are there resource claims?", func(context.Context) error {
		_, err := w.Client.Discovery().ServerResourcesForGroupVersion(resourceapi.SchemeGroupVersion.String())
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("whether the API server has resource claims: %w", err)
	}
	w.on.Served()
	r := w.Client.ResourceV1()
	return await(ctx, s, []watched{
		watches(w, inform(w, s, r.DeviceClasses(), &resourceapi.DeviceClass{}), w.on.Devices),
		watches(w, inform(w, s, r.ResourceSlices(), &resourceapi.ResourceSlice{}), w.on.Devices),
		watches(w, inform(w, s, r.ResourceClaims(v1.NamespaceAll), &resourceapi.ResourceClaim{}), w.on.Devices),
	})
}

// maps watches the ConfigMaps of the rules by which nodes are partitioned. One that may not be read is said once, and
// scheduling goes on.
func (w *watcher) maps(ctx context.Context) error {
	var seen []string
	for i := range w.Maps {
		r := &w.Maps[i]
		if slices.Contains(seen, r.Key()) {
			continue
		}
		seen = append(seen, r.Key())
		s := &kubeapi.Informers{}
		w.endWith(ctx, s)
		in := s.Add(kubeapi.Inform(w.Client, w.Client.CoreV1().ConfigMaps(r.Space), &v1.ConfigMap{},
			func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + r.Map }), trim)
		said := false
		err := in.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			if !said && apierrors.IsForbidden(err) {
				said = true
				w.Log.Error("what nodes can be partitioned into may not be read: none is", "configmap", r.Key(),
					"error", err)
			}
		})
		if err != nil {
			return err
		}
		seen := watches(w, in, w.on.Maps)
		if _, err := in.AddEventHandler(seen.handler()); err != nil {
			return err
		}
		s.Start(ctx)
	}
	return nil
}
