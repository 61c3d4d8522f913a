package notices

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/patch"
)

// outboxWorkers is how many conditions are written at a time.
const outboxWorkers = 16

// outbox holds what waiting pods are to be told, which is written in its own time. A pod has one place in it: what is
// written late is written as it is by then. What is news to a pod goes before what only a part of its gang has missed.
type outbox struct {
	client kubeapi.Interface
	ready  chan struct{} // something is there for a worker

	mu      sync.Mutex
	letters map[types.UID]*Letter
	lines   [2][]types.UID // of news, and of the rest; one that is not in letters any more was written
}

// Letter is why a pod waits.
type Letter struct {
	Pod     *v1.Pod
	Text    string
	At      time.Time
	News    bool   // to the whole gang
	Changed func() // on a worker's goroutine: the pod is another by now, and was not told
}

func (o *outbox) init(client kubeapi.Interface) {
	o.client, o.letters, o.ready = client, map[types.UID]*Letter{}, make(chan struct{}, outboxWorkers)
}

// put queues what a pod is to be told.
func (o *outbox) put(l *Letter) {
	o.mu.Lock()
	was := o.letters[l.Pod.UID]
	if was != nil {
		l.News = l.News || was.News
	}
	if o.letters[l.Pod.UID] = l; was == nil || was.News != l.News {
		line := &o.lines[0]
		if !l.News {
			line = &o.lines[1]
		}
		*line = append(*line, l.Pod.UID)
	}
	o.mu.Unlock()
	select {
	case o.ready <- struct{}{}:
	default: // enough workers are awake
	}
}

// next takes what is to be written next; nil: nothing is.
func (o *outbox) next() *Letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.lines {
		for len(o.lines[i]) > 0 {
			uid := o.lines[i][0]
			o.lines[i] = o.lines[i][1:]
			if l := o.letters[uid]; l != nil {
				delete(o.letters, uid)
				return l
			}
		}
	}
	return nil
}

// run writes until the context ends.
func (o *outbox) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range outboxWorkers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-o.ready:
				}
				for l := o.next(); l != nil && ctx.Err() == nil; l = o.next() {
					o.write(ctx, l)
				}
			}
		})
	}
	workers.Wait()
}

// write writes the condition of a pod that waits. A pod that changed since, perhaps because it was bound, is left
// alone.
func (o *outbox) write(ctx context.Context, l *Letter) {
	change := patch.Condition(map[string]any{"uid": l.Pod.UID, "resourceVersion": l.Pod.ResourceVersion},
		v1.PodCondition{Type: v1.PodScheduled,
			Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: l.Text,
			LastTransitionTime: metav1.NewTime(l.At)})
	_, err := o.client.CoreV1().Pods(l.Pod.Namespace).Patch(ctx, l.Pod.Name, types.StrategicMergePatchType, change,
		metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		l.Changed()
	}
}
