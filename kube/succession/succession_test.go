package succession

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
)

// of is a pod that something made; "": nothing did.
func of(name, kind, uid string, created int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(created, 0)}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, UID: types.UID(uid), Controller: ptr.To(true)}}
	}
	return p
}

func indexed(p *v1.Pod, i string) *v1.Pod {
	p.Annotations = map[string]string{"batch.kubernetes.io/job-completion-index": i}
	return p
}

// What pods have in common with those in their place does not depend on their order or names, where names are made up.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		gang string
		pods []*v1.Pod
		want string
	}{
		{"pod/a", []*v1.Pod{of("a-x1", "ReplicaSet", "r", 0)}, "r"},
		{"pod/a", []*v1.Pod{of("a", "", "", 0)}, ""},
		{"pod/a", []*v1.Pod{of("a-0", "StatefulSet", "s", 0)}, "s a-0"},
		{"pod/a", []*v1.Pod{indexed(of("a-x", "Job", "j", 0), "3")}, "j 3"},
		{"gang/g", []*v1.Pod{of("b", "Job", "2", 0), of("a", "Job", "1", 0), of("c", "Job", "2", 0)}, "1\n2\ngang/g"},
		{"gang/g", []*v1.Pod{of("b", "Job", "2", 0), of("a", "", "", 0)}, ""},
		{"jobset/u", []*v1.Pod{of("b", "Job", "2", 0), of("a", "Job", "1", 0)}, "jobset/u"},
	} {
		if got := Owners(c.gang, c.pods); got != c.want {
			t.Errorf("%s: %q, not %q", c.gang, got, c.want)
		}
	}
}

// An inheritance is given once, to pods of the same owner that were made after the gang was told to leave, the oldest
// first; and not for ever.
func TestMemory(t *testing.T) {
	var m Memory
	at := func(seconds int64) cluster.Time { return cluster.Time(seconds * int64(time.Second)) }
	leave := func(owner string, seconds int64) {
		l := &Inheritance{At: at(seconds), Parting: Of("pod/a", []*v1.Pod{of("a", "Job", owner, 0)}, at(seconds))}
		l.Work = time.Duration(seconds)
		m.Keep(l, at(seconds))
	}
	leave("j", 10)
	leave("k", 11)
	leave("j", 20)
	for i, c := range []struct {
		owner   string
		created int64
		want    time.Duration // 0: nothing is left to it
	}{{"j", 9, 0}, {"x", 30, 0}, {"j", 10, 10}, {"j", 19, 0}, {"j", 20, 20}, {"j", 20, 0}, {"k", 11, 11}} {
		l := m.Take(c.owner, []*v1.Pod{of("b", "Job", c.owner, 30), of("a", "Job", c.owner, c.created)})
		if l.KnownWork() != c.want {
			t.Errorf("%d: %+v", i, l)
		}
	}
	leave("old", 100)
	leave("new", 101+int64(kept/time.Second))
	if list := m.Kept(); len(list) != 1 || list[0].Owner != "new" {
		t.Errorf("%+v", list)
	}
	for i := range most + 5 {
		leave(fmt.Sprint(i), 200_000)
	}
	if list := m.Kept(); len(list) != most || list[0].Owner != "5" {
		t.Errorf("%d are kept, the first of %s", len(list), list[0].Owner)
	}
}
