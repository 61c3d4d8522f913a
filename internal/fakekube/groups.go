package fakekube

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/testing"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// objects is a client of a resource, with an empty object and list.
func objects[P object, Q list](f *testing.Fake, resource, namespace string, one P, of Q,
) *gentype.FakeClientWithList[P, Q] {
	kinds, _, err := kubeapi.Scheme.ObjectKinds(one)
	if err != nil {
		panic(err)
	}
	return gentype.NewFakeClientWithList(f, namespace, kinds[0].GroupVersion().WithResource(resource), kinds[0],
		kubeapi.Like(one), kubeapi.Like(of), copyMeta[Q], items[P, Q], setItems[P, Q])
}

// object is an object of the API.
type object interface {
	runtime.Object
	metav1.Object
}

// list is a list of objects.
type list interface {
	runtime.Object
	metav1.ListInterface
}

func copyMeta[Q metav1.ListInterface](to, from Q) {
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetContinue(from.GetContinue())
	to.SetRemainingItemCount(from.GetRemainingItemCount())
}

func items[P, Q runtime.Object](of Q) (items []P) {
	err := meta.EachListItem(of, func(o runtime.Object) error {
		items = append(items, o.(P))
		return nil
	})
	if err != nil {
		panic(err)
	}
	return items
}

func setItems[P, Q runtime.Object](of Q, items []P) {
	all := make([]runtime.Object, len(items))
	for i := range items {
		all[i] = items[i]
	}
	if err := meta.SetList(of, all); err != nil {
		panic(err)
	}
}

type authentication struct{ f *testing.Fake }

func (g authentication) TokenReviews() kubeapi.Creator[*authenticationv1.TokenReview] {
	return gentype.NewFakeClient(g.f, "", authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"),
		authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		kubeapi.Like(&authenticationv1.TokenReview{}))
}

type batch struct{ f *testing.Fake }

func (g batch) Jobs(namespace string) kubeapi.Client[*batchv1.Job, *batchv1.JobList] {
	return objects(g.f, "jobs", namespace, &batchv1.Job{}, &batchv1.JobList{})
}

type core struct {
	kubeapi.CoreV1
	f *testing.Fake
}

func (g core) ConfigMaps(namespace string) kubeapi.Client[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return objects(g.f, "configmaps", namespace, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
}

func (g core) Events(namespace string) kubeapi.Client[*corev1.Event, *corev1.EventList] {
	return objects(g.f, "events", namespace, &corev1.Event{}, &corev1.EventList{})
}

func (g core) Namespaces() kubeapi.Client[*corev1.Namespace, *corev1.NamespaceList] {
	return objects(g.f, "namespaces", "", &corev1.Namespace{}, &corev1.NamespaceList{})
}

func (g core) Nodes() kubeapi.Client[*corev1.Node, *corev1.NodeList] {
	return objects(g.f, "nodes", "", &corev1.Node{}, &corev1.NodeList{})
}

func (g core) PersistentVolumeClaims(namespace string) kubeapi.Client[*corev1.PersistentVolumeClaim,
	*corev1.PersistentVolumeClaimList] {
	return objects(g.f, "persistentvolumeclaims", namespace, &corev1.PersistentVolumeClaim{},
		&corev1.PersistentVolumeClaimList{})
}

func (g core) PersistentVolumes() kubeapi.Client[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return objects(g.f, "persistentvolumes", "", &corev1.PersistentVolume{}, &corev1.PersistentVolumeList{})
}

func (g core) Pods(namespace string) kubeapi.Pods {
	return pods{objects(g.f, "pods", namespace, &corev1.Pod{}, &corev1.PodList{})}
}

type pods struct {
	*gentype.FakeClientWithList[*corev1.Pod, *corev1.PodList]
}

func (c pods) Bind(_ context.Context, binding *corev1.Binding, _ metav1.CreateOptions) error {
	return c.on(binding.Namespace, "binding", binding)
}

func (c pods) EvictV1(_ context.Context, eviction *policyv1.Eviction) error {
	return c.on(c.Namespace(), "eviction", eviction)
}

// on creates a subresource of a pod.
func (c pods) on(namespace, subresource string, obj runtime.Object) error {
	do := testing.CreateActionImpl{Object: obj}
	do.Verb, do.Namespace, do.Resource, do.Subresource = "create", namespace, c.Resource(), subresource
	_, err := c.Invokes(do, obj)
	return err
}

type storage struct{ f *testing.Fake }

func (g storage) CSIDrivers() kubeapi.Client[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return objects(g.f, "csidrivers", "", &storagev1.CSIDriver{}, &storagev1.CSIDriverList{})
}

func (g storage) CSINodes() kubeapi.Client[*storagev1.CSINode, *storagev1.CSINodeList] {
	return objects(g.f, "csinodes", "", &storagev1.CSINode{}, &storagev1.CSINodeList{})
}

func (g storage) CSIStorageCapacities(namespace string) kubeapi.Client[*storagev1.CSIStorageCapacity,
	*storagev1.CSIStorageCapacityList] {
	return objects(g.f, "csistoragecapacities", namespace, &storagev1.CSIStorageCapacity{},
		&storagev1.CSIStorageCapacityList{})
}

func (g storage) StorageClasses() kubeapi.Client[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return objects(g.f, "storageclasses", "", &storagev1.StorageClass{}, &storagev1.StorageClassList{})
}

func (g storage) VolumeAttachments() kubeapi.Client[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return objects(g.f, "volumeattachments", "", &storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{})
}
