package controlplane

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestPlanes: a plane is one test's at a time, has the options that were asked for, and is used again unless its test
// failed; what it consists of ends in reverse.
func TestPlanes(t *testing.T) {
	s, plain, more := &Planes{}, Options{Controllers: true}, Options{Controllers: true, Args: []string{"--v=1"}}
	first, second := s.free(plain), s.free(plain)
	if first == second || s.free(more) == second || s.free(Options{}) == second {
		t.Error("two tests have the same plane")
	}
	first.taken = false
	if s.free(more) == first || s.free(plain) != first {
		t.Error("what is free goes to a test with other options, or to none")
	}
	var ended []int
	for i := range 2 {
		(&outlasting{Host: t, reused: second}).Cleanup(func() { ended = append(ended, i) })
	}
	s.giveBack(t, second) // it was never started
	if !slices.Equal(ended, []int{1, 0}) || slices.Contains(s.list, second) {
		t.Errorf("a plane that did not start is kept, or %v ended", ended)
	}
	if s.End(); len(s.list) > 0 {
		t.Errorf("%d planes are left", len(s.list))
	}
}

// TestKubernetesOwn: what Kubernetes makes by itself stays on a plane, and nothing else does.
func TestKubernetesOwn(t *testing.T) {
	for _, c := range []struct {
		resource, namespace, name string
		own                       bool
	}{
		{"namespaces", "", "kube-node-lease", true},
		{"namespaces", "", "default", true},
		{"namespaces", "", "team", false},
		{"serviceaccounts", "team", "default", true},
		{"serviceaccounts", "default", "muster", false},
		{"configmaps", "default", "kube-root-ca.crt", true},
		{"configmaps", "default", "muster-power", false},
		{"leases", "kube-system", "muster", false},
		{"leases", "kube-system", "apiserver-x", true},
		{"services", "default", "kubernetes", true},
		{"services", "kube-system", "muster-view", false},
		{"apiservices", "", "v1.view.muster.sh", false},
		{"flowschemas", "", "muster", false},
		{"nodes", "", "n1", false},
	} {
		o := metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}
		if kubernetesOwn(schema.GroupVersionResource{Version: "v1", Resource: c.resource}, &o) != c.own {
			t.Errorf("%s %s/%s: %v", c.resource, c.namespace, c.name, !c.own)
		}
	}
}
