package services

import (
	"context"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// watching is the watch of one kind.
type watching struct {
	in    cache.SharedIndexInformer
	stop  context.CancelFunc
	ended atomic.Bool // its API is not served any more
}

// look starts to watch the kinds that are served and not watched yet, and ends to watch those that are not.
func (r *Room) look(ctx context.Context) error {
	for k, w := range r.watched {
		switch {
		case w.ended.Load():
			w.stop()
			delete(r.watched, k)
		case !w.in.HasSynced():
			r.opt.Log.Warn("services wait, because a kind is not listed yet", "kind", k.name)
		}
	}
	groups, err := r.opt.Client.Discovery().ServerGroups()
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if r.watched[k] != nil {
			continue
		}
		for i := range groups.Groups {
			if g := &groups.Groups[i]; g.Name == k.group {
				if version := best(k.versions, g.Versions); version != "" {
					r.watch(ctx, k, version)
				}
			}
		}
	}
	return nil
}

func best(versions []string, served []metav1.GroupVersionForDiscovery) string {
	for _, v := range versions {
		if slices.ContainsFunc(served, func(s metav1.GroupVersionForDiscovery) bool { return s.Version == v }) {
			return v
		}
	}
	return ""
}

// watch begins to watch a kind, if it may be listed: a group may be served without it.
func (r *Room) watch(ctx context.Context, k *kind, version string) {
	gvr := k.resourceIn(version)
	if _, err := r.opt.Dynamic.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		if !apierrors.IsNotFound(err) && r.refused[k] != err.Error() {
			r.refused[k] = err.Error()
			r.opt.Log.Warn("services: a kind is not read", "kind", k.name, "error", err)
		}
		return
	}
	delete(r.refused, k)
	ctx, stop := context.WithCancel(ctx)
	w := &watching{stop: stop, in: kubeapi.InformOf(r.opt.Dynamic, gvr, nil)}
	wake := func(old, obj any) {
		o, ok := obj.(*object)
		if was, had := old.(*object); ok && (!had || was.Annotations[Annotation] != o.Annotations[Annotation] ||
			was.Annotations[AnnotationVariant] != o.Annotations[AnnotationVariant]) {
			r.wake()
		}
	}
	_, err := w.in.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { wake(nil, obj) },
		UpdateFunc: wake, DeleteFunc: func(any) { r.wake() }})
	if err == nil {
		err = w.in.SetTransform(k.trim(version))
	}
	if err == nil {
		err = w.in.SetWatchErrorHandlerWithContext(func(ctx context.Context, f *cache.Reflector, err error) {
			if cache.DefaultWatchErrorHandler(ctx, f, err); apierrors.IsNotFound(err) {
				w.ended.Store(true)
			}
		})
	}
	if err != nil {
		panic(err) // they fail only on an informer that runs
	}
	r.watched[k] = w
	r.running.Go(func() { w.in.RunWithContext(ctx) })
}

// synced reports whether all that is watched was listed.
func (r *Room) synced() bool {
	for _, w := range r.watched {
		if !w.in.HasSynced() && !w.ended.Load() {
			return false
		}
	}
	return true
}

// all lists the objects of a kind.
func (r *Room) all(k *kind) (list []*object) {
	w := r.watched[k]
	if w == nil {
		return nil
	}
	for _, obj := range w.in.GetStore().List() {
		if o, ok := obj.(*object); ok && o.DeletionTimestamp == nil {
			list = append(list, o)
		}
	}
	return list
}

// find finds an object by its kind and name; nil: it is not there.
func (r *Room) find(k *kind, namespace, name string) *object {
	w := r.watched[k]
	if w == nil {
		return nil
	}
	obj, found, err := w.in.GetStore().GetByKey(namespace + "/" + name)
	if o, ok := obj.(*object); err == nil && found && ok && o.DeletionTimestamp == nil {
		return o
	}
	return nil
}
