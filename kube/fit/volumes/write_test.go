package volumes

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/fakekube"
)

// A driver that cannot make a volume after all takes back the annotation that asked for
// it: then the pod is not bound there, and is looked for another place.
func TestNotMade(t *testing.T) {
	c := fakekube.New(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}})
	w := Writer{Client: c}
	ctx, mounts := context.Background(), []Mount{{Claim: "c"}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	claim := func() *v1.PersistentVolumeClaim {
		now, err := c.CoreV1().PersistentVolumeClaims("default").Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	for range 2 {
		if err := w.Provide(ctx, pod, "n0000", mounts); !errors.Is(err, errNotYet) || !Again(err) ||
			claim().Annotations[SelectedNode] != "n0000" {
			t.Fatalf("it is asked for: %v, %v", err, claim().Annotations)
		}
	}
	now := claim()
	now.Annotations = nil
	if _, err := c.CoreV1().PersistentVolumeClaims("default").Update(ctx, now, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Provide(ctx, pod, "n0000", mounts); !errors.Is(err, errNotMade) || Again(err) {
		t.Errorf("it failed with %v", err)
	}
}
