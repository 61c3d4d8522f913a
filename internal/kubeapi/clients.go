// Package kubeapi has clients of the groups of the Kubernetes API that Muster uses, and informers of their objects.
// They are client-go's own, but for the lists of them: kubernetes.Clientset, and the factories of informers, link the
// types of every group and version that there is, which are most of what a program of them is compiled from.
package kubeapi

import (
	"errors"
	"net/http"

	"k8s.io/client-go/discovery"
	admissionregistrationv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	autoscalingv2 "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	batchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	rbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"
	resourcev1 "k8s.io/client-go/kubernetes/typed/resource/v1"
	schedulingv1 "k8s.io/client-go/kubernetes/typed/scheduling/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Interface has the clients of the groups.
type Interface interface {
	Discovery() discovery.DiscoveryInterfaces
	AdmissionregistrationV1() admissionregistrationv1.AdmissionregistrationV1Interface
	AppsV1() appsv1.AppsV1Interface
	AuthenticationV1() authenticationv1.AuthenticationV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	AutoscalingV2() autoscalingv2.AutoscalingV2Interface
	BatchV1() batchv1.BatchV1Interface
	CoordinationV1() coordinationv1.CoordinationV1Interface
	CoreV1() corev1.CoreV1Interface
	DiscoveryV1() discoveryv1.DiscoveryV1Interface
	PolicyV1() policyv1.PolicyV1Interface
	RbacV1() rbacv1.RbacV1Interface
	ResourceV1() resourcev1.ResourceV1Interface
	SchedulingV1() schedulingv1.SchedulingV1Interface
	StorageV1() storagev1.StorageV1Interface
}

// Clientset is an Interface to an API server.
type Clientset struct {
	discovery             *discovery.DiscoveryClient
	admissionregistration *admissionregistrationv1.AdmissionregistrationV1Client
	apps                  *appsv1.AppsV1Client
	authentication        *authenticationv1.AuthenticationV1Client
	authorization         *authorizationv1.AuthorizationV1Client
	autoscaling           *autoscalingv2.AutoscalingV2Client
	batch                 *batchv1.BatchV1Client
	coordination          *coordinationv1.CoordinationV1Client
	core                  *corev1.CoreV1Client
	slices                *discoveryv1.DiscoveryV1Client
	policy                *policyv1.PolicyV1Client
	rbac                  *rbacv1.RbacV1Client
	resource              *resourcev1.ResourceV1Client
	scheduling            *schedulingv1.SchedulingV1Client
	storage               *storagev1.StorageV1Client
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
	transport, err := rest.HTTPClientFor(&c)
	if err != nil {
		return nil, err
	}
	s := &Clientset{}
	err = errors.Join(
		group(&s.discovery, discovery.NewDiscoveryClientForConfigAndClient, &c, transport),
		group(&s.admissionregistration, admissionregistrationv1.NewForConfigAndClient, &c, transport),
		group(&s.apps, appsv1.NewForConfigAndClient, &c, transport),
		group(&s.authentication, authenticationv1.NewForConfigAndClient, &c, transport),
		group(&s.authorization, authorizationv1.NewForConfigAndClient, &c, transport),
		group(&s.autoscaling, autoscalingv2.NewForConfigAndClient, &c, transport),
		group(&s.batch, batchv1.NewForConfigAndClient, &c, transport),
		group(&s.coordination, coordinationv1.NewForConfigAndClient, &c, transport),
		group(&s.core, corev1.NewForConfigAndClient, &c, transport),
		group(&s.slices, discoveryv1.NewForConfigAndClient, &c, transport),
		group(&s.policy, policyv1.NewForConfigAndClient, &c, transport),
		group(&s.rbac, rbacv1.NewForConfigAndClient, &c, transport),
		group(&s.resource, resourcev1.NewForConfigAndClient, &c, transport),
		group(&s.scheduling, schedulingv1.NewForConfigAndClient, &c, transport),
		group(&s.storage, storagev1.NewForConfigAndClient, &c, transport),
	)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Must is New for a configuration that is known to be right.
func Must(config *rest.Config) *Clientset {
	s, err := New(config)
	if err != nil {
		panic(err)
	}
	return s
}

// group makes the client of a group.
func group[T any](to *T, from func(*rest.Config, *http.Client) (T, error), c *rest.Config, t *http.Client) (err error) {
	*to, err = from(c, t)
	return err
}

// Discovery says which groups the API server has.
func (s *Clientset) Discovery() discovery.DiscoveryInterfaces { return s.discovery }

// AdmissionregistrationV1 serves admission policies.
func (s *Clientset) AdmissionregistrationV1() admissionregistrationv1.AdmissionregistrationV1Interface {
	return s.admissionregistration
}

// AppsV1 serves deployments and the like.
func (s *Clientset) AppsV1() appsv1.AppsV1Interface { return s.apps }

// AuthenticationV1 serves reviews of tokens.
func (s *Clientset) AuthenticationV1() authenticationv1.AuthenticationV1Interface {
	return s.authentication
}

// AuthorizationV1 serves reviews of what users may do.
func (s *Clientset) AuthorizationV1() authorizationv1.AuthorizationV1Interface {
	return s.authorization
}

// AutoscalingV2 serves autoscalers.
func (s *Clientset) AutoscalingV2() autoscalingv2.AutoscalingV2Interface { return s.autoscaling }

// BatchV1 serves jobs.
func (s *Clientset) BatchV1() batchv1.BatchV1Interface { return s.batch }

// CoordinationV1 serves leases.
func (s *Clientset) CoordinationV1() coordinationv1.CoordinationV1Interface { return s.coordination }

// CoreV1 serves pods, nodes and the like.
func (s *Clientset) CoreV1() corev1.CoreV1Interface { return s.core }

// DiscoveryV1 serves the endpoints of services.
func (s *Clientset) DiscoveryV1() discoveryv1.DiscoveryV1Interface { return s.slices }

// PolicyV1 serves evictions and budgets.
func (s *Clientset) PolicyV1() policyv1.PolicyV1Interface { return s.policy }

// RbacV1 serves roles.
func (s *Clientset) RbacV1() rbacv1.RbacV1Interface { return s.rbac }

// ResourceV1 serves claims of devices.
func (s *Clientset) ResourceV1() resourcev1.ResourceV1Interface { return s.resource }

// SchedulingV1 serves priority classes.
func (s *Clientset) SchedulingV1() schedulingv1.SchedulingV1Interface { return s.scheduling }

// StorageV1 serves storage classes.
func (s *Clientset) StorageV1() storagev1.StorageV1Interface { return s.storage }
