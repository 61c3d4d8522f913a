package gangs

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The driver of a Spark application and its executors, which the driver's pod owns, start by themselves, in the queue
// and with the priority that the application states.
func TestSpark(t *testing.T) {
	all := NewObjects()
	app := sparkKind.In("team", "etl")
	all.Changed(app, made(sparkKind, map[string]any{
		"batchSchedulerOptions": map[string]any{"queue": "a", "priorityClassName": "high"}}))
	all.Changed(priorityKind.In("", "high"), &unstructured.Unstructured{Object: map[string]any{"value": int64(7)}})
	yes := true
	for role, owner := range map[string]metav1.OwnerReference{
		"driver":   {APIVersion: "sparkoperator.k8s.io/v1beta2", Kind: "SparkApplication", Name: "etl", Controller: &yes},
		"executor": {APIVersion: "v1", Kind: "Pod", Name: "etl-driver", Controller: &yes},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: role, UID: "1",
			Labels:          map[string]string{sparkApp: "etl", "spark-role": role},
			OwnerReferences: []metav1.OwnerReference{owner}}}
		c := all.Of(pod)
		m, err := c.Need(one{pod})
		if c.Key != "pod/1" || c.Object != app || m.Size != 1 || err != nil {
			t.Errorf("%s: %+v of %v, %v", role, c, m.Size, err)
		}
		origins, err := all.Origins(one{pod}, c.Object, pod)
		if err != nil {
			t.Fatal(err)
		}
		if q := all.Queue(one{pod}, "team", origins, noQueues{}); q != "a" {
			t.Errorf("%s: queue %q", role, q)
		}
		value, class, _, err := all.Priority(one{pod}, c.Object, origins)
		if value != 7 || class != "high" || err != nil {
			t.Errorf("%s: priority %d of class %q, %v", role, value, class, err)
		}
	}
}
