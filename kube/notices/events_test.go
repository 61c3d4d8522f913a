package notices

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/fakekube"
)

// Each event is written into its own namespace.
func TestEventSink(t *testing.T) {
	c := fakekube.New()
	s := eventSink{c}
	e := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}, Message: "it waits"}
	if _, err := s.Create(e); err != nil {
		t.Fatal(err)
	}
	e = e.DeepCopy()
	e.Reason = "Waits"
	if _, err := s.Update(e); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Patch(e, []byte(`{"count":2}`)); err != nil || e.Count != 2 {
		t.Errorf("%v, %v", e, err)
	}
	got, err := c.CoreV1().Events("a").Get(t.Context(), "e", metav1.GetOptions{})
	if err != nil || got.Message != "it waits" || got.Reason != "Waits" || got.Count != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
