package controlplane

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// RunFor is the annotation of a pod that ends by itself, with the time after which it does.
const RunFor = "test.muster.sh/run"

// player does for pods what the kubelets of their nodes would: a pod runs as soon as it is bound, ends by itself
// at its time, and disappears when it is deleted. Pods of a missing node are left alone. KWOK, which simulates
// the nodes, could do that as well, but it acts by name on what it read a while ago: it may act on an earlier
// pod of the same name, and forget a pod for good. Here every step is for exactly the object that was read, and
// failed steps are retried.
type player struct {
	client kubeapi.Interface
	pods   cache.Indexer
	nodes  cache.Store
	queue  workqueue.TypedDelayingInterface[string] // pods to check, by namespace/name

	mu   sync.Mutex
	ends map[types.UID]bool // running pods that end by themselves: whether it is time
}

const (
	byNode      = "node"
	playWorkers = 16
	playAgain   = 100 * time.Millisecond // after a failed step
)

// play simulates the pods until the test ends.
func (p *Plane) play() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	stop, err := playPods(ctx, p.Client())
	if err != nil {
		cancel()
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		cancel()
		stop()
	})
}

// playPods simulates the pods until the context ends; the function that it returns waits for the last step.
func playPods(ctx context.Context, client kubeapi.Interface) (wait func(), err error) {
	s := &kubeapi.Informers{}
	pods := s.Add(kubeapi.Inform(client, client.CoreV1().Pods(v1.NamespaceAll), &v1.Pod{}, nil), nil)
	nodes := s.Add(kubeapi.Inform(client, client.CoreV1().Nodes(), &v1.Node{}, nil), nil)
	pl := &player{client: client, pods: pods.GetIndexer(), nodes: nodes.GetStore(), ends: map[types.UID]bool{},
		queue: workqueue.NewTypedDelayingQueue[string]()}
	err = pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		if pod, ok := obj.(*v1.Pod); ok {
			return []string{pod.Spec.NodeName}, nil
		}
		return nil, nil
	}})
	if err == nil {
		_, err = pods.AddEventHandler(
			cache.ResourceEventHandlerFuncs{AddFunc: pl.look, UpdateFunc: func(_, obj any) {
				pl.look(obj)
			}, DeleteFunc: pl.forget})
	}
	if err == nil {
		_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: pl.nodeCame})
	}
	if err != nil {
		return nil, err
	}
	s.Start(ctx)
	var wg sync.WaitGroup
	for range playWorkers {
		wg.Go(func() { pl.work(ctx) })
	}
	wg.Go(func() {
		<-ctx.Done()
		pl.queue.ShutDown()
		s.Wait()
	})
	return wg.Wait, nil
}

func (pl *player) look(obj any) {
	if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" {
		pl.queue.Add(cache.MetaObjectToName(pod).String())
	}
}

func (pl *player) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if pod, ok := obj.(*v1.Pod); ok {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		delete(pl.ends, pod.UID)
	}
}

// nodeCame checks the pods of a node that is back.
func (pl *player) nodeCame(obj any) {
	n, ok := obj.(*v1.Node)
	if !ok {
		return
	}
	list, _ := pl.pods.ByIndex(byNode, n.Name) // it fails only without the index
	for _, pod := range list {
		pl.look(pod)
	}
}

func (pl *player) work(ctx context.Context) {
	for {
		key, over := pl.queue.Get()
		if over {
			return
		}
		if again := pl.step(ctx, key); again > 0 {
			pl.queue.AddAfter(key, again)
		}
		pl.queue.Done(key)
	}
}

// step does what is due for a pod, and returns after what time to try again if it failed; 0: it need not be.
func (pl *player) step(ctx context.Context, key string) time.Duration {
	obj, ok, _ := pl.pods.GetByKey(key)
	pod, is := obj.(*v1.Pod)
	if !ok || !is || pod.Spec.NodeName == "" {
		return 0
	}
	if _, there, _ := pl.nodes.GetByKey(pod.Spec.NodeName); !there {
		return 0
	}
	var err error
	switch leaves, phase := pod.DeletionTimestamp != nil, pod.Status.Phase; {
	case leaves && phase == v1.PodRunning:
		err = pl.become(ctx, pod, v1.PodStatus{Phase: v1.PodFailed})
	case leaves:
		err = pl.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case phase == v1.PodPending:
		at := metav1.Now() // the kubelet's own clock
		err = pl.become(ctx, pod, v1.PodStatus{Phase: v1.PodRunning, StartTime: &at,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at}}})
	case phase == v1.PodRunning && pl.isDue(pod, key):
		err = pl.become(ctx, pod, v1.PodStatus{Phase: v1.PodSucceeded})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return playAgain
	}
	return 0
}

// isDue reports whether a running pod ends now. One that ends later is checked again then.
func (pl *player) isDue(pod *v1.Pod, key string) bool {
	d, err := time.ParseDuration(pod.Annotations[RunFor])
	if err != nil {
		return false
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	due, known := pl.ends[pod.UID]
	if !known {
		pl.ends[pod.UID] = false
		time.AfterFunc(d, func() { pl.due(pod.UID, key) })
	}
	return due
}

// due records that a pod's run time is over.
func (pl *player) due(uid types.UID, key string) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if _, there := pl.ends[uid]; there {
		pl.ends[uid] = true
		pl.queue.Add(key)
	}
}

// become writes the status of a pod, if the pod is unchanged since it was read.
func (pl *player) become(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	fields := map[string]any{"phase": status.Phase}
	if status.StartTime != nil {
		fields["startTime"], fields["conditions"] = status.StartTime, status.Conditions
	}
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
			"status": fields})
	if err != nil {
		return err
	}
	_, err = pl.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}
