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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// object is a pointer to an object of the API.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// list is a pointer to a list of objects.
type list[L any] interface {
	*L
	runtime.Object
}

// objects is a client of a resource of the group that a client of requests is for.
func objects[T, L any, P object[T], Q list[L]](c rest.Interface, resource, namespace string,
) *gentype.ClientWithList[P, Q] {
	return gentype.NewClientWithList(resource, c, parameters, namespace, func() P { return new(T) },
		func() Q { return new(L) }, gentype.PrefersProtobuf[P]())
}

// questions is a client of a resource that can be created only.
func questions[T any, P object[T]](c rest.Interface, resource string) *gentype.Client[P] {
	return gentype.NewClient(resource, c, parameters, "", func() P { return new(T) }, gentype.PrefersProtobuf[P]())
}

type admissionregistration struct{ c rest.Interface }

func (g admissionregistration) ValidatingAdmissionPolicies() Client[admissionregistrationv1.ValidatingAdmissionPolicy,
	admissionregistrationv1.ValidatingAdmissionPolicyList] {
	return objects[admissionregistrationv1.ValidatingAdmissionPolicy,
		admissionregistrationv1.ValidatingAdmissionPolicyList](g.c, "validatingadmissionpolicies", "")
}

func (g admissionregistration) ValidatingAdmissionPolicyBindings() Client[
	admissionregistrationv1.ValidatingAdmissionPolicyBinding,
	admissionregistrationv1.ValidatingAdmissionPolicyBindingList] {
	return objects[admissionregistrationv1.ValidatingAdmissionPolicyBinding,
		admissionregistrationv1.ValidatingAdmissionPolicyBindingList](g.c, "validatingadmissionpolicybindings", "")
}

type apps struct{ c rest.Interface }

func (g apps) DaemonSets(namespace string) Client[appsv1.DaemonSet, appsv1.DaemonSetList] {
	return objects[appsv1.DaemonSet, appsv1.DaemonSetList](g.c, "daemonsets", namespace)
}

func (g apps) Deployments(namespace string) Client[appsv1.Deployment, appsv1.DeploymentList] {
	return objects[appsv1.Deployment, appsv1.DeploymentList](g.c, "deployments", namespace)
}

func (g apps) StatefulSets(namespace string) Client[appsv1.StatefulSet, appsv1.StatefulSetList] {
	return objects[appsv1.StatefulSet, appsv1.StatefulSetList](g.c, "statefulsets", namespace)
}

type authentication struct{ c rest.Interface }

func (g authentication) TokenReviews() Creator[authenticationv1.TokenReview] {
	return questions[authenticationv1.TokenReview](g.c, "tokenreviews")
}

type authorization struct{ c rest.Interface }

func (g authorization) SubjectAccessReviews() Creator[authorizationv1.SubjectAccessReview] {
	return questions[authorizationv1.SubjectAccessReview](g.c, "subjectaccessreviews")
}

type batch struct{ c rest.Interface }

func (g batch) Jobs(namespace string) Client[batchv1.Job, batchv1.JobList] {
	return objects[batchv1.Job, batchv1.JobList](g.c, "jobs", namespace)
}

type coordination struct{ c rest.Interface }

func (g coordination) Leases(namespace string) Leases {
	return objects[coordinationv1.Lease, coordinationv1.LeaseList](g.c, "leases", namespace)
}

type core struct{ c rest.Interface }

func (g core) ConfigMaps(namespace string) Client[corev1.ConfigMap, corev1.ConfigMapList] {
	return objects[corev1.ConfigMap, corev1.ConfigMapList](g.c, "configmaps", namespace)
}

func (g core) Events(namespace string) Client[corev1.Event, corev1.EventList] {
	return objects[corev1.Event, corev1.EventList](g.c, "events", namespace)
}

func (g core) Namespaces() Client[corev1.Namespace, corev1.NamespaceList] {
	return objects[corev1.Namespace, corev1.NamespaceList](g.c, "namespaces", "")
}

func (g core) Nodes() Client[corev1.Node, corev1.NodeList] {
	return objects[corev1.Node, corev1.NodeList](g.c, "nodes", "")
}

func (g core) PersistentVolumeClaims(namespace string) Client[corev1.PersistentVolumeClaim,
	corev1.PersistentVolumeClaimList] {
	return objects[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](g.c, "persistentvolumeclaims",
		namespace)
}

func (g core) PersistentVolumes() Client[corev1.PersistentVolume, corev1.PersistentVolumeList] {
	return objects[corev1.PersistentVolume, corev1.PersistentVolumeList](g.c, "persistentvolumes", "")
}

func (g core) Pods(namespace string) Pods {
	return pods{objects[corev1.Pod, corev1.PodList](g.c, "pods", namespace)}
}

func (g core) Secrets(namespace string) Client[corev1.Secret, corev1.SecretList] {
	return objects[corev1.Secret, corev1.SecretList](g.c, "secrets", namespace)
}

func (g core) ServiceAccounts(namespace string) ServiceAccounts {
	return serviceAccounts{objects[corev1.ServiceAccount, corev1.ServiceAccountList](g.c, "serviceaccounts", namespace)}
}

func (g core) Services(namespace string) Client[corev1.Service, corev1.ServiceList] {
	return objects[corev1.Service, corev1.ServiceList](g.c, "services", namespace)
}

type pods struct {
	*gentype.ClientWithList[*corev1.Pod, *corev1.PodList]
}

func (c pods) Bind(ctx context.Context, binding *corev1.Binding, opts metav1.CreateOptions) error {
	return c.on(binding.Name, "binding").VersionedParams(&opts, parameters).Body(binding).Do(ctx).Error()
}

func (c pods) EvictV1(ctx context.Context, eviction *policyv1.Eviction) error {
	return c.on(eviction.Name, "eviction").Body(eviction).Do(ctx).Error()
}

// on is a request about a pod.
func (c pods) on(pod, subresource string) *rest.Request {
	return c.GetClient().Post().Namespace(c.GetNamespace()).Resource("pods").Name(pod).SubResource(subresource)
}

type serviceAccounts struct {
	*gentype.ClientWithList[*corev1.ServiceAccount, *corev1.ServiceAccountList]
}

func (c serviceAccounts) CreateToken(ctx context.Context, account string, token *authenticationv1.TokenRequest,
	opts metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	issued := &authenticationv1.TokenRequest{}
	err := c.GetClient().Post().UseProtobufAsDefault().Namespace(c.GetNamespace()).Resource("serviceaccounts").
		Name(account).SubResource("token").VersionedParams(&opts, parameters).Body(token).Do(ctx).Into(issued)
	return issued, err
}

type endpoints struct{ c rest.Interface }

func (g endpoints) EndpointSlices(namespace string) Client[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList] {
	return objects[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](g.c, "endpointslices", namespace)
}

type policy struct{ c rest.Interface }

func (g policy) PodDisruptionBudgets(namespace string) Client[policyv1.PodDisruptionBudget,
	policyv1.PodDisruptionBudgetList] {
	return objects[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](g.c, "poddisruptionbudgets",
		namespace)
}

type rbac struct{ c rest.Interface }

func (g rbac) ClusterRoleBindings() Client[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList] {
	return objects[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](g.c, "clusterrolebindings", "")
}

func (g rbac) ClusterRoles() Client[rbacv1.ClusterRole, rbacv1.ClusterRoleList] {
	return objects[rbacv1.ClusterRole, rbacv1.ClusterRoleList](g.c, "clusterroles", "")
}

func (g rbac) RoleBindings(namespace string) Client[rbacv1.RoleBinding, rbacv1.RoleBindingList] {
	return objects[rbacv1.RoleBinding, rbacv1.RoleBindingList](g.c, "rolebindings", namespace)
}

func (g rbac) Roles(namespace string) Client[rbacv1.Role, rbacv1.RoleList] {
	return objects[rbacv1.Role, rbacv1.RoleList](g.c, "roles", namespace)
}

type resource struct{ c rest.Interface }

func (g resource) DeviceClasses() Client[resourcev1.DeviceClass, resourcev1.DeviceClassList] {
	return objects[resourcev1.DeviceClass, resourcev1.DeviceClassList](g.c, "deviceclasses", "")
}

func (g resource) ResourceClaimTemplates(namespace string) Client[resourcev1.ResourceClaimTemplate,
	resourcev1.ResourceClaimTemplateList] {
	return objects[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](g.c,
		"resourceclaimtemplates", namespace)
}

func (g resource) ResourceClaims(namespace string) ResourceClaims {
	return objects[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](g.c, "resourceclaims", namespace)
}

func (g resource) ResourceSlices() Client[resourcev1.ResourceSlice, resourcev1.ResourceSliceList] {
	return objects[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](g.c, "resourceslices", "")
}

type scheduling struct{ c rest.Interface }

func (g scheduling) PriorityClasses() Client[schedulingv1.PriorityClass, schedulingv1.PriorityClassList] {
	return objects[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](g.c, "priorityclasses", "")
}

type storage struct{ c rest.Interface }

func (g storage) CSIDrivers() Client[storagev1.CSIDriver, storagev1.CSIDriverList] {
	return objects[storagev1.CSIDriver, storagev1.CSIDriverList](g.c, "csidrivers", "")
}

func (g storage) CSINodes() Client[storagev1.CSINode, storagev1.CSINodeList] {
	return objects[storagev1.CSINode, storagev1.CSINodeList](g.c, "csinodes", "")
}

func (g storage) CSIStorageCapacities(namespace string) Client[storagev1.CSIStorageCapacity,
	storagev1.CSIStorageCapacityList] {
	return objects[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList](g.c, "csistoragecapacities",
		namespace)
}

func (g storage) StorageClasses() Client[storagev1.StorageClass, storagev1.StorageClassList] {
	return objects[storagev1.StorageClass, storagev1.StorageClassList](g.c, "storageclasses", "")
}

func (g storage) VolumeAttachments() Client[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList] {
	return objects[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](g.c, "volumeattachments", "")
}
