package fakekube

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
)

func pod(namespace, name, label string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"l": label}}}
}

// What is written is read again, and lists select by namespace and labels.
func TestObjects(t *testing.T) {
	c, ctx := New(pod("a", "p", "x"), pod("a", "q", "y"), pod("b", "p", "x")), t.Context()
	pods := c.CoreV1().Pods("a")
	if _, err := pods.Create(ctx, pod("a", "r", "x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "l=x"})
	if err != nil || len(list.Items) != 2 || list.Items[0].Name != "p" || list.Items[1].Name != "r" {
		t.Errorf("%v, %v", list, err)
	}
	if list, err = c.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 4 {
		t.Errorf("%v, %v", list, err)
	}
	p, err := pods.Patch(ctx, "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"l":"z"}}}`),
		metav1.PatchOptions{})
	if err != nil || p.Labels["l"] != "z" {
		t.Errorf("%v, %v", p, err)
	}
	if err := pods.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := pods.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("of what was deleted it says %v", err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if _, err := c.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.StorageV1().StorageClasses().Get(ctx, "c", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// Watches hear of what is written.
func TestWatch(t *testing.T) {
	c := New()
	w, err := c.CoreV1().Pods("a").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := c.CoreV1().Pods("a").Create(t.Context(), pod("a", "p", "x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e := <-w.ResultChan()
	if p, ok := e.Object.(*v1.Pod); !ok || p.Name != "p" || e.Type != "ADDED" {
		t.Errorf("%v", e)
	}
}

// Tests answer instead of what is there: also bindings, evictions and which groups there are.
func TestReactors(t *testing.T) {
	c, ctx := New(), t.Context()
	refused := errors.New("refused")
	var said []string
	for _, verb := range []string{"create", "get"} {
		c.PrependReactor(verb, "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
			said = append(said, a.GetVerb()+" "+a.GetNamespace()+"/"+a.GetResource().Resource+"/"+a.GetSubresource())
			return true, nil, refused
		})
	}
	name := metav1.ObjectMeta{Namespace: "a", Name: "p"}
	_, groups := c.Discovery().ServerGroups()
	_, resources := c.Discovery().ServerResourcesForGroupVersion("apps/v1")
	for i, err := range []error{
		c.CoreV1().Pods("a").Bind(ctx, &v1.Binding{ObjectMeta: name}, metav1.CreateOptions{}),
		c.CoreV1().Pods("a").EvictV1(ctx, &policyv1.Eviction{ObjectMeta: name}), groups, resources,
	} {
		if !errors.Is(err, refused) {
			t.Errorf("%d: %v", i, err)
		}
	}
	want := []string{"get /group/", "get /resource/", "create a/pods/binding", "create a/pods/eviction"}
	if !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
}
