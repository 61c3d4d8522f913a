// Package fakekube is a Kubernetes API in memory, for tests of what an API server says in return; whatever depends on
// how one behaves is tested on a real one (internal/controlplane). It serves what such tests use.
package fakekube

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/testing"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// Clientset is a client of such an API. Groups and resources that it does not serve panic.
type Clientset struct {
	kubeapi.Interface
	testing.Fake
}

// New has an API with some objects.
func New(objects ...runtime.Object) *Clientset {
	tracker := testing.NewObjectTracker(kubeapi.Scheme, kubeapi.Codecs.UniversalDecoder())
	for _, o := range objects {
		if err := tracker.Add(o); err != nil {
			panic(err)
		}
	}
	c := &Clientset{}
	c.AddReactor("*", "*", testing.ObjectReaction(tracker))
	c.AddWatchReactor("*", func(action testing.Action) (bool, watch.Interface, error) {
		var opts metav1.ListOptions
		if a, ok := action.(testing.WatchActionImpl); ok {
			opts = a.ListOptions
		}
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace(), opts)
		return err == nil, w, err
	})
	return c
}

// IsWatchListSemanticsUnSupported tells informers to list before they watch.
func (c *Clientset) IsWatchListSemanticsUnSupported() bool { return true }

// Discovery serves which groups there are: none.
func (c *Clientset) Discovery() kubeapi.Discovery { return discovery{&c.Fake} }

// AuthenticationV1 serves reviews of tokens.
func (c *Clientset) AuthenticationV1() kubeapi.AuthenticationV1 { return authentication{&c.Fake} }

// BatchV1 serves jobs.
func (c *Clientset) BatchV1() kubeapi.BatchV1 { return batch{&c.Fake} }

// CoreV1 serves pods, nodes and the like.
func (c *Clientset) CoreV1() kubeapi.CoreV1 { return core{f: &c.Fake} }

// StorageV1 serves storage classes.
func (c *Clientset) StorageV1() kubeapi.StorageV1 { return storage{&c.Fake} }

// discovery has no group.
type discovery struct{ f *testing.Fake }

func (d discovery) ServerGroups() (*metav1.APIGroupList, error) {
	return &metav1.APIGroupList{}, d.ask("group")
}

func (d discovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	if err := d.ask("resource"); err != nil {
		return nil, err
	}
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource, GroupVersion " + groupVersion + " not found"}}
}

func (d discovery) RESTClient() rest.Interface { return nil }

// ask lets tests answer instead.
func (d discovery) ask(of string) error {
	_, err := d.f.Invokes(
		testing.ActionImpl{Verb: "get", Resource: schema.GroupVersionResource{Resource: of}}, nil)
	return err
}
