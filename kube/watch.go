package kube

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/kube/fit/volumes"
)

// watch starts the informers and returns when all that is there is in the
// inbox. A relist reaches us as the differences that it found.
func (d *Driver) watch(ctx context.Context) error {
	f := informers.NewSharedInformerFactoryWithOptions(d.opt.Client, 0, informers.WithTransform(trim),
		informers.WithTweakListOptions(current))
	d.workers.Go(func() {
		<-ctx.Done()
		f.Shutdown()
	})
	// What makes gangs comes before the pods, so that nothing that is found bound
	// is taken for what it is not.
	err := watchThese(ctx, f, []watched{
		watches(d, f.Core().V1().Nodes().Informer(), d.nodeChanged, func(n *v1.Node) { d.nodeGone(n.Name) }),
		watches(d, f.Batch().V1().Jobs().Informer(), d.jobChanged, d.jobGone),
		watches(d, f.Core().V1().Namespaces().Informer(), d.spaceChanged, func(*v1.Namespace) {}),
		{f.Core().V1().PersistentVolumeClaims().Informer(), d.onVolume, d.onVolumeGone},
		{f.Core().V1().PersistentVolumes().Informer(), d.onVolume, d.onVolumeGone},
		{f.Storage().V1().StorageClasses().Informer(), d.onVolume, d.onVolumeGone},
		{f.Storage().V1().CSINodes().Informer(), d.onVolume, d.onVolumeGone},
		{f.Storage().V1().CSIDrivers().Informer(), d.onVolume, d.onVolumeGone},
		{f.Storage().V1().CSIStorageCapacities().Informer(), d.onVolume, d.onVolumeGone},
		{f.Storage().V1().VolumeAttachments().Informer(), d.onVolume, d.onVolumeGone},
	})
	if err != nil {
		return err
	}
	if err := d.watchMIG(ctx); err != nil {
		return err
	}
	if err := d.watchDevices(ctx, f); err != nil {
		return err
	}
	if err := d.watchKinds(ctx); err != nil {
		return err
	}
	queues, err := d.watchQueues(ctx)
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), queues...) {
		return errors.Join(ctx.Err(), fmt.Errorf("the cluster's queues could not be listed"))
	}
	return watchThese(ctx, f, []watched{watches(d, f.Core().V1().Pods().Informer(), d.podChanged, d.podGone)})
}

// watched is an informer and what is done with what it sees.
type watched struct {
	in      cache.SharedIndexInformer
	changed func(old, obj any)
	gone    func(obj any)
}

// watches is an informer whose objects are looked at on the loop.
func watches[T any](d *Driver, in cache.SharedIndexInformer, changed, gone func(T)) watched {
	put := func(obj any, f func(T)) {
		if o, ok := obj.(T); ok {
			d.inbox.Put(func() { f(o) })
		}
	}
	return watched{in, func(_, obj any) { put(obj, changed) }, func(obj any) { put(obj, gone) }}
}

// handler passes on what an informer sees. An object that is not the one which had
// its name before comes as one that changed, if the end of that was missed: a
// relist knows names only.
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

// watchThese starts informers and waits until all that is there is in the inbox.
func watchThese(ctx context.Context, f informers.SharedInformerFactory, these []watched) error {
	var synced []cache.InformerSynced
	for _, w := range these {
		reg, err := w.in.AddEventHandler(w.handler())
		if err != nil {
			return err
		}
		synced = append(synced, reg.HasSynced)
	}
	f.Start(ctx.Done())
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

func (d *Driver) spaceChanged(s *v1.Namespace) {
	if d.nodes.World.SetSpace(s.Name, s.Labels) {
		d.moves++
	}
}

// onVolume books what says where volumes are, or can be.
func (d *Driver) onVolume(old, obj any) {
	was, _ := old.(*storagev1.CSIStorageCapacity)
	if c, ok := obj.(*storagev1.CSIStorageCapacity); ok && was != nil && volumes.SameCapacity(was, c) {
		return
	}
	d.inbox.Put(func() {
		d.volumes.Changed(obj)
		d.moves++
	})
}

func (d *Driver) onVolumeGone(obj any) {
	d.inbox.Put(func() {
		d.volumes.Gone(obj)
		d.moves++
	})
}
