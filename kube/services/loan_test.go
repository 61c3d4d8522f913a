package services

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/kubetest"
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/terms"
)

// queue is requests that wait for servers, each of which answers one in 0.1 s.
type queue struct {
	*bench
	mu      sync.Mutex
	rate    float64
	waiting float64
	servers map[types.UID]*httptest.Server
	ahead   atomic.Int64            // of time, nanoseconds: the clock of what scales services
	done    map[types.UID][]float64 // answers, by the time that they took
}

// queueBounds are the bounds of the servers' histogram, in seconds.
var queueBounds = []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, math.Inf(1)}

// answer lets the servers answer what arrived.
func (q *queue) answer(seconds float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting += q.rate * seconds
	all := 10 * float64(len(q.servers))
	if all == 0 {
		return
	}
	took := 0.09 + max(0, q.waiting-q.rate*seconds)/all
	n := min(q.waiting, all*seconds)
	q.waiting -= n
	for uid := range q.servers {
		for i, bound := range queueBounds {
			if took <= bound {
				q.done[uid][i] += n / float64(len(q.servers))
				break
			}
		}
	}
}

// play gives each running pod of the service a server, until the context ends.
func (q *queue) play(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	changed := make(chan struct{}, 1)
	watching.Go(func() { q.follow(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, changed) })
	watching.Go(func() { ticks(ctx, q.answer) })
	for again(ctx, changed) {
		list, err := q.c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=chat"})
		if err != nil {
			kubetest.Tell(changed)
			continue
		}
		there := map[types.UID]bool{}
		for i := range list.Items {
			p := &list.Items[i]
			there[p.UID] = p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil
			q.mu.Lock()
			s := q.servers[p.UID]
			q.mu.Unlock()
			if !there[p.UID] || s != nil {
				continue
			}
			s = httptest.NewServer(q.metrics(p.UID))
			_, port, _ := strings.Cut(s.Listener.Addr().String(), ":")
			_, err := q.c.CoreV1().Pods("default").Patch(ctx, p.Name, types.MergePatchType, patch.JSON(map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{"prometheus.io/port": port}}}),
				metav1.PatchOptions{})
			if err == nil {
				err = q.become(ctx, "default", p.Name, v1.PodStatus{PodIP: "127.0.0.1",
					PodIPs: []v1.PodIP{{IP: "127.0.0.1"}}})
			}
			if err != nil {
				s.Close()
				kubetest.Tell(changed)
				continue
			}
			q.mu.Lock()
			q.servers[p.UID], q.done[p.UID] = s, make([]float64, len(queueBounds))
			q.mu.Unlock()
		}
		q.mu.Lock()
		for uid, s := range q.servers {
			if !there[uid] {
				s.Close()
				delete(q.servers, uid)
			}
		}
		q.mu.Unlock()
	}
}

// metrics publishes what a server answered, as vLLM does.
func (q *queue) metrics(uid types.UID) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		q.mu.Lock()
		defer q.mu.Unlock()
		n, text := 0.0, "# TYPE vllm:e2e_request_latency_seconds histogram\n"
		for i, bound := range queueBounds {
			n += q.done[uid][i]
			le := fmt.Sprint(bound)
			text += fmt.Sprintf("vllm:e2e_request_latency_seconds_bucket{le=%q} %d\n", le, int(n))
		}
		fmt.Fprintf(w, "%svllm:e2e_request_latency_seconds_count %d\nvllm:e2e_request_latency_seconds_sum 1\n"+
			"# TYPE vllm:request_success_total counter\nvllm:request_success_total %d\n"+
			"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting %g\n", text, int(n), int(n),
			math.Floor(q.waiting/float64(max(1, len(q.servers)))))
	})
}

// lending is a service that lends what it does not use.
const lending = `
name: chat
queue: prod
tier: critical
latency: 5s
percentile: 90
replicas: {min: 1, max: 4}
lend: {within: 20s}
scaling: muster:window=2s
variants:
- {name: chat, profile: [{batch: 1, latency: 100ms}]}
`

// TestLending: what a service does not use, training of another queue has. When requests come, training leaves within
// the time that the service promises itself, and comes again when they are over. The goal is kept, and all is told.
// Then whole servers are lent. Then it is MIG and two models of GPUs that a service can have.
func TestLending(t *testing.T) {
	t.Parallel()
	plane := controlplane.Start(t, controlplane.Options{Controllers: true})
	b := &bench{T: t, p: plane, ctx: t.Context(), c: plane.Client()}
	b.dyn = b.dynamic(nil)
	q := &queue{bench: b, servers: map[types.UID]*httptest.Server{}, done: map[types.UID][]float64{}, rate: 5}
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	t.Cleanup(func() { cancel(); beside.Wait() })
	beside.Go(func() { q.play(ctx) })
	if _, err := b.c.CoreV1().Nodes().Create(ctx, controlplane.Node("n", 4, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var longest atomic.Int64 // that a pod of the training was given to end
	room := q.schedule(ctx, &beside)
	b.create(deployments, "chat", map[string]any{Annotation: lending}, map[string]any{"replicas": int64(1),
		"selector": map[string]any{"matchLabels": map[string]any{"app": "chat"}},
		"template": template("chat", "prod", "critical", 1)})
	beside.Go(func() { q.graces(ctx, &longest) })
	q.train("training", 3, 1, 600)
	run := func(app string) (n int) {
		list, err := b.c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Status.Phase == v1.PodRunning && list.Items[i].DeletionTimestamp == nil {
				n++
			}
		}
		return n
	}
	b.wait("training has what the service lends", func() bool { return run("chat") == 1 && run("training") == 3 })
	time.Sleep(3 * time.Second)
	q.set(33)
	b.wait("the service has all of it", func() bool { return run("chat") == 4 && run("training") == 0 })
	b.event("chat", "ServiceReturned", "promised: 20s")
	time.Sleep(10 * time.Second)
	s := b.status("chat")
	if s.Figures == nil || s.Figures.Lends == nil || s.Figures.Lends.Number < 1 || s.Figures.Lends.Late != 0 ||
		s.Figures.Lends.Replicas != 0 {
		t.Errorf("the annotation says %+v", s.Figures)
	} else if s.Figures.Attainment < 0.9 || s.Figures.PerSecond < 20 {
		t.Errorf("%g of %g requests/s in time, %+v", s.Figures.Attainment, s.Figures.PerSecond, s.Figures.Lends)
	}
	if n := longest.Load(); n < 2 || n > 18 {
		t.Errorf("training had %d s to end", n)
	}
	q.set(5)
	b.wait("training has it again", func() bool { return run("chat") == 1 && run("training") == 3 })
	b.published(room)
	q.serversReturn(run)
	q.kinds(run)
}

// lyra is a service that lends whole servers: a replica is one.
const lyra = `
name: chat
queue: prod
tier: critical
latency: 5s
percentile: 90
replicas: {min: 1, max: 3}
lend: {within: 20s}
scaling: lyra:window=2s
variants:
- {name: chat, gpus: 4, profile: [{batch: 1, latency: 100ms}]}
`

// serversReturn: of two servers that are lent the one comes back whose return preempts fewer jobs, though these have
// run for longer, and the other stays as it is.
func (q *queue) serversReturn(run func(app string) int) {
	q.Helper()
	ctx := q.ctx
	q.clear(run)
	for _, name := range []string{"o", "p"} {
		if _, err := q.c.CoreV1().Nodes().Create(ctx, controlplane.Node(name, 4, nil),
			metav1.CreateOptions{}); err != nil {
			q.Fatal(err)
		}
	}
	q.set(2)
	q.create(deployments, "chat", map[string]any{Annotation: lyra}, map[string]any{"replicas": int64(1),
		"selector": map[string]any{"matchLabels": map[string]any{"app": "chat"}},
		"template": template("chat", "prod", "critical", 4)})
	q.wait("a server serves", func() bool { return run("chat") == 1 })
	q.train("wide", 1, 4, 1)
	q.wait("one job has a server", func() bool { return run("wide") == 1 })
	q.train("narrow", 2, 2, 1)
	q.wait("two jobs share the other", func() bool { return run("narrow") == 2 })
	before := q.names("narrow")
	q.set(9.5)
	q.wait("the service has a server back", func() bool { return run("chat") == 2 && run("wide") == 0 })
	if after := q.names("narrow"); !slices.Equal(after, before) {
		q.Errorf("of the two servers both were emptied: %v were there, then %v", before, after)
	}
}

// clear ends the service and all training.
func (q *queue) clear(run func(app string) int) {
	q.Helper()
	background := metav1.DeletePropagationBackground
	all := metav1.DeleteOptions{PropagationPolicy: &background}
	if err := q.dyn.Resource(deployments.resourceIn("v1")).Namespace("default").DeleteCollection(q.ctx, all,
		metav1.ListOptions{}); err != nil {
		q.Fatal(err)
	}
	if err := q.c.BatchV1().Jobs("default").DeleteCollection(q.ctx, all, metav1.ListOptions{}); err != nil {
		q.Fatal(err)
	}
	q.wait("all is gone", func() bool {
		if err := q.c.CoreV1().Pods("default").DeleteCollection(q.ctx,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
			q.Fatal(err)
		}
		return run("chat")+run("training")+run("wide")+run("narrow") == 0
	})
}

// kinded is a service with a Deployment for each kind of GPU that it can have; all serve as many requests.
const kinded = `
name: chat
queue: prod
tier: critical
latency: 5s
percentile: 90
replicas: {min: 1, max: 8}
scaling: muster:window=2s
variants:
- {name: slice, cost: 1, mig: 1g.10gb, profile: [{batch: 1, latency: 100ms}]}
- {name: half, cost: 2, share: 0.5, gpu_types: [A100-80GB], profile: [{share: 0.5, batch: 1, latency: 100ms}]}
- {name: newer, cost: 3, gpu_types: [H100-80GB], profile: [{batch: 1, latency: 100ms}]}
`

// kinds: a service takes the kind of GPU (a MIG slice, a part of a shared GPU, a whole one) on which a request costs
// least, and the next where there are no more of it.
func (q *queue) kinds(run func(app string) int) {
	q.Helper()
	q.clear(run)
	all := metav1.ListOptions{}
	if err := q.c.CoreV1().Nodes().DeleteCollection(q.ctx, metav1.DeleteOptions{}, all); err != nil {
		q.Fatal(err)
	}
	const product = "nvidia.com/gpu.product"
	sliced := controlplane.Node("sliced", 1, map[string]string{product: "NVIDIA-A100-SXM4-80GB",
		"nvidia.com/mig.strategy": "mixed"})
	delete(sliced.Status.Capacity, "nvidia.com/gpu") // it is all in slices
	sliced.Status.Capacity["nvidia.com/mig-1g.10gb"] = resource.MustParse("2")
	shared := controlplane.Node("shared", 1, map[string]string{product: "NVIDIA-A100-SXM4-80GB-SHARED",
		"nvidia.com/gpu.replicas": "2"})
	delete(shared.Status.Capacity, "nvidia.com/gpu") // all of it is shared
	shared.Status.Capacity["nvidia.com/gpu.shared"] = resource.MustParse("2")
	for _, n := range []*v1.Node{sliced, shared, controlplane.Node("newer", 4, nil)} {
		n.Status.Allocatable = n.Status.Capacity
		if _, err := q.c.CoreV1().Nodes().Create(q.ctx, n, metav1.CreateOptions{}); err != nil {
			q.Fatal(err)
		}
	}
	q.set(4)
	q.ahead.Store(int64(stuckFor + time.Second)) // who waits at all has waited for long
	for _, of := range []struct{ name, resource, product string }{{"slice", "nvidia.com/mig-1g.10gb", ""},
		{"half", "nvidia.com/gpu.shared", ""}, {"newer", "nvidia.com/gpu", "NVIDIA-H100-80GB-HBM3"}} {
		labels := map[string]any{"app": "chat", "kind": of.name, terms.LabelQueue: "prod", terms.LabelTier: "critical"}
		annotations := map[string]any{AnnotationVariant: "chat"}
		replicas := int64(0)
		if of.name == "slice" {
			annotations, replicas = map[string]any{Annotation: kinded}, 1
		}
		spec := map[string]any{"schedulerName": "muster", "containers": []any{map[string]any{"name": "main",
			"image": "none", "resources": map[string]any{"limits": map[string]any{of.resource: "1"}}}}}
		if of.product != "" {
			spec["nodeSelector"] = map[string]any{product: of.product}
		}
		q.create(deployments, of.name, annotations, map[string]any{"replicas": replicas,
			"selector": map[string]any{"matchLabels": map[string]any{"kind": of.name}},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec}})
	}
	are := func(slice, half, newer int) func() bool {
		return func() bool {
			return q.running("slice") == slice && q.running("half") == half && q.running("newer") == newer
		}
	}
	q.wait("a slice serves", are(1, 0, 0))
	q.set(34)
	q.wait("both slices serve, and the parts of a GPU, which cost least of the others", func() bool {
		return q.running("slice") == 2 && q.running("half") == 2 && q.running("newer") >= 0
	})
	q.set(55)
	q.wait("so do the dearest", func() bool {
		return q.running("slice") == 2 && q.running("half") == 2 && q.running("newer") >= 1
	})
	q.event("slice", "ServiceScaled", "no GPUs were found for more replicas of slice (2 have some)")
	q.set(4)
	q.wait("a slice is enough", are(1, 0, 0))
}

// running is how many pods of a Deployment run.
func (q *queue) running(kind string) (n int) {
	q.Helper()
	list, err := q.c.CoreV1().Pods("default").List(q.ctx, metav1.ListOptions{LabelSelector: "kind=" + kind})
	if err != nil {
		q.Fatal(err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// names are the pods of an app, which a controller makes again under other names.
func (q *queue) names(app string) (list []string) {
	q.Helper()
	pods, err := q.c.CoreV1().Pods("default").List(q.ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		q.Fatal(err)
	}
	for i := range pods.Items {
		list = append(list, pods.Items[i].Name)
	}
	slices.Sort(list)
	return list
}

// train makes a Job of so many pods of the lowest tier, each with so many GPUs and as many seconds to end.
func (q *queue) train(name string, pods int32, gpus int, grace int64) {
	q.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Parallelism: &pods, BackoffLimit: new(int32(100)), Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name, terms.LabelQueue: "research",
				terms.LabelTier: "best-effort"}}, Spec: controlplane.Spec(gpus)}}}
	j.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	if _, err := q.c.BatchV1().Jobs("default").Create(q.ctx, j, metav1.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
}

func (q *queue) set(rate float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rate = rate
}

// graces watches how long pods of the training are given to end.
func (q *queue) graces(ctx context.Context, longest *atomic.Int64) {
	for ctx.Err() == nil {
		w, err := q.c.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: "app=training"})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok && p.DeletionGracePeriodSeconds != nil {
				longest.Store(max(longest.Load(), *p.DeletionGracePeriodSeconds))
			}
		}
	}
}

func template(app, queue, tier string, gpus int) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": app, terms.LabelQueue: queue,
			terms.LabelTier: tier}},
		"spec": map[string]any{"schedulerName": "muster", "containers": []any{map[string]any{"name": "main",
			"image": "none", "resources": map[string]any{
				"limits": map[string]any{"nvidia.com/gpu": fmt.Sprint(gpus)}}}}}}
}

// schedule runs the scheduler, and beside it what scales services.
func (q *queue) schedule(ctx context.Context, beside *sync.WaitGroup) *Room {
	log := slog.New(slog.NewTextHandler(q.Output(), nil))
	labels := gpus.Labels{Stated: gpus.Stated{Product: "nvidia.com/gpu.product", Memory: "nvidia.com/gpu.memory",
		Replicas: "nvidia.com/gpu.replicas"}}
	opt := q.options(log, labels)
	opt.GPUs = []string{"nvidia.com/gpu"}
	opt.Now = func() time.Time { return time.Now().Add(time.Duration(q.ahead.Load())) }
	room := New(opt)
	kill := engine.StopRule{How: engine.Kill, Grace: time.Minute}
	d := kube.New(kube.Options{Client: q.c, Dynamic: q.dyn, Tell: q.c, Scheduler: "muster",
		GPUs: opt.GPUs, Now: time.Now, Log: log, Labels: labels, Lenders: room,
		Rules: config.Rules{Policy: "fifo", Placer: "best-fit", Backfill: "skip",
			Stop: &[3]engine.StopRule{kill, kill, kill},
			Spec: cluster.Spec{Queues: []cluster.Queue{
				{Name: "prod", Guarantee: 12 * cluster.Whole, Limit: cluster.Unlimited, Lend: cluster.Unlimited},
				{Name: "research", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}}}})
	beside.Go(func() { room.Run(ctx) })
	beside.Go(func() {
		if err := d.Run(ctx); err != nil {
			q.Errorf("the scheduler ended: %v", err)
		}
	})
	return room
}

// published checks what Prometheus is told.
func (b *bench) published(room *Room) {
	b.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(room)
	families, err := reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if k := l.GetName(); k != "namespace" && k != "service" {
					name += " " + l.GetValue()
				}
			}
			got[strings.TrimPrefix(name, "muster_kube_service_")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, so := range map[string]func(v float64) bool{
		"requests_total in_time":  func(v float64) bool { return v > 300 },
		"requests_total failed":   func(v float64) bool { return v == 0 },
		"requests_per_second":     func(v float64) bool { return v > 0 },
		"latency_seconds latency": func(v float64) bool { return v > 0 && v < 5 },
		"goal_seconds latency":    func(v float64) bool { return v == 5 },
		"attainment_ratio":        func(v float64) bool { return v > 0.9 && v <= 1 },
		"replicas wanted chat":    func(v float64) bool { return v == 1 },
		"lent_replicas":           func(v float64) bool { return v == 3 },
		"returns_total in_time":   func(v float64) bool { return v >= 1 },
		"returns_total late":      func(v float64) bool { return v == 0 },
		"return_seconds_total":    func(v float64) bool { return v > 0 && v < 60 },
	} {
		if v, there := got[name]; !there || !so(v) {
			b.Errorf("%s is %g, %v", name, v, got)
		}
	}
}
