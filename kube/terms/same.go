package terms

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-gpu/muster/kube/gpus"
)

// Same reports whether two states of a pod are the same in all that a scheduler reads of it.
func Same(a, b *v1.Pod) bool {
	x, y := &a.Spec, &b.Spec
	return maps.Equal(a.Labels, b.Labels) && sameNotes(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		equality.Semantic.DeepEqual(x.Tolerations, y.Tolerations) && maps.Equal(x.NodeSelector, y.NodeSelector) &&
		equality.Semantic.DeepEqual(x.Affinity, y.Affinity) &&
		equality.Semantic.DeepEqual(x.ActiveDeadlineSeconds, y.ActiveDeadlineSeconds) &&
		equality.Semantic.DeepEqual(gpus.Requests(a), gpus.Requests(b))
}

// sameNotes compares annotations but for those that Muster writes itself.
func sameNotes(a, b map[string]string) bool {
	if maps.Equal(a, b) {
		return true
	}
	people := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(key, _ string) bool { return Written(key) })
		return m
	}
	return maps.Equal(people(a), people(b))
}
