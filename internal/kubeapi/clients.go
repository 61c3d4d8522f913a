// Package kubeapi has clients of the groups of the Kubernetes API that Muster uses, and informers of their objects.
// client-go's own clients, and the factories of its informers, link the types of every group and version that there
// is, which are most of what a program of them is compiled from; how requests are made and answers read is client-go's.
package kubeapi

import (
	"errors"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Interface has the clients of the groups.
type Interface interface {
	Discovery() Discovery
	AdmissionregistrationV1() AdmissionregistrationV1
	AppsV1() AppsV1
	AuthenticationV1() AuthenticationV1
	AuthorizationV1() AuthorizationV1
	BatchV1() BatchV1
	CoordinationV1() CoordinationV1
	CoreV1() CoreV1
	DiscoveryV1() DiscoveryV1
	PolicyV1() PolicyV1
	RbacV1() RbacV1
	ResourceV1() ResourceV1
	SchedulingV1() SchedulingV1
	StorageV1() StorageV1
}

// Clientset is an Interface to an API server.
type Clientset struct {
	discovery *discovery
	groups    map[schema.GroupVersion]rest.Interface
}

// New makes clients that share connections and, if the configuration limits it, how often they may ask.
func New(config *rest.Config) (*Clientset, error) {
	c := *config
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if c.RateLimiter == nil && c.QPS > 0 {
		if c.Burst <= 0 {
			return nil, errors.New("a client with a limit of requests per second needs a burst of one or more")
		}
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst)
	}
	connections, err := rest.HTTPClientFor(&c)
	if err != nil {
		return nil, err
	}
	s := &Clientset{groups: map[schema.GroupVersion]rest.Interface{}}
	if s.discovery, err = newDiscovery(&c, connections); err != nil {
		return nil, err
	}
	for _, g := range groups {
		if s.groups[g.of], err = requests(&c, g.of, connections); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// requests makes the requests to a group.
func requests(config *rest.Config, of schema.GroupVersion, connections *http.Client) (rest.Interface, error) {
	c := *config
	c.GroupVersion, c.APIPath = &of, "/apis"
	if of.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(Scheme, Codecs).WithoutConversion()
	return rest.RESTClientForConfigAndClient(&c, connections)
}

// Must is New for a configuration that is known to be right.
func Must(config *rest.Config) *Clientset {
	s, err := New(config)
	if err != nil {
		panic(err)
	}
	return s
}

// Discovery says which groups the API server has.
func (s *Clientset) Discovery() Discovery { return s.discovery }

// AdmissionregistrationV1 serves admission policies.
func (s *Clientset) AdmissionregistrationV1() AdmissionregistrationV1 {
	return admissionregistration{s.groups[admissionregistrationv1.SchemeGroupVersion]}
}

// AppsV1 serves deployments and the like.
func (s *Clientset) AppsV1() AppsV1 { return apps{s.groups[appsv1.SchemeGroupVersion]} }

// AuthenticationV1 serves reviews of tokens.
func (s *Clientset) AuthenticationV1() AuthenticationV1 {
	return authentication{s.groups[authenticationv1.SchemeGroupVersion]}
}

// AuthorizationV1 serves reviews of what users may do.
func (s *Clientset) AuthorizationV1() AuthorizationV1 {
	return authorization{s.groups[authorizationv1.SchemeGroupVersion]}
}

// BatchV1 serves jobs.
func (s *Clientset) BatchV1() BatchV1 { return batch{s.groups[batchv1.SchemeGroupVersion]} }

// CoordinationV1 serves leases.
func (s *Clientset) CoordinationV1() CoordinationV1 {
	return coordination{s.groups[coordinationv1.SchemeGroupVersion]}
}

// CoreV1 serves pods, nodes and the like.
func (s *Clientset) CoreV1() CoreV1 { return core{s.groups[corev1.SchemeGroupVersion]} }

// DiscoveryV1 serves the endpoints of services.
func (s *Clientset) DiscoveryV1() DiscoveryV1 {
	return endpoints{s.groups[discoveryv1.SchemeGroupVersion]}
}

// PolicyV1 serves disruption budgets.
func (s *Clientset) PolicyV1() PolicyV1 { return policy{s.groups[policyv1.SchemeGroupVersion]} }

// RbacV1 serves roles.
func (s *Clientset) RbacV1() RbacV1 { return rbac{s.groups[rbacv1.SchemeGroupVersion]} }

// ResourceV1 serves claims of devices.
func (s *Clientset) ResourceV1() ResourceV1 { return resource{s.groups[resourcev1.SchemeGroupVersion]} }

// SchedulingV1 serves priority classes.
func (s *Clientset) SchedulingV1() SchedulingV1 {
	return scheduling{s.groups[schedulingv1.SchemeGroupVersion]}
}

// StorageV1 serves storage classes.
func (s *Clientset) StorageV1() StorageV1 { return storage{s.groups[storagev1.SchemeGroupVersion]} }
