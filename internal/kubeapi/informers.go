package kubeapi

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Lister is what an informer asks: a client of one type of objects, whose lists are of type L.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Selection changes what an informer asks for; nil: nothing.
type Selection func(*metav1.ListOptions)

// Inform makes an informer of the objects that a client lists; like is an object of their type. The client is one of
// the set of clients that is given first: it is asked whether it knows lists that are streamed.
func Inform[L runtime.Object](set any, client Lister[L], like runtime.Object, these Selection,
) cache.SharedIndexInformer {
	return inform(set, client, like, these, "")
}

// InformOf makes an informer of the objects of a resource, in all namespaces, without knowing their type.
func InformOf(set dynamic.Interface, of schema.GroupVersionResource, these Selection) cache.SharedIndexInformer {
	return inform(set, set.Resource(of), &unstructured.Unstructured{}, these, of.String())
}

// inform makes an informer; its log calls the objects what the description says, or else by their type.
func inform[L runtime.Object](set any, client Lister[L], like runtime.Object, these Selection, description string,
) cache.SharedIndexInformer {
	if these == nil {
		these = func(*metav1.ListOptions) {}
	}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			these(&opts)
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			these(&opts)
			return client.Watch(ctx, opts)
		},
	}
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(lists, set), like,
		cache.SharedIndexInformerOptions{Indexers: cache.Indexers{}, ObjectDescription: description})
}

// Informers are informers that run together. They are added and started by one goroutine, while another may wait.
type Informers struct {
	waiting []cache.SharedIndexInformer
	running sync.WaitGroup

	mu    sync.Mutex
	ended bool // none is started any more, as it would not be waited for
}

// Add adds an informer, to be started, whose objects are kept as a function leaves them (nil: whole).
func (s *Informers) Add(in cache.SharedIndexInformer, trim cache.TransformFunc) cache.SharedIndexInformer {
	if trim != nil {
		if err := in.SetTransform(trim); err != nil {
			panic(err) // it fails only on an informer that runs
		}
	}
	s.waiting = append(s.waiting, in)
	return in
}

// Start starts those that were added since the last Start, unless Wait was called. They run until the context ends.
func (s *Informers) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	for _, in := range s.waiting {
		s.running.Go(func() { in.RunWithContext(ctx) })
	}
	s.waiting = nil
}

// Wait waits until all that were started have ended, and lets no other start.
func (s *Informers) Wait() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.running.Wait()
}
