package traffic

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/terms"
)

// What pods are told when they start says later what they started with; what they are told while they run has nothing
// that libraries read only once.
func TestMarks(t *testing.T) {
	q := config.DefaultQoS()
	m := &Marks{QoS: &q, Now: func() time.Time { return time.Unix(7, 0) },
		Sign: func(_ *v1.Pod, annotation, text string, now time.Time) string {
			return annotation + text + now.UTC().Format("05")
		}}
	obj := &v1.Pod{}
	at := m.AtStart(obj, &cluster.Treatment{Class: 1, Spread: 4})
	if at[terms.AnnotationDSCP+terms.SealSuffix] != terms.AnnotationDSCP+at[terms.AnnotationDSCP]+"07" {
		t.Errorf("%v", at)
	}
	later := m.Notes(obj, &cluster.Treatment{Class: 1})
	if _, known := later[terms.AnnotationTC]; known || later[terms.AnnotationClass] != "1" {
		t.Errorf("%v", later)
	}
	maps.Copy(at, later)
	obj.Annotations = at
	if got := m.StartedWith([]*v1.Pod{{}, obj}); got.Class != 1 || got.Spread != 4 {
		t.Errorf("%+v", got)
	}
	if got := m.StartedWith([]*v1.Pod{{}}); got.Class != 0 || got.Spread != 0 {
		t.Errorf("%+v", got)
	}
	plain := m.AtStart(&v1.Pod{}, &cluster.Treatment{})
	for key, want := range map[string]string{terms.AnnotationClass: "0", terms.AnnotationDSCP: "cs0",
		terms.AnnotationTC: "0", terms.AnnotationFIFO: "0", terms.AnnotationSL: "0", terms.AnnotationQPs: "1"} {
		if plain[key] != want {
			t.Errorf("%s is %q, not %q", key, plain[key], want)
		}
	}
}
