package watch

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// A relist tells of a pod that took the name of another as of one that changed.
func TestAnother(t *testing.T) {
	var saw []string
	name := func(obj any) string {
		if p, ok := obj.(*v1.Pod); ok {
			return string(p.UID)
		}
		return "none"
	}
	w := watched{changed: func(old, obj any) { saw = append(saw, "changed "+name(old)+" "+name(obj)) },
		gone: func(obj any) { saw = append(saw, "gone "+name(obj)) }}
	a, b := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "b"}}
	h := w.handler()
	h.OnAdd(a, false)
	h.OnUpdate(a, a)
	h.OnUpdate(a, b)
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: b})
	if want := []string{"changed none a", "changed a a", "gone a", "changed none b", "gone b"}; !slices.Equal(saw,
		want) {
		t.Errorf("%q, not %q", saw, want)
	}
}

// The same capacity said once more is no change: drivers say it every minute. More of it is one, and so is anything
// else.
func TestDiffering(t *testing.T) {
	changes := 0
	w := differing(watched{changed: func(_, _ any) { changes++ }})
	size := resource.MustParse("9Gi")
	c := &storagev1.CSIStorageCapacity{StorageClassName: "c", Capacity: &size}
	w.changed(nil, c)
	w.changed(c, c.DeepCopy())
	if changes != 1 {
		t.Errorf("%d changes, not 1", changes)
	}
	more, larger := c.DeepCopy(), resource.MustParse("10Gi")
	more.Capacity = &larger
	w.changed(c, more)
	w.changed(&v1.PersistentVolume{}, &v1.PersistentVolume{})
	if changes != 3 {
		t.Errorf("%d changes, not 3", changes)
	}
}
