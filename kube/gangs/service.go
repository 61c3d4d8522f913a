package gangs

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
)

// Pods of Deployments (by their ReplicaSets) and StatefulSets are replicas of a
// service: each starts by itself.
func serviceOne(_ *Objects, obj *v1.Pod) *Claim {
	ref := metav1.GetControllerOf(obj)
	if ref == nil || !strings.HasPrefix(ref.APIVersion, "apps/") {
		return nil
	}
	return Alone(obj, Key{}, cluster.Service)
}
