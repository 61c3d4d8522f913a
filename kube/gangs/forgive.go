package gangs

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Forgives reports whether what makes a pod makes another when it is evicted, and does
// not count that as a failure.
func (o *Objects) Forgives(obj *v1.Pod) bool {
	ref := metav1.GetControllerOf(obj)
	if ref == nil {
		return false
	}
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	switch {
	case group == "apps" && (ref.Kind == "ReplicaSet" || ref.Kind == "StatefulSet"), ref.APIVersion == "v1" &&
		ref.Kind == "ReplicationController":
		return true
	case group == "batch" && ref.Kind == "Job":
		j := o.Job(ref.UID)
		return j != nil && ignoresDisruption(j.Spec.PodFailurePolicy)
	}
	return false
}

// ignoresDisruption reports whether a Job does not count pods that were evicted: of
// its rules the first that holds counts, and by exit codes any may.
func ignoresDisruption(p *batchv1.PodFailurePolicy) bool {
	if p == nil {
		return false
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.OnExitCodes != nil {
			return false
		}
		if slices.ContainsFunc(r.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return c.Type == v1.DisruptionTarget && c.Status != v1.ConditionFalse
		}) {
			return r.Action == batchv1.PodFailurePolicyActionIgnore
		}
	}
	return false
}
