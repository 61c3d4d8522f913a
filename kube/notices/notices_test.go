package notices

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// Where there is much to write already, or nothing is written at all, a nomination counts as unsaid.
func TestNominate(t *testing.T) {
	if New(nil, "muster").Nominate(&v1.Pod{}, "n1") {
		t.Error("without a client it is written")
	}
	w := New(kubeapi.Must(&rest.Config{}), "muster")
	w.queue = make(chan func(context.Context), 2)
	for i, want := range []bool{true, true, false} {
		if got := w.Nominate(&v1.Pod{}, "n1"); got != want {
			t.Errorf("%d: %v", i, got)
		}
	}
	if len(w.queue) != 2 {
		t.Errorf("%d are queued", len(w.queue))
	}
}

// What is news goes first; a pod has one place, and is told the latest.
func TestOutbox(t *testing.T) {
	var o outbox
	o.init(nil)
	for _, c := range []struct {
		name, text string
		news       bool
	}{{"a", "1", false}, {"b", "1", false}, {"c", "1", true}, {"b", "2", true}, {"a", "2", false}, {"c", "2", false}} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.name, UID: types.UID(c.name)}}
		o.put(&Letter{Pod: pod, Text: c.text, News: c.news})
	}
	var order []string
	for l := o.next(); l != nil; l = o.next() {
		order = append(order, l.Pod.Name+l.Text)
	}
	if want := []string{"c2", "b2", "a2"}; !slices.Equal(order, want) {
		t.Errorf("%v, not %v", order, want)
	}
}
