package fit

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/gpus"
)

// A pod that a kubelet has to restart as a whole goes to nodes only that declare that they can, and it is
// looked at again when one comes to declare it.
func TestFeatures(t *testing.T) {
	all := NewNodes(&gpus.Names{})
	plain, whole := &Pod{Obj: &v1.Pod{}}, &Pod{Obj: &v1.Pod{}}
	whole.Obj.Spec.Containers = []v1.Container{{RestartPolicyRules: []v1.ContainerRestartRule{
		{Action: v1.ContainerRestartRuleActionRestartAllContainers}}}}
	old, now := &v1.Node{}, &v1.Node{}
	now.Status.DeclaredFeatures = []string{"Another", "RestartAllContainersOnContainerExits"}
	for _, c := range []struct {
		pod  *Pod
		node *v1.Node
		want string
	}{
		{plain, old, ""},
		{plain, now, ""},
		{whole, now, ""},
		{whole, old, "its kubelet does not declare RestartAllContainersOnContainerExits"},
	} {
		if got := all.Suits(c.pod, c.node); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
	if all.Key(plain) == all.Key(whole) {
		t.Error("they suit the same nodes by their keys")
	}
	if !all.Differ(old, now) || all.Differ(now, now.DeepCopy()) {
		t.Error("what a node declares makes no difference, or the same does")
	}
}
