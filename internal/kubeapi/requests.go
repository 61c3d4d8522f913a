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

// object is an object of the API.
type object interface {
	runtime.Object
	metav1.Object
}

// objects is a client of a resource of the group that a client of requests is for, with an empty object and list.
func objects[P object, Q runtime.Object](c rest.Interface, resource, namespace string, one P, list Q,
) *gentype.ClientWithList[P, Q] {
	return gentype.NewClientWithList(resource, c, parameters, namespace, Like(one), Like(list),
		gentype.PrefersProtobuf[P]())
}

// questions is a client of a resource that can be created only, with an empty object.
func questions[P object](c rest.Interface, resource string, one P) *gentype.Client[P] {
	return gentype.NewClient(resource, c, parameters, "", Like(one), gentype.PrefersProtobuf[P]())
}

// Like makes empty objects of the type of an empty one.
func Like[P runtime.Object](one P) func() P { return func() P { return one.DeepCopyObject().(P) } }

type admissionregistration struct{ c rest.Interface }

func (g admissionregistration) ValidatingAdmissionPolicies() Client[*admissionregistrationv1.ValidatingAdmissionPolicy,
	*admissionregistrationv1.ValidatingAdmissionPolicyList] {
	return objects(g.c, "validatingadmissionpolicies", "", &admissionregistrationv1.ValidatingAdmissionPolicy{},
		&admissionregistrationv1.ValidatingAdmissionPolicyList{})
}

func (g admissionregistration) ValidatingAdmissionPolicyBindings() Client[
	*admissionregistrationv1.ValidatingAdmissionPolicyBinding,
	*admissionregistrationv1.ValidatingAdmissionPolicyBindingList] {
	return objects(g.c, "validatingadmissionpolicybindings", "",
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBindingList{})
}

type apps struct{ c rest.Interface }

func (g apps) DaemonSets(namespace string) Client[*appsv1.DaemonSet, *appsv1.DaemonSetList] {
	return objects(g.c, "daemonsets", namespace, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{})
}

func (g apps) Deployments(namespace string) Client[*appsv1.Deployment, *appsv1.DeploymentList] {
	return objects(g.c, "deployments", namespace, &appsv1.Deployment{}, &appsv1.DeploymentList{})
}

func (g apps) StatefulSets(namespace string) Client[*appsv1.StatefulSet, *appsv1.StatefulSetList] {
	return objects(g.c, "statefulsets", namespace, &appsv1.StatefulSet{}, &appsv1.StatefulSetList{})
}

type authentication struct{ c rest.Interface }

func (g authentication) TokenReviews() Creator[*authenticationv1.TokenReview] {
	return questions(g.c, "tokenreviews", &authenticationv1.TokenReview{})
}

type authorization struct{ c rest.Interface }

func (g authorization) SubjectAccessReviews() Creator[*authorizationv1.SubjectAccessReview] {
	return questions(g.c, "subjectaccessreviews", &authorizationv1.SubjectAccessReview{})
}

type batch struct{ c rest.Interface }

func (g batch) Jobs(namespace string) Client[*batchv1.Job, *batchv1.JobList] {
	return objects(g.c, "jobs", namespace, &batchv1.Job{}, &batchv1.JobList{})
}

type coordination struct{ c rest.Interface }

func (g coordination) Leases(namespace string) Leases {
	return objects(g.c, "leases", namespace, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
}

type core struct{ c rest.Interface }

func (g core) ConfigMaps(namespace string) Client[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return objects(g.c, "configmaps", namespace, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
}

func (g core) Events(namespace string) Client[*corev1.Event, *corev1.EventList] {
	return objects(g.c, "events", namespace, &corev1.Event{}, &corev1.EventList{})
}

func (g core) Namespaces() Client[*corev1.Namespace, *corev1.NamespaceList] {
	return objects(g.c, "namespaces", "", &corev1.Namespace{}, &corev1.NamespaceList{})
}

func (g core) Nodes() Client[*corev1.Node, *corev1.NodeList] {
	return objects(g.c, "nodes", "", &corev1.Node{}, &corev1.NodeList{})
}

func (g core) PersistentVolumeClaims(namespace string) Client[*corev1.PersistentVolumeClaim,
	*corev1.PersistentVolumeClaimList] {
	return objects(g.c, "persistentvolumeclaims", namespace, &corev1.PersistentVolumeClaim{},
		&corev1.PersistentVolumeClaimList{})
}

func (g core) PersistentVolumes() Client[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return objects(g.c, "persistentvolumes", "", &corev1.PersistentVolume{}, &corev1.PersistentVolumeList{})
}

func (g core) Pods(namespace string) Pods {
	return pods{objects(g.c, "pods", namespace, &corev1.Pod{}, &corev1.PodList{})}
}

func (g core) Secrets(namespace string) Client[*corev1.Secret, *corev1.SecretList] {
	return objects(g.c, "secrets", namespace, &corev1.Secret{}, &corev1.SecretList{})
}

func (g core) ServiceAccounts(namespace string) ServiceAccounts {
	return serviceAccounts{objects(g.c, "serviceaccounts", namespace, &corev1.ServiceAccount{},
		&corev1.ServiceAccountList{})}
}

func (g core) Services(namespace string) Client[*corev1.Service, *corev1.ServiceList] {
	return objects(g.c, "services", namespace, &corev1.Service{}, &corev1.ServiceList{})
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

func (g endpoints) EndpointSlices(namespace string) Client[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	return objects(g.c, "endpointslices", namespace, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
}

type policy struct{ c rest.Interface }

func (g policy) PodDisruptionBudgets(namespace string) Client[*policyv1.PodDisruptionBudget,
	*policyv1.PodDisruptionBudgetList] {
	return objects(g.c, "poddisruptionbudgets", namespace, &policyv1.PodDisruptionBudget{},
		&policyv1.PodDisruptionBudgetList{})
}

type rbac struct{ c rest.Interface }

func (g rbac) ClusterRoleBindings() Client[*rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBindingList] {
	return objects(g.c, "clusterrolebindings", "", &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{})
}

func (g rbac) ClusterRoles() Client[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList] {
	return objects(g.c, "clusterroles", "", &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{})
}

func (g rbac) RoleBindings(namespace string) Client[*rbacv1.RoleBinding, *rbacv1.RoleBindingList] {
	return objects(g.c, "rolebindings", namespace, &rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{})
}

func (g rbac) Roles(namespace string) Client[*rbacv1.Role, *rbacv1.RoleList] {
	return objects(g.c, "roles", namespace, &rbacv1.Role{}, &rbacv1.RoleList{})
}

type resource struct{ c rest.Interface }

func (g resource) DeviceClasses() Client[*resourcev1.DeviceClass, *resourcev1.DeviceClassList] {
	return objects(g.c, "deviceclasses", "", &resourcev1.DeviceClass{}, &resourcev1.DeviceClassList{})
}

func (g resource) ResourceClaimTemplates(namespace string) Client[*resourcev1.ResourceClaimTemplate,
	*resourcev1.ResourceClaimTemplateList] {
	return objects(g.c, "resourceclaimtemplates", namespace, &resourcev1.ResourceClaimTemplate{},
		&resourcev1.ResourceClaimTemplateList{})
}

func (g resource) ResourceClaims(namespace string) ResourceClaims {
	return objects(g.c, "resourceclaims", namespace, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimList{})
}

func (g resource) ResourceSlices() Client[*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList] {
	return objects(g.c, "resourceslices", "", &resourcev1.ResourceSlice{}, &resourcev1.ResourceSliceList{})
}

type scheduling struct{ c rest.Interface }

func (g scheduling) PriorityClasses() Client[*schedulingv1.PriorityClass, *schedulingv1.PriorityClassList] {
	return objects(g.c, "priorityclasses", "", &schedulingv1.PriorityClass{}, &schedulingv1.PriorityClassList{})
}

type storage struct{ c rest.Interface }

func (g storage) CSIDrivers() Client[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return objects(g.c, "csidrivers", "", &storagev1.CSIDriver{}, &storagev1.CSIDriverList{})
}

func (g storage) CSINodes() Client[*storagev1.CSINode, *storagev1.CSINodeList] {
	return objects(g.c, "csinodes", "", &storagev1.CSINode{}, &storagev1.CSINodeList{})
}

func (g storage) CSIStorageCapacities(namespace string) Client[*storagev1.CSIStorageCapacity,
	*storagev1.CSIStorageCapacityList] {
	return objects(g.c, "csistoragecapacities", namespace, &storagev1.CSIStorageCapacity{},
		&storagev1.CSIStorageCapacityList{})
}

func (g storage) StorageClasses() Client[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return objects(g.c, "storageclasses", "", &storagev1.StorageClass{}, &storagev1.StorageClassList{})
}

func (g storage) VolumeAttachments() Client[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return objects(g.c, "volumeattachments", "", &storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{})
}
