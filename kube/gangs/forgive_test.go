package gangs

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whose pods come back without that being counted against them is known of a few
// owners, and of Jobs by their podFailurePolicy: the first rule that can hold counts.
func TestForgives(t *testing.T) {
	on := func(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
				{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}}
	}
	codes := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
			Values: []int32{143}}}
	ignore := on(batchv1.PodFailurePolicyActionIgnore)
	objects := NewObjects()
	for _, c := range []struct {
		version, kind string
		rules         []batchv1.PodFailurePolicyRule
		want          bool
	}{
		{"apps/v1", "ReplicaSet", nil, true},
		{"apps/v1", "StatefulSet", nil, true},
		{"v1", "ReplicationController", nil, true},
		{"apps/v1", "DaemonSet", nil, false},
		{"example.com/v1", "ReplicaSet", nil, false},
		{"batch/v1", "Job", nil, false},
		{"batch/v1", "Job", []batchv1.PodFailurePolicyRule{ignore, codes}, true},
		{"batch/v1", "Job", []batchv1.PodFailurePolicyRule{codes, ignore}, false},
		{"batch/v1", "Job", []batchv1.PodFailurePolicyRule{on(batchv1.PodFailurePolicyActionCount), ignore}, false},
	} {
		yes, p := true, &v1.Pod{}
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: c.version, Kind: c.kind, Name: "o", UID: "o", Controller: &yes}}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "o"}}
		objects.JobChanged(job)
		if c.rules != nil {
			job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: c.rules}
		}
		if got := objects.Forgives(p); got != c.want {
			t.Errorf("%s %s %v: %v", c.version, c.kind, c.rules, got)
		}
	}
}
