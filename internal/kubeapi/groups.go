package kubeapi

import (
	"context"

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Client asks for objects of one type, whose lists are of type L, in a namespace or in the cluster. Both are pointers:
// what is compiled for one pointer serves all, where each struct would be compiled again in each package that knows it.
type Client[T, L any] interface {
	Creator[T]
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, these metav1.ListOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// Patch changes an object by a subresource, if one is named, of which the API server returns the object.
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions,
		subresources ...string) (T, error)
}

// Creator creates objects; those that are questions are answered and not kept.
type Creator[T any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
}

// Pods is a client of pods.
type Pods interface {
	Client[*corev1.Pod, *corev1.PodList]
	// Bind says on which node a pod is to be.
	Bind(ctx context.Context, binding *corev1.Binding, opts metav1.CreateOptions) error
	// EvictV1 lets a pod be deleted, if budgets allow it.
	EvictV1(ctx context.Context, eviction *policyv1.Eviction) error
}

// ServiceAccounts is a client of service accounts.
type ServiceAccounts interface {
	Client[*corev1.ServiceAccount, *corev1.ServiceAccountList]
	// CreateToken issues a token of an account.
	CreateToken(ctx context.Context, account string, token *authenticationv1.TokenRequest, opts metav1.CreateOptions) (
		*authenticationv1.TokenRequest, error)
}

// Names of clients that are kept or passed on.
type (
	Leases         = Client[*coordinationv1.Lease, *coordinationv1.LeaseList]
	ResourceClaims = Client[*resourcev1.ResourceClaim, *resourcev1.ResourceClaimList]
)

// AdmissionregistrationV1 serves admission policies.
type AdmissionregistrationV1 interface {
	ValidatingAdmissionPolicies() Client[*admissionregistrationv1.ValidatingAdmissionPolicy,
		*admissionregistrationv1.ValidatingAdmissionPolicyList]
	ValidatingAdmissionPolicyBindings() Client[*admissionregistrationv1.ValidatingAdmissionPolicyBinding,
		*admissionregistrationv1.ValidatingAdmissionPolicyBindingList]
}

// AppsV1 serves deployments and the like.
type AppsV1 interface {
	DaemonSets(namespace string) Client[*appsv1.DaemonSet, *appsv1.DaemonSetList]
	Deployments(namespace string) Client[*appsv1.Deployment, *appsv1.DeploymentList]
	StatefulSets(namespace string) Client[*appsv1.StatefulSet, *appsv1.StatefulSetList]
}

// AuthenticationV1 serves reviews of tokens.
type AuthenticationV1 interface {
	TokenReviews() Creator[*authenticationv1.TokenReview]
}

// AuthorizationV1 serves reviews of what users may do.
type AuthorizationV1 interface {
	SubjectAccessReviews() Creator[*authorizationv1.SubjectAccessReview]
}

// BatchV1 serves jobs.
type BatchV1 interface {
	Jobs(namespace string) Client[*batchv1.Job, *batchv1.JobList]
}

// CoordinationV1 serves leases.
type CoordinationV1 interface {
	Leases(namespace string) Leases
}

// CoreV1 serves pods, nodes and the like.
type CoreV1 interface {
	ConfigMaps(namespace string) Client[*corev1.ConfigMap, *corev1.ConfigMapList]
	Events(namespace string) Client[*corev1.Event, *corev1.EventList]
	Namespaces() Client[*corev1.Namespace, *corev1.NamespaceList]
	Nodes() Client[*corev1.Node, *corev1.NodeList]
	PersistentVolumeClaims(namespace string) Client[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]
	PersistentVolumes() Client[*corev1.PersistentVolume, *corev1.PersistentVolumeList]
	Pods(namespace string) Pods
	Secrets(namespace string) Client[*corev1.Secret, *corev1.SecretList]
	ServiceAccounts(namespace string) ServiceAccounts
	Services(namespace string) Client[*corev1.Service, *corev1.ServiceList]
}

// DiscoveryV1 serves the endpoints of services.
type DiscoveryV1 interface {
	EndpointSlices(namespace string) Client[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]
}

// PolicyV1 serves disruption budgets.
type PolicyV1 interface {
	PodDisruptionBudgets(namespace string) Client[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList]
}

// RbacV1 serves roles.
type RbacV1 interface {
	ClusterRoleBindings() Client[*rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBindingList]
	ClusterRoles() Client[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]
	RoleBindings(namespace string) Client[*rbacv1.RoleBinding, *rbacv1.RoleBindingList]
	Roles(namespace string) Client[*rbacv1.Role, *rbacv1.RoleList]
}

// ResourceV1 serves claims of devices.
type ResourceV1 interface {
	DeviceClasses() Client[*resourcev1.DeviceClass, *resourcev1.DeviceClassList]
	ResourceClaimTemplates(namespace string) Client[*resourcev1.ResourceClaimTemplate,
		*resourcev1.ResourceClaimTemplateList]
	ResourceClaims(namespace string) ResourceClaims
	ResourceSlices() Client[*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList]
}

// SchedulingV1 serves priority classes.
type SchedulingV1 interface {
	PriorityClasses() Client[*schedulingv1.PriorityClass, *schedulingv1.PriorityClassList]
}

// StorageV1 serves storage classes.
type StorageV1 interface {
	CSIDrivers() Client[*storagev1.CSIDriver, *storagev1.CSIDriverList]
	CSINodes() Client[*storagev1.CSINode, *storagev1.CSINodeList]
	CSIStorageCapacities(namespace string) Client[*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList]
	StorageClasses() Client[*storagev1.StorageClass, *storagev1.StorageClassList]
	VolumeAttachments() Client[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList]
}
