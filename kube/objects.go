package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// objectKind is a kind of object that says something about gangs. Its objects
// are watched where its API is served and may be read.
type objectKind struct {
	group, kind, resource string
	versions              []string // that this package can read, the best first
}

// objectKinds are all of them.
var objectKinds = []*objectKind{podGroupKind, volcanoKind, kaiKind, localQueueKind, priorityKind, kueuePriorityKind,
	jobSetKind, trainJobKind, lwsKind, pyTorchKind, tfKind, mpiKind, xgbKind, paddleKind, jaxKind, rayClusterKind, rayJobKind, rayServiceKind}

func (k *objectKind) String() string { return k.resource + "." + k.group }

// in is the key of an object of this kind.
func (k *objectKind) in(namespace, name string) objKey { return objKey{k, namespace, name} }

// kindOf finds the kind of a reference to an owner; nil: it is not watched.
func kindOf(ref *metav1.OwnerReference) *objectKind {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	for _, k := range objectKinds {
		if k.group == gv.Group && k.kind == ref.Kind {
			return k
		}
	}
	return nil
}

// objKey names an object; namespace is empty for one that has none.
type objKey struct {
	kind            *objectKind
	namespace, name string
}

func (k objKey) String() string {
	if k.namespace == "" {
		return k.kind.kind + " " + k.name
	}
	return k.kind.kind + " " + k.namespace + "/" + k.name
}

// use remembers that a gang looked at an object.
func (d *Driver) use(g *gang, key objKey) {
	if g.uses == nil {
		g.uses = map[objKey]bool{}
	}
	g.uses[key] = true
	if d.uses[key] == nil {
		d.uses[key] = map[*gang]bool{}
	}
	d.uses[key][g] = true
}

// object finds an object that a gang depends on. It is an error if it should be
// there and is not; nil without one: nobody can know.
func (d *Driver) object(g *gang, key objKey) (*unstructured.Unstructured, error) {
	d.use(g, key)
	o := d.objects[key]
	if o == nil && d.readable[key.kind] {
		return nil, fmt.Errorf("%s is not there", key)
	}
	return o, nil
}

// whole asks for an object without which nothing can be said.
func (d *Driver) whole(g *gang, key objKey) (*unstructured.Unstructured, error) {
	o, err := d.object(g, key)
	if o == nil && err == nil {
		err = fmt.Errorf("%s cannot be read: %s is not served here, or Muster may not list it", key, key.kind)
	}
	return o, err
}

// objectChanged books an object as it is now, and what depends on it looks again.
func (d *Driver) objectChanged(key objKey, o *unstructured.Unstructured) {
	if d.objects[key] = o; o == nil {
		delete(d.objects, key)
	}
	for g := range d.uses[key] {
		d.regroup(g)
	}
}

// kindReadable books whether the objects of a kind can be known.
func (d *Driver) kindReadable(k *objectKind, so bool) {
	if d.readable[k] = so; so {
		return
	}
	for key := range d.objects {
		if key.kind == k {
			d.objectChanged(key, nil)
		}
	}
}

// kindWatch watches the kinds that are served; one goroutine has it.
type kindWatch struct {
	d       *Driver
	running map[*objectKind]*watching
	said    map[*objectKind]string // why one cannot be read, as the log has it
}

type watching struct {
	stop  context.CancelFunc
	ended atomic.Bool // its API is not served any more
}

// rescan is how often Muster looks which kinds are served, if nobody says otherwise.
const rescan = time.Minute

// firstKinds is how long a start waits for the API server to say which kinds are served.
const firstKinds = 15 * time.Second

// watchKinds watches the kinds that are served now, and in the background those
// that come to be served; it returns when all that is there is in the inbox.
func (d *Driver) watchKinds(ctx context.Context) error {
	if d.opt.Dynamic == nil {
		return nil
	}
	w := &kindWatch{d: d, running: map[*objectKind]*watching{}, said: map[*objectKind]string{}}
	// A kind that is missed now would have its pods taken for ones without an owner. One that somebody's broken
	// webhook keeps from being listed must not keep all the others waiting for ever.
	var synced []cache.InformerSynced
	limited, cancel := context.WithTimeout(ctx, firstKinds)
	defer cancel()
	err := d.untilAnswered(limited, "which objects make gangs?", func(context.Context) error {
		more, err := w.look(ctx)
		synced = append(synced, more...)
		return err
	})
	if err != nil {
		d.opt.Log.Warn("which APIs are served is not known", "error", err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("the objects that make gangs could not be listed: %w", ctx.Err())
	}
	every := d.opt.Rescan
	if every == 0 {
		every = rescan
	}
	d.workers.Go(func() {
		for pause(ctx, every) {
			if _, err := w.look(ctx); err != nil {
				d.opt.Log.Warn("which APIs are served is not known", "error", err)
			}
		}
	})
	return nil
}

// look starts to watch the kinds that are served and not watched yet. Its error says that the API server did not
// answer for one of them.
func (w *kindWatch) look(ctx context.Context) (synced []cache.InformerSynced, err error) {
	for k, r := range w.running {
		if r.ended.Load() {
			r.stop()
			delete(w.running, k)
			w.d.inbox.Put(func() { w.d.kindReadable(k, false) })
		}
	}
	groups, err := w.d.opt.Client.Discovery().ServerGroups()
	if err != nil {
		return nil, err
	}
	for _, k := range objectKinds {
		if w.running[k] != nil {
			continue
		}
		s, failed := w.try(ctx, k, groups)
		if s != nil {
			synced = append(synced, s)
		}
		err = errors.Join(err, failed)
	}
	return synced, err
}

// try watches a kind, if it is served and may be read; what it returns says when
// all of its objects are in the inbox. Its error says that the API server did not answer.
func (w *kindWatch) try(ctx context.Context, k *objectKind, groups *metav1.APIGroupList) (cache.InformerSynced, error) {
	gvr := schema.GroupVersionResource{Group: k.group, Resource: k.resource}
	for i := range groups.Groups {
		g := &groups.Groups[i]
		for _, v := range k.versions {
			if g.Name == k.group && gvr.Version == "" && slices.ContainsFunc(g.Versions, func(gv metav1.GroupVersionForDiscovery) bool { return gv.Version == v }) {
				gvr.Version = v
			}
		}
	}
	if gvr.Version == "" {
		return nil, nil
	}
	_, err := w.d.opt.Dynamic.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err) || ctx.Err() != nil:
		return nil, nil
	case err != nil && unanswered(err):
		return nil, fmt.Errorf("%s: %w", k, err)
	case err != nil:
		if text := err.Error(); w.said[k] != text {
			w.said[k] = text
			w.d.opt.Log.Warn("Muster goes by the labels of pods alone, because it may not read "+k.String(), "error", err)
		}
		return nil, nil
	}
	delete(w.said, k)
	return w.start(ctx, k, gvr), nil
}

func (w *kindWatch) start(ctx context.Context, k *objectKind, gvr schema.GroupVersionResource) cache.InformerSynced {
	ctx, cancel := context.WithCancel(ctx)
	r := &watching{stop: cancel}
	in := dynamicinformer.NewFilteredDynamicInformer(w.d.opt.Dynamic, gvr, v1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	put := func(obj any, there bool) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		o, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		key := k.in(o.GetNamespace(), o.GetName())
		if !there {
			o = nil
		}
		w.d.inbox.Put(func() { w.d.objectChanged(key, o) })
	}
	reg, err := in.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { put(obj, true) },
		UpdateFunc: func(_, obj any) { put(obj, true) }, DeleteFunc: func(obj any) { put(obj, false) }})
	if err == nil {
		err = in.SetTransform(prune)
	}
	if err == nil {
		err = in.SetWatchErrorHandlerWithContext(func(ctx context.Context, f *cache.Reflector, err error) {
			if cache.DefaultWatchErrorHandler(ctx, f, err); apierrors.IsNotFound(err) {
				r.ended.Store(true)
			}
		})
	}
	if err != nil {
		panic(err) // they fail only on an informer that runs
	}
	w.d.opt.Log.Info("watching", "kind", k.String(), "version", gvr.Version)
	w.running[k] = r
	w.d.inbox.Put(func() { w.d.kindReadable(k, true) })
	w.d.workers.Go(func() { in.RunWithContext(ctx) })
	return reg.HasSynced
}

// prune drops what nobody here reads: most of an object's bytes are containers.
func prune(obj any) (any, error) {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		o.SetManagedFields(nil)
		pruneMap(o.Object, 0)
	}
	return obj, nil
}

func pruneMap(m map[string]any, depth int) {
	for _, key := range []string{"containers", "initContainers", "volumes", "affinity", "conditions"} {
		delete(m, key)
	}
	if depth > 12 {
		return
	}
	for _, v := range m {
		switch v := v.(type) {
		case map[string]any:
			pruneMap(v, depth+1)
		case []any:
			for _, e := range v {
				if e, ok := e.(map[string]any); ok {
					pruneMap(e, depth+1)
				}
			}
		}
	}
}

// numberOf reads a whole number of an object; without one, what else it is.
func numberOf(m map[string]any, otherwise int, path ...string) int {
	v, ok, err := unstructured.NestedFieldNoCopy(m, path...)
	if !ok || err != nil {
		return otherwise
	}
	switch v := v.(type) {
	case int64:
		return int(v)
	case float64:
		return int(v)
	}
	return otherwise
}

// textOf reads a text of an object; "": it has none.
func textOf(m map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(m, path...)
	return s
}

// flagOf reads a truth value of an object; false if it has none.
func flagOf(m map[string]any, path ...string) bool {
	b, _, _ := unstructured.NestedBool(m, path...)
	return b
}

// listOf reads the objects of a list.
func listOf(m map[string]any, path ...string) (all []map[string]any) {
	v, _, _ := unstructured.NestedFieldNoCopy(m, path...)
	items, _ := v.([]any)
	for _, e := range items {
		if e, ok := e.(map[string]any); ok {
			all = append(all, e)
		}
	}
	return all
}
