package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/retry"
)

// objectChanged books an object as it is now, and what depends on it looks again.
func (d *Driver) objectChanged(key gangs.Key, o *unstructured.Unstructured) {
	d.objects.Changed(key, o)
	d.regroupUsers(key)
	d.topologyChanged(key.Kind)
}

// topologyChanged looks again where nodes are, if the objects of a kind say by which labels that is known.
func (d *Driver) topologyChanged(k *gangs.Kind) {
	if k != gangs.TopologyKind || !d.opt.Labels.SetTopologies(d.objects.Topologies()) {
		return
	}
	d.nodes.PlacesDiffer()
	for _, g := range d.gangs {
		if g.phase == gathering || g.phase == waiting {
			d.touch(g)
		}
	}
	d.lookAgain()
	d.moves++
}

// kindReadable books whether the objects of a kind can be known.
func (d *Driver) kindReadable(k *gangs.Kind, so bool) {
	for _, key := range d.objects.SetReadable(k, so) {
		d.regroupUsers(key)
	}
	d.topologyChanged(k)
}

// regroupUsers has the gangs that look at an object look again whose their pods are.
func (d *Driver) regroupUsers(key gangs.Key) {
	for _, g := range d.usersOf(key) {
		d.regroup(g)
	}
}

// usersOf lists the gangs that look at an object.
func (d *Driver) usersOf(key gangs.Key) (list []*gang) {
	for _, k := range d.objects.Users(key) {
		if g := d.gangs[k]; g != nil {
			list = append(list, g)
		}
	}
	return list
}

// jobChanged books a Job; its pods may belong together now, and the other way
// round. What is bound stays what it is. Pods that came before their Job have
// waited for it, in what would be its gang.
func (d *Driver) jobChanged(j *batchv1.Job) {
	old := d.objects.JobChanged(j)
	for _, g := range d.usersOf(gangs.OwnerKey(j)) { // the gang may be of several Jobs
		d.touch(g)
	}
	g := d.gangs[gangs.JobKey(j.UID)]
	switch {
	case old != nil && gangs.IsGang(old) != gangs.IsGang(j):
		for _, p := range d.pods {
			if ref := gangs.Owner(p.Obj, "batch", "Job"); ref != nil && ref.UID == j.UID {
				d.rejoin(p)
			}
		}
	case g != nil:
		d.regroup(g)
	case old != nil && !(maps.Equal(old.Labels, j.Labels) && maps.Equal(old.Annotations, j.Annotations)):
		for _, p := range d.pods { // its pods are gangs of one, which look at it
			if ref := gangs.Owner(p.Obj, "batch", "Job"); ref != nil && ref.UID == j.UID && p.gang != nil {
				d.touch(p.gang)
			}
		}
	}
}

// jobGone books that a Job is not there any more.
func (d *Driver) jobGone(j *batchv1.Job) {
	d.objects.JobGone(j)
	for _, g := range d.usersOf(gangs.OwnerKey(j)) {
		d.touch(g)
	}
	if g := d.gangs[gangs.JobKey(j.UID)]; g != nil {
		d.touch(g)
	}
}

// kindWatch watches the kinds that are served; one goroutine has it.
type kindWatch struct {
	d       *Driver
	running map[*gangs.Kind]*watching
	said    map[*gangs.Kind]string // why one cannot be read, as the log has it
}

type watching struct {
	stop  context.CancelFunc
	ended atomic.Bool // its API is not served any more
}

// rescan is how often Muster looks which kinds are served, if that is not said otherwise.
const rescan = time.Minute

// firstKinds is how long a start waits for the API server to say which kinds are served.
const firstKinds = 15 * time.Second

// watchKinds watches the kinds that are served now, and in the background those
// that come to be served; it returns when all that is there is in the inbox.
func (d *Driver) watchKinds(ctx context.Context) error {
	if d.opt.Dynamic == nil {
		return nil
	}
	w := &kindWatch{d: d, running: map[*gangs.Kind]*watching{}, said: map[*gangs.Kind]string{}}
	// A kind that is missed now would have its pods taken for ones without an owner. One that a broken webhook keeps
	// from being listed must not keep all the others waiting for ever.
	var synced []cache.InformerSynced
	limited, cancel := context.WithTimeout(ctx, firstKinds)
	defer cancel()
	err := retry.UntilAnswered(limited, d.opt.Log, "which objects make gangs?", func(context.Context) error {
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
		for retry.Pause(ctx, every) {
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
	for _, k := range gangs.Kinds() {
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
func (w *kindWatch) try(ctx context.Context, k *gangs.Kind, groups *metav1.APIGroupList) (cache.InformerSynced, error) {
	gvr := schema.GroupVersionResource{Group: k.Group, Resource: k.Resource}
	for i := range groups.Groups {
		g := &groups.Groups[i]
		for _, v := range k.Versions {
			if g.Name == k.Group && gvr.Version == "" &&
				slices.ContainsFunc(g.Versions, func(gv metav1.GroupVersionForDiscovery) bool {
					return gv.Version == v
				}) {
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
	case err != nil && retry.Unanswered(err):
		return nil, fmt.Errorf("%s: %w", k, err)
	case err != nil:
		if text := err.Error(); w.said[k] != text {
			w.said[k] = text
			w.d.opt.Log.Warn("Muster goes by the labels of pods alone, because it may not read "+k.String(), "error",
				err)
		}
		return nil, nil
	}
	delete(w.said, k)
	return w.start(ctx, k, gvr), nil
}

func (w *kindWatch) start(ctx context.Context, k *gangs.Kind, gvr schema.GroupVersionResource) cache.InformerSynced {
	ctx, cancel := context.WithCancel(ctx)
	r := &watching{stop: cancel}
	in := dynamicinformer.NewFilteredDynamicInformer(w.d.opt.Dynamic, gvr, v1.NamespaceAll, 0, cache.Indexers{},
		nil).Informer()
	key := func(o *unstructured.Unstructured) gangs.Key { return k.In(o.GetNamespace(), o.GetName()) }
	seen := watches(w.d, in, func(o *unstructured.Unstructured) { w.d.objectChanged(key(o), o) },
		func(o *unstructured.Unstructured) { w.d.objectChanged(key(o), nil) })
	reg, err := in.AddEventHandler(seen.handler())
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

// prune drops what is not read here: most of an object's bytes are containers.
func prune(obj any) (any, error) {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		gangs.Prune(o)
	}
	return obj, nil
}
