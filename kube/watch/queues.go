package watch

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/queues"
	"github.com/muster-gpu/muster/kube/retry"
)

// queues watches Queue objects, from now on or from when their definition is there.
func (w *watcher) queues(ctx context.Context) ([]cache.InformerSynced, error) {
	if w.Dynamic == nil {
		return nil, nil
	}
	var served bool
	err := retry.UntilAnswered(ctx, w.Log, "are there Queue objects?", func(ctx context.Context) (err error) {
		served, err = servesQueues(ctx, w.Dynamic)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case served:
		synced, err := w.informQueues(ctx)
		return []cache.InformerSynced{synced}, err
	}
	w.Log.Info("the cluster has no Queue objects (" + queues.Resource.GroupVersion().String() +
		" is not served): the configuration's queues count")
	w.Go(func() {
		tick := time.NewTicker(w.rescan())
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if served, err := servesQueues(ctx, w.Dynamic); err == nil && served {
				if _, err := w.informQueues(ctx); err != nil {
					w.Log.Error("Queue objects cannot be watched", "error", err)
				}
				return
			}
		}
	})
	return nil, nil
}

// servesQueues asks whether there are Queue objects. That they are there and may not be read is an error: an informer
// would wait for ever.
func servesQueues(ctx context.Context, client dynamic.Interface) (bool, error) {
	_, err := client.Resource(queues.Resource).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("queues.%s cannot be listed: %w", queues.Resource.Group, err)
	}
	return true, nil
}

func (w *watcher) informQueues(ctx context.Context) (cache.InformerSynced, error) {
	in := kubeapi.InformOf(w.Dynamic, queues.Resource, nil)
	seen := watches(w, in, w.on.Queues)
	reg, err := in.AddEventHandler(seen.handler())
	if err != nil {
		return nil, err
	}
	w.Go(func() { in.RunWithContext(ctx) })
	return reg.HasSynced, nil
}
