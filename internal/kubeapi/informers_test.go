package kubeapi_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/internal/fakekube"
	"github.com/muster-gpu/muster/internal/kubeapi"
)

// pods is an informer of all pods.
func pods(c kubeapi.Interface) cache.SharedIndexInformer {
	return kubeapi.Inform(c, c.CoreV1().Pods(v1.NamespaceAll), &v1.Pod{}, nil)
}

// Informers have what there is, as it was trimmed, and end with the context; none starts once it would not be waited
// for.
func TestInformers(t *testing.T) {
	c := fakekube.New(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p",
		Labels: map[string]string{"x": "y"}}})
	s := &kubeapi.Informers{}
	in := s.Add(pods(c), func(obj any) (any, error) {
		obj.(*v1.Pod).Labels = nil
		return obj, nil
	})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	s.Start(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), in.HasSynced) {
		t.Fatal("it does not list")
	}
	obj, there, err := in.GetStore().GetByKey("a/p")
	if p, ok := obj.(*v1.Pod); err != nil || !there || !ok || p.Labels != nil {
		t.Errorf("%v, %v, %v", obj, there, err)
	}
	end()
	s.Wait()
	if !in.IsStopped() {
		t.Error("it runs on")
	}
	late := s.Add(pods(c), nil)
	s.Start(t.Context())
	s.Wait()
	if late.HasSynced() {
		t.Error("one began after all had ended")
	}
}

// A limit without a burst would let nothing pass.
func TestNew(t *testing.T) {
	if _, err := kubeapi.New(&rest.Config{Host: "http://127.0.0.1:1", QPS: 5}); err == nil {
		t.Error("a limit without a burst is accepted")
	}
	if c, err := kubeapi.New(&rest.Config{Host: "http://127.0.0.1:1", QPS: 5, Burst: 5}); err != nil ||
		c.CoreV1() == nil || c.Discovery() == nil {
		t.Errorf("%v, %v", c, err)
	}
}
