package services

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/kubetest"
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/retry"
	"github.com/muster-gpu/muster/kube/services/load"
)

// bench is a real API server, with a test in the part of the controllers and the kubelets: it makes the pods of
// Deployments and StatefulSets, each with an HTTP server that publishes the metrics of a model server.
type bench struct {
	*testing.T
	p   *controlplane.Plane
	c   *kubeapi.Clientset
	dyn dynamic.Interface
	ctx context.Context

	mu      *sync.Mutex
	servers map[string]*modelServer // by pod
	rate    map[string]float64      // requests per second, by the label app
	broken  map[string]bool         // pods of these Deployments get no place
	mute    map[string]bool         // servers of these apps do not answer
	startup map[string]time.Duration
	text    map[string]func(n float64) string // what servers of these apps publish after n requests; else vllmText
	made    *int
}

// modelServer counts like a model server.
type modelServer struct {
	*httptest.Server
	app      string
	finished float64
}

// planes are the control planes of benches, each of one test at a time.
var planes controlplane.Planes

func TestMain(m *testing.M) {
	code := m.Run()
	planes.End()
	os.Exit(code)
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, p: planes.Take(t, controlplane.Options{}), ctx: t.Context(),
		mu: &sync.Mutex{}, made: new(int), servers: map[string]*modelServer{}, rate: map[string]float64{},
		broken: map[string]bool{}, mute: map[string]bool{}, startup: map[string]time.Duration{},
		text: map[string]func(float64) string{}}
	b.c = b.p.Client()
	b.dyn = b.dynamic(nil)
	ctx, stop := context.WithCancel(t.Context())
	var playing sync.WaitGroup
	playing.Go(func() { b.play(ctx) })
	t.Cleanup(func() {
		stop()
		playing.Wait()
	})
	return b
}

// under is the bench for a sub-test.
func (b *bench) under(t *testing.T, f func(b *bench)) {
	t.Helper()
	s := *b
	s.T, s.ctx, s.p = t, t.Context(), b.p.For(t)
	t.Cleanup(func() {
		ctx := context.Background()
		for _, k := range []*kind{deployments, statefulSets, autoscalers} {
			if err := b.dyn.Resource(k.resourceIn(k.versions[0])).Namespace("default").DeleteCollection(ctx,
				metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		}
		if err := b.c.CoreV1().Pods("default").DeleteCollection(ctx,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	f(&s)
}

func (b *bench) dynamic(change func(*rest.Config)) dynamic.Interface {
	b.Helper()
	rc := rest.CopyConfig(b.p.Admin)
	if rc.QPS = -1; change != nil {
		change(rc)
	}
	c, err := dynamic.NewForConfig(rc)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// play makes what controllers and kubelets would, until the context ends: where something has changed, or went wrong.
func (b *bench) play(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	changed := make(chan struct{}, 1)
	for _, of := range []schema.GroupVersionResource{deployments.resourceIn("v1"), statefulSets.resourceIn("v1"),
		rayServices.resourceIn("v1"), rayClusters.resourceIn("v1"), {Version: "v1", Resource: "pods"}} {
		watching.Go(func() { b.follow(ctx, of, changed) })
	}
	watching.Go(func() { ticks(ctx, b.serve) })
	for again(ctx, changed) {
		if err := b.round(ctx); err != nil && ctx.Err() == nil {
			if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				b.Logf("the player: %v", err)
			}
			kubetest.Tell(changed)
		}
	}
}

// ticks has servers answer what came in the seconds since they did so last, however long anything else takes.
func ticks(ctx context.Context, serve func(seconds float64)) {
	for last := time.Now(); retry.Pause(ctx, 50*time.Millisecond); {
		now := time.Now()
		serve(now.Sub(last).Seconds())
		last = now
	}
}

// again waits until something has changed, 50 ms at least; false: the context ended before.
func again(ctx context.Context, changed chan struct{}) bool {
	if !retry.Pause(ctx, 50*time.Millisecond) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-changed:
		return true
	}
}

// follow tells of changes of objects, once there are such.
func (b *bench) follow(ctx context.Context, of schema.GroupVersionResource, changed chan struct{}) {
	for ctx.Err() == nil {
		if w, err := b.dyn.Resource(of).Watch(ctx, metav1.ListOptions{}); err == nil {
			kubetest.Tell(changed)
			for range w.ResultChan() {
				kubetest.Tell(changed)
			}
		}
		retry.Pause(ctx, time.Second)
	}
}

// round makes what is missing now.
func (b *bench) round(ctx context.Context) error {
	there, err := b.there(ctx)
	if err != nil {
		return err
	}
	list, err := b.c.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(list.Items); i++ {
		d := &list.Items[i]
		err = b.fill(ctx, there, d.Namespace, d.Name, int(*d.Spec.Replicas), d.Spec.Template)
	}
	sets, more := b.c.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && more == nil && i < len(sets.Items); i++ {
		d := &sets.Items[i]
		err = b.fill(ctx, there, d.Namespace, d.Name, int(*d.Spec.Replicas), d.Spec.Template)
	}
	if err == nil {
		err = b.playRay(ctx, there)
	}
	return err
}

// there are all pods, by the object that they were made for: its namespace and its name.
func (b *bench) there(ctx context.Context) (map[string][]v1.Pod, error) {
	list, err := b.c.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "name"})
	if err != nil {
		return nil, err
	}
	there := map[string][]v1.Pod{}
	for _, p := range list.Items {
		of := p.Namespace + "/" + p.Labels["name"]
		there[of] = append(there[of], p)
	}
	return there, nil
}

// serve lets the servers of each app share its requests.
func (b *bench) serve(seconds float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := map[string]float64{}
	for _, s := range b.servers {
		count[s.app]++
	}
	for _, s := range b.servers {
		s.finished += b.rate[s.app] * seconds / count[s.app]
	}
}

func (b *bench) load(app string, rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate[app] = rate
}

// fill makes the pods of an object, and ends those that are too many.
func (b *bench) fill(ctx context.Context, there map[string][]v1.Pod, namespace, name string, n int,
	of v1.PodTemplateSpec) error {
	pods, zero := there[namespace+"/"+name], int64(0)
	for i := n; i < len(pods); i++ {
		if err := b.c.CoreV1().Pods(namespace).Delete(ctx, pods[i].Name,
			metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			return err
		}
		b.mu.Lock()
		s := b.servers[pods[i].Name]
		delete(b.servers, pods[i].Name)
		b.mu.Unlock()
		if s != nil {
			s.Close()
		}
	}
	for i := len(pods); i < n; i++ {
		b.mu.Lock()
		*b.made++
		pod := fmt.Sprintf("%s-%d", name, *b.made)
		broken, startup := b.broken[name], b.startup[name]
		b.mu.Unlock()
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, Labels: of.Labels}, Spec: of.Spec}
		status := v1.PodStatus{Phase: v1.PodPending,
			Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable"}}}
		if !broken {
			status = b.begin(p, of.Labels["app"])
		}
		if _, err := b.c.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
		if startup > 0 {
			time.AfterFunc(startup, func() { _ = b.become(ctx, namespace, pod, status) })
			continue
		}
		if err := b.become(ctx, namespace, pod, status); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a pod's server, and returns the status that the pod has then.
func (b *bench) begin(p *v1.Pod, app string) v1.PodStatus {
	s := b.model(app)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		panic(err)
	}
	p.Spec.NodeName = "elsewhere" // which KWOK does not simulate
	p.Annotations = map[string]string{"prometheus.io/port": port}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers[p.Name] = s
	start := metav1.Now()
	return v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", PodIPs: []v1.PodIP{{IP: "127.0.0.1"}},
		StartTime: &start, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
}

// server makes a pod that serves.
func (b *bench) server(p *v1.Pod, app string) {
	b.Helper()
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "none"}}
	status := b.begin(p, app)
	if _, err := b.c.CoreV1().Pods(p.Namespace).Create(b.ctx, p, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := b.become(b.ctx, p.Namespace, p.Name, status); err != nil {
		b.Fatal(err)
	}
}

// become gives a pod a status.
func (b *bench) become(ctx context.Context, namespace, pod string, s v1.PodStatus) error {
	_, err := b.c.CoreV1().Pods(namespace).Patch(ctx, pod, types.MergePatchType,
		patch.JSON(map[string]any{"status": s}), metav1.PatchOptions{}, "status")
	return err
}

// model starts a model server.
func (b *bench) model(app string) *modelServer {
	s := &modelServer{app: app}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.mute[s.app] {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		text := b.text[s.app]
		if text == nil {
			text = vllmText
		}
		fmt.Fprint(w, text(math.Floor(s.finished)))
	}))
	return s
}

// Tokens of each request.
const promptTokens, answerTokens = 500, 100

// vllmText is what vLLM publishes after so many requests, each of which took 0.1 s.
func vllmText(n float64) string {
	return fmt.Sprintf(`# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} %[1]g
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} %[3]g
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} %[4]g
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.05",model_name="m"} 0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.1",model_name="m"} %[1]g
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} %[1]g
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} %[1]g
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} %[2]g
`, n, n/10, n*promptTokens, n*answerTokens)
}

// deployment makes a Deployment whose pods have the label app.
func (b *bench) deployment(name, app string, replicas int, annotations map[string]string) {
	b.Helper()
	n := int32(replicas)
	labels := map[string]string{"name": name, "app": app}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations},
		Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}}}}
	if _, err := b.c.AppsV1().Deployments("default").Create(b.ctx, d,
		metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) replicas(name string) int {
	b.Helper()
	d, err := b.c.AppsV1().Deployments("default").Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return int(*d.Spec.Replicas)
}

// person sets replicas as kubectl scale does.
func (b *bench) person(name string, n int) {
	b.Helper()
	all := b.dyn.Resource(deployments.resourceIn("v1")).Namespace("default") // what is returned is a Scale
	if _, err := all.Patch(b.ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n),
		metav1.PatchOptions{FieldManager: "kubectl"}, "scale"); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) status(name string) (s status) {
	b.Helper()
	d, err := b.c.AppsV1().Deployments("default").Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if text := d.Annotations[AnnotationStatus]; text != "" {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// event waits for an event of an object.
func (b *bench) event(name, reason, text string) {
	b.Helper()
	b.wait(name+" has an event "+reason+": "+text, func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		if err != nil {
			b.Fatal(err)
		}
		for i := range list.Items {
			if strings.Contains(list.Items[i].Message, text) {
				return true
			}
		}
		return false
	})
}

func (b *bench) wait(what string, so func() bool) {
	b.Helper()
	const patience = 4 * time.Minute // a Job whose pods were evicted starts others after up to 10 s times 2 for each
	for begin := time.Now(); ; {
		asked := time.Now()
		if so() {
			return
		}
		if asked.Sub(begin) > patience {
			b.Fatalf("waited %s in vain until %s", patience, what)
		}
		time.Sleep(shared.Pause(time.Since(begin), time.Since(asked)))
	}
}

const period = 300 * time.Millisecond

// options are those of a room that asks pods on this machine.
func (b *bench) options(log *slog.Logger, labels gpus.Labels) Options {
	return Options{Client: b.c, Dynamic: b.dyn, Tell: b.c, Source: load.NewPods(time.Now, true), Period: period,
		Rescan: period, Now: time.Now, Labels: labels, Log: log, GPUs: []string{"nvidia.com/gpu"}}
}

// run scales services until the function is called that it returns.
func (b *bench) run(change ...func(*Options)) (stop func()) {
	b.Helper()
	opt := b.options(slog.New(slog.NewTextHandler(b.Output(), nil)),
		gpus.Labels{Stated: gpus.Stated{Product: "nvidia.com/gpu.product"}})
	for _, f := range change {
		f(&opt)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		New(opt).Run(ctx)
		close(done)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	b.Cleanup(stop)
	return stop
}

// define defines a kind whose objects have a scale subresource, if they are scaled.
func (b *bench) define(k *kind) {
	b.Helper()
	version := map[string]any{"name": k.versions[0], "served": true, "storage": true, "schema": map[string]any{
		"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			"properties": map[string]any{"spec": map[string]any{"type": "object",
				"x-kubernetes-preserve-unknown-fields": true,
				"properties":                           map[string]any{"replicas": map[string]any{"type": "integer"}}},
				"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true,
					"properties": map[string]any{"replicas": map[string]any{"type": "integer"}}}}}},
		"subresources": map[string]any{"status": map[string]any{}}}
	if k.scaled {
		version["subresources"].(map[string]any)["scale"] = map[string]any{"specReplicasPath": ".spec.replicas",
			"statusReplicasPath": ".status.replicas"}
	}
	name := k.resource + "." + k.group
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
		"kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name,
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved"}},
		"spec": map[string]any{"group": k.group, "scope": "Namespaced", "versions": []any{version},
			"names": map[string]any{"plural": k.resource, "singular": strings.ToLower(k.name), "kind": k.name,
				"listKind": k.name + "List"}}}}
	if _, err := b.dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}).Create(b.ctx, crd, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait(name+" is served", func() bool {
		_, err := b.dyn.Resource(k.resourceIn(k.versions[0])).List(b.ctx, metav1.ListOptions{})
		return err == nil
	})
}

// create makes an object of a kind.
func (b *bench) create(k *kind, name string, annotations, spec map[string]any) {
	b.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.group + "/" + k.versions[0], "kind": k.name,
		"metadata": map[string]any{"name": name, "annotations": annotations}, "spec": spec}}
	if _, err := b.dyn.Resource(k.resourceIn(k.versions[0])).Namespace("default").Create(b.ctx, o,
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}
