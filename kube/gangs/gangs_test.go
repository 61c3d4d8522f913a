package gangs

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
)

func pods(names ...string) (list []*v1.Pod) {
	for _, n := range names {
		kind, _, _ := strings.Cut(n, "-")
		list = append(list, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n), Labels: map[string]string{"kind": kind}}})
	}
	return list
}

func names(pods []*v1.Pod, chosen []int) string {
	var s []string
	for _, i := range chosen {
		s = append(s, pods[i].Name)
	}
	return strings.Join(s, " ")
}

// A gang starts with as many pods of each role as it needs; with fewer it starts
// without the least important ones.
func TestPick(t *testing.T) {
	kind := func(p *v1.Pod) string { return p.Labels["kind"] }
	ready := pods("worker-0", "worker-1", "worker-2", "head-0", "other-0")
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
		m := roled([]Role{{"head", 1}, {"worker", 4}}, kind)
		m.lower(c.lower)
		list, lack := m.Pick(ready)
		if names(ready, list) != c.list || lack != c.lack || m.Open != c.open {
			t.Errorf("at least %d: %s, lacks %q, open %v", c.lower, names(ready, list), lack, m.Open)
		}
		if whole := len(list) == m.Size; whole != (lack == "") {
			t.Errorf("at least %d: %d pods of %d, lacks %q", c.lower, len(list), m.Size, lack)
		}
	}
	m := Membership{Size: 3}
	if list, _ := m.Pick(ready); names(ready, list) != "worker-0 worker-1 worker-2" {
		t.Errorf("without roles: %s", names(ready, list))
	}
}

// What is kept of an object is what is read of it.
func TestPrune(t *testing.T) {
	o := &unstructured.Unstructured{
		Object: map[string]any{
			"metadata": map[string]any{"name": "x", "managedFields": []any{map[string]any{"manager": "m"}}},
			"spec": map[string]any{"replicatedJobs": []any{
				map[string]any{"name": "a", "replicas": int64(2),
					"template": map[string]any{
						"spec": map[string]any{"parallelism": int64(3),
							"template": map[string]any{
								"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}}}}}}},
			"status": map[string]any{"conditions": []any{}}}}
	Prune(o)
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, "containers") || strings.Contains(s, "manager") ||
		strings.Contains(s, "conditions") {
		t.Errorf("left: %s", s)
	}
	r := listOf(o.Object, "spec", "replicatedJobs")
	if len(r) != 1 || numberOf(r[0], 1, "replicas") != 2 || numberOf(r[0], 1, "template", "spec", "parallelism") != 3 ||
		textOf(r[0], "name") != "a" || numberOf(r[0], 7, "none") != 7 {
		t.Errorf("read: %v", r)
	}
}

// one is a gang of one pod, for sources to look at.
type one struct{ pod *v1.Pod }

func (g one) ID() string         { return "one" }
func (g one) Members() []*v1.Pod { return []*v1.Pod{g.pod} }
func (g one) Ahead(int) int      { return 0 }

type noQueues struct{}

func (noQueues) Has(string) bool       { return false }
func (noQueues) List() []cluster.Queue { return []cluster.Queue{{Name: "a"}} }

func made(k *Kind, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": k.Group + "/" + k.Versions[0], "kind": k.Name, "spec": spec}}
	o.SetName("x")
	return o
}

// A group of pods says more than the owner of its pods: what it says of queue and class counts. Volcano's own default
// says nothing.
func TestWords(t *testing.T) {
	torch := kindNamed("kubeflow.org", "PyTorchJob")
	policy := map[string]any{"queue": "b", "priorityClass": "low"}
	for _, c := range []struct {
		group        map[string]any
		kai          string
		queue, class string
	}{
		{map[string]any{"queue": "a", "priorityClassName": "high"}, "kai", "a", "high"},
		{map[string]any{"queue": "default"}, "kai", "b", "kai"},
		{map[string]any{}, "", "b", "low"},
	} {
		all := NewObjects()
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{kaiPriority: c.kai}}}
		owner := made(torch, map[string]any{"runPolicy": map[string]any{"schedulingPolicy": policy}})
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "kubeflow.org/v1", Kind: "PyTorchJob", Name: "x", Controller: &yes}}
		all.Changed(torch.In("", "x"), owner)
		group := volcanoKind.In("", "x")
		all.Changed(group, made(volcanoKind, c.group))
		for _, class := range []string{"high", "low", "kai"} {
			all.Changed(priorityKind.In("", class),
				&unstructured.Unstructured{Object: map[string]any{"value": int64(len(class))}})
		}
		g := one{pod}
		origins, err := all.Origins(g, group, pod)
		if err != nil {
			t.Fatal(err)
		}
		value, class, is, err := all.Priority(g, group, origins)
		if class != c.class || value != int64(len(c.class)) || !is || err != nil {
			t.Errorf("%v: class %q (%d, %v, %v), not %q", c.group, class, value, is, err, c.class)
		}
		if q := all.Queue(g, "", origins, noQueues{}); q != c.queue {
			t.Errorf("%v: queue %q, not %q", c.group, q, c.queue)
		}
		if got := all.Users(group); len(got) != 1 || got[0] != "one" {
			t.Errorf("gangs that looked at the group: %v", got)
		}
		if all.Forget("one"); len(all.users)+len(all.looked) > 0 {
			t.Errorf("left: %v %v", all.users, all.looked)
		}
	}
}

// A source is its file and its line in the list: what it reads is watched, found as an owner, and asked.
func TestSource(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources {
		for _, k := range s.kinds {
			if len(k.Versions) == 0 || seen[k.String()] {
				t.Errorf("%s has no version, or stands in the list twice", k)
			}
			seen[k.String()] = true
			ref := &metav1.OwnerReference{APIVersion: k.Group + "/" + k.Versions[0], Kind: k.Name}
			if kindOf(ref) != k {
				t.Errorf("%s is not found as an owner", k)
			}
		}
	}
	if len(seen) != len(Kinds()) {
		t.Errorf("%d kinds are watched, of %d", len(Kinds()), len(seen))
	}
}
