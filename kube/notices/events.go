package notices

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// eventSink writes events, each into its namespace.
type eventSink struct{ client kubeapi.Interface }

func (s eventSink) Create(e *v1.Event) (*v1.Event, error) {
	return s.client.CoreV1().Events(e.Namespace).Create(context.Background(), e, metav1.CreateOptions{})
}

func (s eventSink) Update(e *v1.Event) (*v1.Event, error) {
	return s.client.CoreV1().Events(e.Namespace).Update(context.Background(), e, metav1.UpdateOptions{})
}

func (s eventSink) Patch(e *v1.Event, change []byte) (*v1.Event, error) {
	return s.client.CoreV1().Events(e.Namespace).Patch(context.Background(), e.Name, types.StrategicMergePatchType,
		change, metav1.PatchOptions{})
}
