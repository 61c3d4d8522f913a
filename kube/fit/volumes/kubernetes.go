package volumes

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// What Kubernetes' own controllers and schedulers agree on about volumes: they have it from storage/volume of
// k8s.io/component-helpers 0.37, which links the types of every group of the API.

const (
	// SelectedNode annotates a claim with the node for which its volume is to be made.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// NoProvisioner is what a storage class names whose volumes are not made on demand.
	NoProvisioner = "kubernetes.io/no-provisioner"
	// boundByController annotates a volume whose claim was chosen by a program rather than by a person.
	boundByController = "pv.kubernetes.io/bound-by-controller"
)

// className is the storage class that an object names; the annotation is older than the field, and goes before it.
func className(annotations map[string]string, field *string) string {
	if name, ok := annotations[v1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if field == nil {
		return ""
	}
	return *field
}

// classOfClaim is the name of the storage class of a claim; "": it has none.
func classOfClaim(c *v1.PersistentVolumeClaim) string {
	return className(c.Annotations, c.Spec.StorageClassName)
}

// classOfVolume is the name of the storage class of a volume; "": it has none.
func classOfVolume(v *v1.PersistentVolume) string {
	return className(v.Annotations, &v.Spec.StorageClassName)
}

// admits reports whether a volume can be used on a node with these labels. A rule that cannot be read admits none.
func admits(v *v1.PersistentVolume, labels map[string]string) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return true
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	ok, err := corev1helpers.MatchNodeSelectorTerms(node, v.Spec.NodeAffinity.Required)
	return ok && err == nil
}
