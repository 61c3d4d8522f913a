package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/retry"
)

// kindWatch watches the kinds that are served; one goroutine has it.
type kindWatch struct {
	*watcher
	running map[*gangs.Kind]*watching
	said    map[*gangs.Kind]string // why one cannot be read, as the log has it
}

// watching is a kind that is watched.
type watching struct {
	stop  context.CancelFunc
	ended atomic.Bool // its API is not served any more
}

// firstKinds is how long a start waits for the API server to say which kinds are served.
const firstKinds = 15 * time.Second

// kinds watches the kinds that are served now, and in the background those that come to be served; it returns when all
// that is there was given to the loop.
func (w *watcher) kinds(ctx context.Context) error {
	if w.Dynamic == nil {
		return nil
	}
	all := &kindWatch{watcher: w, running: map[*gangs.Kind]*watching{}, said: map[*gangs.Kind]string{}}
	// A kind that is missed now would have its pods taken for ones without an owner. One that a broken webhook keeps
	// from being listed must not keep all the others waiting for ever.
	var synced []cache.InformerSynced
	limited, cancel := context.WithTimeout(ctx, firstKinds)
	defer cancel()
	err := retry.UntilAnswered(limited, w.Log, "which objects make gangs?", func(context.Context) error {
		more, err := all.look(ctx)
		synced = append(synced, more...)
		return err
	})
	if err != nil {
		w.Log.Warn("which APIs are served is not known", "error", err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("the objects that make gangs could not be listed: %w", ctx.Err())
	}
	w.Go(func() {
		for retry.Pause(ctx, w.rescan()) {
			if _, err := all.look(ctx); err != nil {
				w.Log.Warn("which APIs are served is not known", "error", err)
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
			w.Loop(func() { w.on.Readable(k, false) })
		}
	}
	groups, err := w.Client.Discovery().ServerGroups()
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
	_, err := w.Dynamic.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err) || ctx.Err() != nil:
		return nil, nil
	case err != nil && retry.Unanswered(err):
		return nil, fmt.Errorf("%s: %w", k, err)
	case err != nil:
		if text := err.Error(); w.said[k] != text {
			w.said[k] = text
			w.Log.Warn("Muster goes by the labels of pods alone, because it may not read "+k.String(), "error",
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
	in := kubeapi.InformOf(w.Dynamic, gvr, nil)
	key := func(o *unstructured.Unstructured) gangs.Key { return k.In(o.GetNamespace(), o.GetName()) }
	seen := watches(w.watcher, in, On[*unstructured.Unstructured]{
		Changed: func(o *unstructured.Unstructured) { w.on.Object(key(o), o) },
		Gone:    func(o *unstructured.Unstructured) { w.on.Object(key(o), nil) }})
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
	w.Log.Info("watching", "kind", k.String(), "version", gvr.Version)
	w.running[k] = r
	w.Loop(func() { w.on.Readable(k, true) })
	w.Go(func() { in.RunWithContext(ctx) })
	return reg.HasSynced
}

// prune drops what is not read here: most of an object's bytes are containers.
func prune(obj any) (any, error) {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		gangs.Prune(o)
	}
	return obj, nil
}
