package write

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/fakekube"
)

// A binding that the API server calls a conflict is looked at: its store may have
// failed, and then it is tried again.
func TestConflict(t *testing.T) {
	storeFails := apierrors.NewConflict(v1.Resource("pods/binding"), "p",
		errors.New("rpc error: code = Unavailable desc = error reading from server: EOF"))
	for name, c := range map[string]struct {
		change func(*v1.Pod)
		tries  int
		fails  bool
	}{
		"the store failed":       {func(*v1.Pod) {}, 2, false},
		"it was our own success": {func(p *v1.Pod) { p.Spec.NodeName = "n1" }, 1, false},
		"another was quicker":    {func(p *v1.Pod) { p.Spec.NodeName = "n2" }, 1, true},
		"it is another pod":      {func(p *v1.Pod) { p.UID = "other" }, 1, true},
		"it is being deleted":    {func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, 1, true},
		"it has a gate": {func(p *v1.Pod) {
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}}
		}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := controlplane.Pod("p", 1, nil)
			pod.UID = "own"
			now := pod.DeepCopy()
			c.change(now)
			client := fakekube.New(now)
			tries := 0
			client.PrependReactor("create", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
				if tries++; tries == 1 {
					return true, nil, storeFails
				}
				return true, nil, nil
			})
			err := New(Options{Client: client}).bindNow(t.Context(), &Binding{Pod: pod, Node: "n1"})
			if tries != c.tries || (err != nil) != c.fails {
				t.Errorf("%d tries, then %v", tries, err)
			}
		})
	}
}

// What is refused as it was asked for soon after is asked again after a while that grows, up to half a minute.
func TestAfter(t *testing.T) {
	l, changed := &Departure{}, apierrors.NewConflict(schema.GroupResource{}, "p", errors.New("changed"))
	if a, b := l.After(changed, 0), l.After(changed, 100); a.Milliseconds() != 100 || b.Seconds() != 10 {
		t.Errorf("after a conflict %v, then %v", a, b)
	}
	if a, b := l.After(errors.New("x"), 0), l.After(errors.New("x"), 100); a.Seconds() != 1 || b.Seconds() != 30 {
		t.Errorf("else %v, then %v", a, b)
	}
}

// Pods that are over use nothing of a node, whatever they asked for.
func TestUnused(t *testing.T) {
	over := controlplane.Pod("over", 1, nil)
	over.Status.Phase = v1.PodSucceeded
	w := New(Options{Client: fakekube.New(over)})
	all := func(*v1.Pod) bool { return true }
	if err := w.Unused(t.Context(), "", all); err != nil {
		t.Error(err)
	}
	w = New(Options{Client: fakekube.New(over, controlplane.Pod("p", 1, nil))})
	if w.Unused(t.Context(), "", all) == nil || w.Unused(t.Context(), "", func(*v1.Pod) bool { return false }) != nil {
		t.Error("a pod that has something of the node is not seen, or one that has nothing is")
	}
}
