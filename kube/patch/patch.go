// Package patch makes what is sent to the API server to change objects.
package patch

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JSON is a value as JSON. It consists of texts, numbers, and what came as JSON, all of which can be written.
func JSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// Condition sets a condition of a pod, if the pod is the one that these metadata name.
func Condition(metadata map[string]any, c v1.PodCondition) []byte {
	return JSON(map[string]any{"metadata": metadata, "status": map[string]any{"conditions": []v1.PodCondition{c}}})
}

// Disrupted says on a pod that its end is no fault of its own, which a Job's podFailurePolicy can leave uncounted;
// dead: its node is gone, and nothing else will say that it ended.
func Disrupted(obj *v1.Pod, dead bool, now time.Time) []byte {
	status := map[string]any{
		"conditions": []v1.PodCondition{
			{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "GangEndedByMuster",
				Message: "its gang cannot run as a whole", LastTransitionTime: metav1.NewTime(now)}}}
	if dead {
		status["phase"] = v1.PodFailed
	}
	return JSON(map[string]any{"metadata": map[string]any{"uid": obj.UID, "resourceVersion": obj.ResourceVersion},
		"status": status})
}

// DeleteAsSeen deletes a pod only if it is still as it was seen: what was decided of it may not hold for another, or
// for what it has become.
func DeleteAsSeen(obj *v1.Pod, seconds int64) *metav1.DeleteOptions {
	uid, version := obj.UID, obj.ResourceVersion
	return &metav1.DeleteOptions{GracePeriodSeconds: &seconds,
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}
