// Package notices writes what people and other schedulers are told: conditions of pods, events, the nodes to which pods
// will go, and the status of Queue objects. It writes in its own time, and scheduling does not wait for it.
package notices

import (
	"context"
	"encoding/json"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/record"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/patch"
)

// mostQueued bounds what is yet to be written besides letters.
const mostQueued = 1024

// Writer writes them.
type Writer struct {
	client kubeapi.Interface // nil: nothing is written
	queue  chan func(context.Context)
	box    outbox
	rec    record.EventRecorder
	cast   record.EventBroadcaster
}

// New writes by a client, nil: nothing; its events are this component's.
func New(client kubeapi.Interface, component string) *Writer {
	w := &Writer{client: client, queue: make(chan func(context.Context), mostQueued)}
	w.box.init(client)
	if client != nil {
		w.cast = record.NewBroadcaster()
		w.rec = w.cast.NewRecorder(kubeapi.Scheme, v1.EventSource{Component: component})
	}
	return w
}

// By writes events only, by a recorder.
func By(rec record.EventRecorder) *Writer { return &Writer{rec: rec} }

// Run writes until the context ends.
func (w *Writer) Run(ctx context.Context) {
	if w.client == nil {
		return
	}
	w.cast.StartRecordingToSink(eventSink{w.client})
	defer w.cast.Shutdown()
	var box sync.WaitGroup
	box.Go(func() { w.box.run(ctx) })
	defer box.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-w.queue:
			f(ctx)
		}
	}
}

// Full reports whether so many more cannot be queued.
func (w *Writer) Full(n int) bool { return len(w.queue)+n > cap(w.queue) }

// Event is an event of an object.
func (w *Writer) Event(obj runtime.Object, kind, reason, text string) {
	if w.rec != nil {
		w.rec.Event(obj, kind, reason, text)
	}
}

// Owner is an event of what owns a pod.
func (w *Writer) Owner(obj *v1.Pod, kind, reason, text string) {
	if ref := metav1.GetControllerOf(obj); ref != nil {
		w.Event(&v1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: obj.Namespace,
			Name: ref.Name, UID: ref.UID}, kind, reason, text)
	}
}

// Put queues why a pod waits.
func (w *Writer) Put(l *Letter) { w.box.put(l) }

// Unscheduled is what a pod's condition says of why it waits.
func Unscheduled(obj *v1.Pod) string {
	for i := range obj.Status.Conditions {
		if c := &obj.Status.Conditions[i]; c.Type == v1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// Condition writes a condition of a pod.
func (w *Writer) Condition(obj *v1.Pod, c v1.PodCondition) {
	w.status(obj, patch.Condition(map[string]any{"uid": obj.UID}, c))
}

// Nominate writes to which node a pod will go; "": to none that is known. If there is much to write already, it is left
// out, and false is returned: nothing depends on it but what others guess.
func (w *Writer) Nominate(obj *v1.Pod, node string) bool {
	if w.client == nil || w.Full(1) {
		return false
	}
	var value any
	if node != "" {
		value = node
	}
	w.status(obj, patch.JSON(map[string]any{"metadata": map[string]any{"uid": obj.UID},
		"status": map[string]any{"nominatedNodeName": value}}))
	return true
}

// status changes the status of a pod.
func (w *Writer) status(obj *v1.Pod, change []byte) {
	w.queue <- func(ctx context.Context) {
		_, _ = w.client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.StrategicMergePatchType, change,
			metav1.PatchOptions{}, "status")
	}
}

// Status writes the status of an object that has no namespace. What fails is written again later. null are fields that
// are written even where the status has none: a merge keeps what it does not name.
func (w *Writer) Status(client dynamic.Interface, of schema.GroupVersionResource, name string, s any, null ...string) {
	fields := map[string]any{}
	for _, key := range null {
		fields[key] = nil
	}
	if err := json.Unmarshal(patch.JSON(s), &fields); err != nil {
		panic(err) // it was JSON a moment ago
	}
	text := patch.JSON(map[string]any{"status": fields})
	w.queue <- func(ctx context.Context) {
		_, _ = client.Resource(of).Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
	}
}
