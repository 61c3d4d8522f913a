package kube

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func rolePods(names ...string) (list []*pod) {
	for _, n := range names {
		kind, _, _ := strings.Cut(n, "-")
		list = append(list, &pod{obj: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n), Labels: map[string]string{"kind": kind}}}})
	}
	return list
}

func podNames(list []*pod) string {
	var s []string
	for _, p := range list {
		s = append(s, p.obj.Name)
	}
	return strings.Join(s, " ")
}

// A gang starts with as many pods of each role as it needs; with fewer it starts
// without the least important ones.
func TestPick(t *testing.T) {
	kind := func(p *v1.Pod) string { return p.Labels["kind"] }
	ready := rolePods("worker-0", "worker-1", "worker-2", "head-0", "other-0")
	for _, c := range []struct {
		lower      int
		list, lack string
		open       bool
	}{
		{9, "worker-0 worker-1 worker-2 head-0", "worker: 3 of 4", false},
		{4, "worker-0 worker-1 worker-2 head-0", "", true},
		{2, "worker-0 head-0", "", true},
		{1, "head-0", "", true},
	} {
		m := roled([]role{{"head", 1}, {"worker", 4}}, kind)
		m.lower(c.lower)
		list, lack := m.pick(ready)
		if podNames(list) != c.list || lack != c.lack || m.open != c.open {
			t.Errorf("at least %d: %s, lacks %q, open %v", c.lower, podNames(list), lack, m.open)
		}
		if whole := len(list) == m.size; whole != (lack == "") {
			t.Errorf("at least %d: %d pods of %d, lacks %q", c.lower, len(list), m.size, lack)
		}
	}
	m := membership{size: 3}
	if list, _ := m.pick(ready); podNames(list) != "worker-0 worker-1 worker-2" {
		t.Errorf("without roles: %s", podNames(list))
	}
}

// The place of a pod that is gone is for one of its role, if there is one.
func TestWanted(t *testing.T) {
	g := &gang{pods: map[types.UID]*pod{}, slots: []slot{{}, {pod: "worker-0"}, {}}}
	g.need = func() (membership, error) {
		return roled([]role{{"head", 1}, {"worker", 2}}, func(p *v1.Pod) string { return p.Labels["kind"] }), nil
	}
	for _, p := range rolePods("worker-0", "worker-1", "worker-2", "a-0", "head-0") {
		g.pods[p.obj.UID] = p
	}
	g.pods["worker-0"].node = "n1"
	if got := podNames(g.wanted()); got != "head-0 worker-1 a-0 worker-2" {
		t.Errorf("wanted: %s", got)
	}
}

// What is kept of an object is what is read of it.
func TestPrune(t *testing.T) {
	o := &unstructured.Unstructured{Object: object{"metadata": object{"name": "x", "managedFields": []any{object{"manager": "m"}}}, "spec": object{"replicatedJobs": []any{
		object{"name": "a", "replicas": int64(2), "template": object{"spec": object{"parallelism": int64(3), "template": object{"spec": object{"containers": []any{object{"name": "c"}}}}}}}}},
		"status": object{"conditions": []any{}}}}
	if _, err := prune(o); err != nil {
		t.Fatal(err)
	}
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, "containers") || strings.Contains(s, "manager") || strings.Contains(s, "conditions") {
		t.Errorf("left: %s", s)
	}
	r := listOf(o.Object, "spec", "replicatedJobs")
	if len(r) != 1 || numberOf(r[0], 1, "replicas") != 2 || numberOf(r[0], 1, "template", "spec", "parallelism") != 3 || textOf(r[0], "name") != "a" || numberOf(r[0], 7, "none") != 7 {
		t.Errorf("read: %v", r)
	}
}
