package terms

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod is the same as long as nothing that people say of it is another; what the scheduler writes, and its state, do
// not count.
func TestSame(t *testing.T) {
	pod := func() *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{AnnotationModel: "m", AnnotationPlan: "p"}},
			Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}}}
	}
	for name, c := range map[string]struct {
		change func(p *v1.Pod)
		want   bool
	}{
		"nothing":         {func(*v1.Pod) {}, true},
		"its state":       {func(p *v1.Pod) { p.Status.Phase = v1.PodRunning; p.Spec.NodeName = "n" }, true},
		"its plan":        {func(p *v1.Pod) { p.Annotations[AnnotationPlan] = "q" }, true},
		"a plan is gone":  {func(p *v1.Pod) { delete(p.Annotations, AnnotationPlan) }, true},
		"an annotation":   {func(p *v1.Pod) { p.Annotations[AnnotationModel] = "n" }, false},
		"a label":         {func(p *v1.Pod) { p.Labels["a"] = "c" }, false},
		"a toleration":    {func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "k"}} }, false},
		"a node selector": {func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"k": "v"} }, false},
		"an owner":        {func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }, false},
		"its CPU, in other words": {func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1000m")
		}, true},
		"its CPU": {func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("2")
		}, false},
	} {
		p := pod()
		if c.change(p); Same(pod(), p) != c.want || Same(p, pod()) != c.want {
			t.Errorf("%s is another: it is the same: %v", name, !c.want)
		}
	}
}
