package services

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/patch"
)

// chat is a service of a name. One replica sustains 10 requests per second: a request that just missed a batch waits
// for it, so half of the goal is for computing.
func chat(name string, more ...string) map[string]string {
	return map[string]string{Annotation: strings.NewReplacer("NAME", name).Replace(`
name: NAME
latency: 500ms
replicas: {min: 1, max: 6}
scaling: muster:window=2s
variants:
- {name: NAME, profile: [{batch: 1, latency: 100ms}]}
`) + strings.Join(more, "\n")}
}

// TestServices: all of it on a real API server.
func TestServices(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, k := range []*kind{leaderWorkerSets, inferenceServices, rayServices, rayClusters, scaledObjects, routes} {
		b.define(k)
	}
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{{"scales", scales}, {"autoscalers", autoscaled}, {"unreadable", unreadables}, {"persons", people},
		{"variants", variants}, {"stuck", stuckVariants}, {"dies", dies}, {"route", routed}, {"kinds", otherKinds},
		{"ray", rayServed},
		{"zero", zero}, {"blind", blinded},
		{"language", language}, {"measured", measured}, {"phases", bothPhased}} {
		t.Run(c.name, func(t *testing.T) { b.under(t, c.test) })
	}
}

// Replicas follow the load that the pods' metrics show, within min and max, and people are told.
func scales(b *bench) {
	b.deployment("chat", "chat", 1, chat("chat"))
	b.run()
	b.load("chat", 35)
	b.wait("four or five replicas serve 35 requests/s", func() bool {
		n := b.replicas("chat")
		return n >= 4 && n <= 5
	})
	b.event("chat", "ServiceScaled", "requests/s")
	if s := b.status("chat"); s.State != scaling || s.Message != "" {
		b.Errorf("its status is %+v", s)
	}
	if _, err := b.c.AppsV1().Deployments("default").Patch(b.ctx, "chat", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":2}}}]}}}}`),
		metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("it says that the service counts with one GPU", func() bool {
		return strings.Contains(b.status("chat").Message, "a pod of Deployment default/chat asks for so many GPUs: 2")
	})
	b.load("chat", 200)
	b.wait("there are no more than allowed", func() bool { return b.replicas("chat") == 6 })
	b.load("chat", 2)
	b.wait("one is enough", func() bool { return b.replicas("chat") == 1 })
}

// What an HPA or KEDA scales is left alone, and people are told; when that is gone it is scaled.
func autoscaled(b *bench) {
	target := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "owned"}
	b.create(autoscalers, "theirs", nil, map[string]any{"maxReplicas": int64(3), "scaleTargetRef": target})
	b.create(scaledObjects, "events", nil, map[string]any{"scaleTargetRef": map[string]any{"name": "driven"}})
	b.deployment("owned", "owned", 2, chat("owned"))
	b.deployment("driven", "driven", 2, chat("driven"))
	b.load("owned", 45)
	b.load("driven", 45)
	b.run()
	for name, by := range map[string]string{"owned": "HorizontalPodAutoscaler default/theirs",
		"driven": "ScaledObject default/events"} {
		b.wait(name+" is refused", func() bool { return b.status(name).State == refused })
		b.event(name, "ServiceRefused", by+" sets the replicas of Deployment default/"+name)
		if n := b.replicas(name); n != 2 {
			b.Errorf("%s has %d replicas", name, n)
		}
	}
	time.Sleep(5 * period)
	if b.replicas("owned") != 2 || b.replicas("driven") != 2 {
		b.Errorf("%d and %d replicas", b.replicas("owned"), b.replicas("driven"))
	}
	theirs := b.dyn.Resource(autoscalers.resourceIn(autoscalers.versions[0])).Namespace("default")
	if err := theirs.Delete(b.ctx, "theirs", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("it is scaled", func() bool { return b.replicas("owned") >= 5 && b.status("owned").State == scaling })
}

// An annotation that cannot be read is left alone, and people are told what is wrong with it.
func unreadables(b *bench) {
	wrong := map[string]struct{ text, message string }{
		"key": {"name: key\nlatencies: 1s\n", "unknown key"},
		"command": {chat("command", "- {name: b, command: [x], profile: [{batch: 1, latency: 1ms}]}")[Annotation],
			"command, dir and env"},
		"goal":    {strings.Replace(chat("goal")[Annotation], "500ms", "50ms", 1), "no variant answers within 50ms"},
		"lend":    {chat("lend", "lend: {within: 3s}", "tier: critical")[Annotation], "on Kubernetes it is 5s or more"},
		"server":  {chat("server")[Annotation] + "metrics: {server: vlm}", `did you mean "vllm"`},
		"two":     {chat("two")[Annotation] + "---\n" + chat("too")[Annotation], "an object has one"},
		"garbage": {"\x01{", "control characters"},
		"long":    {strings.Repeat("# very long\n", 6000), "longer than"},
	}
	for name, c := range wrong {
		b.deployment(name, name, 2, map[string]string{Annotation: c.text})
		b.load(name, 45)
	}
	b.deployment("first", "first", 1, chat("taken"))
	time.Sleep(time.Second) // the API server records whole seconds
	b.deployment("second", "second", 2, chat("taken"))
	b.run()
	b.wait("the wrong one is told so", func() bool { return b.status("key").State == unreadable })
	b.event("second", "ServiceRefused", "Deployment default/first is a service called taken already")
	for name, c := range wrong {
		b.event(name, "ServiceUnreadable", c.message)
		if n := b.replicas(name); n != 2 {
			b.Errorf("%s has %d replicas", name, n)
		}
	}
	if n := b.replicas("second"); n != 2 {
		b.Errorf("the second of a name has %d replicas", n)
	}
	b.annotate("key", chat("key")[Annotation])
	b.wait("it is right now, and scaled", func() bool {
		return b.replicas("key") >= 5 && b.status("key").State == scaling
	})
}

func (b *bench) annotate(name, text string) {
	b.Helper()
	if _, err := b.c.AppsV1().Deployments("default").Patch(b.ctx, name, types.MergePatchType,
		patch.JSON(map[string]any{"metadata": map[string]any{"annotations": map[string]string{Annotation: text}}}),
		metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
}

// What a person sets within the bounds stays for a period, and is said; what is out of them stays, also under another
// leader.
func people(b *bench) {
	const long = 3 * time.Second // a period, long enough to look
	slow := func(o *Options) { o.Period = long }
	b.deployment("hand", "hand", 1, chat("hand"))
	b.load("hand", 15)
	stop := b.run(slow)
	b.wait("two serve 15 requests/s", func() bool { return b.replicas("hand") == 2 })
	time.Sleep(time.Second) // the API server records whole seconds
	b.person("hand", 5)
	b.wait("that is seen", func() bool { return b.status("hand").State == holding })
	if n := b.replicas("hand"); n != 5 {
		b.Errorf("%d replicas, not the person's 5", n)
	}
	b.event("hand", "ServiceHeld", "kubectl set Deployment default/hand to 5 replicas")
	b.wait("two are enough", func() bool { return b.replicas("hand") == 2 && b.status("hand").State == scaling })
	time.Sleep(time.Second)
	b.person("hand", 0)
	b.wait("that is seen", func() bool { return b.status("hand").State == paused })
	stop()
	stop = b.run()
	time.Sleep(2 * time.Second)
	if n, s := b.replicas("hand"), b.status("hand"); n != 0 || s.State != paused {
		b.Errorf("%d replicas, %+v", n, s)
	}
	b.person("hand", 2)
	b.wait("it goes on", func() bool { return b.status("hand").State == scaling })
	stop()
	stop = b.run(slow)
	defer stop()
	b.wait("it is scaled", func() bool { return b.replicas("hand") == 2 && b.ready("hand") == 2 })
	time.Sleep(2 * long)
	b.person("hand", 4)
	b.event("hand", "ServiceHeld", "Deployment default/hand was set to 4 replicas (the writer is not recorded)")
	b.wait("it goes on", func() bool { return b.replicas("hand") == 2 && b.status("hand").State == scaling })
}

// task is a service with two variants: only the big one is accurate enough.
const task = `
name: task
latency: 500ms
replicas: {min: 2, max: 8}
scaling: muster:window=1s
budget: {accuracy: %g}
variants:
- {name: small, accuracy: 0.7, cost: 1, profile: [{batch: 1, latency: 100ms}]}
- {name: big, accuracy: 0.9, cost: 4, profile: [{batch: 1, latency: 50ms}]}
`

// Of two variants the cheapest that is accurate enough runs. When that is another, it is ready before the first goes.
func variants(b *bench) {
	b.startup["big"], b.startup["small"] = time.Second, time.Second
	b.deployment("small", "task", 2, map[string]string{Annotation: fmt.Sprintf(task, 0.6)})
	b.deployment("big", "task", 0, map[string]string{AnnotationVariant: "task"})
	b.deployment("huge", "huge", 1, map[string]string{AnnotationVariant: "task"})
	b.load("task", 25)
	b.run()
	b.wait("the small one serves", func() bool { return b.replicas("small") >= 3 && b.replicas("big") == 0 })
	b.event("small", "ServiceScaling", "huge says that it is a variant")
	b.wait("they are ready", func() bool { return b.ready("small") >= 3 })
	watch, least := b.leastReady()
	b.annotate("small", fmt.Sprintf(task, 0.8))
	b.wait("the big one serves", func() bool { return b.replicas("small") == 0 && b.replicas("big") >= 2 })
	watch()
	if n := least.Load(); n < 2 {
		b.Errorf("only %d replicas answered in between", n)
	}
	if n := b.replicas("huge"); n != 1 {
		b.Errorf("what is no variant has %d replicas", n)
	}
}

func (b *bench) ready(name string) (n int) {
	b.Helper()
	list, err := b.c.CoreV1().Pods("default").List(b.ctx, metav1.ListOptions{LabelSelector: "name=" + name})
	if err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		if condition(&list.Items[i], v1.PodReady) == v1.ConditionTrue {
			n++
		}
	}
	return n
}

// leastReady watches how many replicas of the task answer.
func (b *bench) leastReady() (stop func(), least *atomic.Int64) {
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	least = &atomic.Int64{}
	least.Store(100)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			least.Store(min(least.Load(), int64(b.ready("small")+b.ready("big"))))
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }, least
}

// Where what replaces others gets no place, the others stay; after a while one makes room.
func stuckVariants(b *bench) {
	breaks := func(broken bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.broken["big"] = broken
	}
	breaks(true)
	defer breaks(false)
	b.deployment("small", "stuck", 3, map[string]string{Annotation: fmt.Sprintf(task, 0.8)})
	b.deployment("big", "stuck", 0, map[string]string{AnnotationVariant: "task"})
	b.load("stuck", 25)
	var ahead atomic.Int64
	b.run(func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	b.wait("the big one is asked for", func() bool { return b.replicas("big") >= 2 })
	time.Sleep(5 * period)
	if n := b.replicas("small"); n != 3 {
		b.Errorf("%d of the small ones are left", n)
	}
	ahead.Store(int64(stuckFor))
	b.wait("one makes room", func() bool { return b.replicas("small") == 2 })
}

// A leader that dies between two writes leaves what the next one goes on from.
func dies(b *bench) {
	b.deployment("small", "dying", 3, map[string]string{Annotation: fmt.Sprintf(task, 0.8)})
	b.deployment("big", "dying", 0, map[string]string{AnnotationVariant: "task"})
	b.load("dying", 25)
	for round, point := range []int{1, 2, 2} {
		died := make(chan struct{})
		count := 0
		ctx, cancel := context.WithCancel(b.ctx)
		stop := b.run(func(o *Options) {
			o.Crash = func(string) {
				if count++; count == point {
					close(died)
					cancel()
					runtime.Goexit()
				}
			}
		})
		for i := round; ctx.Err() == nil; i++ { // each change is a write or two
			b.annotate("small", fmt.Sprintf(task, []float64{0.8, 0.6}[i%2]))
			select {
			case <-died:
			case <-time.After(5 * time.Second):
			}
			if i > round+10 {
				b.Fatalf("it did not come to its %dth write", point)
			}
		}
		cancel()
		stop()
	}
	b.annotate("small", fmt.Sprintf(task, 0.8))
	b.run()
	b.wait("all is as it should be", func() bool { return b.replicas("small") == 0 && b.replicas("big") >= 2 })
	time.Sleep(4 * period)
	if n := b.replicas("big"); n > 4 {
		b.Errorf("%d big ones", n)
	}
}

// The weights of a route follow the replicas that answer.
func routed(b *bench) {
	for _, name := range []string{"small", "big"} {
		if _, err := b.c.CoreV1().Services("default").Create(b.ctx, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "to-" + name},
			Spec: v1.ServiceSpec{Selector: map[string]string{"name": name},
				Ports: []v1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	to := func(name string, weight int64) any {
		return map[string]any{"name": name, "port": int64(80), "weight": weight}
	}
	b.create(routes, "front", map[string]any{Annotation: "task"}, map[string]any{"hostnames": []any{"a.example"},
		"rules": []any{map[string]any{"backendRefs": []any{to("to-small", 7), to("to-big", 7), to("other", 3)}},
			map[string]any{"backendRefs": []any{to("other", 5), to("to-big", 5)}}}})
	b.create(routes, "foreign", nil, map[string]any{"rules": []any{map[string]any{
		"backendRefs": []any{to("to-small", 7)}}}})
	weights := func(name string) (list []int64) {
		o, err := b.dyn.Resource(routes.resourceIn("v1")).Namespace("default").Get(b.ctx, name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
		for _, r := range rules {
			refs, _, _ := unstructured.NestedSlice(r.(map[string]any), "backendRefs")
			for _, ref := range refs {
				w, _, _ := unstructured.NestedInt64(ref.(map[string]any), "weight")
				list = append(list, w)
			}
		}
		return list
	}
	b.deployment("small", "routed", 2, map[string]string{Annotation: fmt.Sprintf(task, 0.6)})
	b.deployment("big", "routed", 0, map[string]string{AnnotationVariant: "task"})
	b.load("routed", 5)
	b.run()
	b.wait("all goes to the small ones", func() bool {
		return slices.Equal(weights("front"), []int64{2, 0, 3, 5, 0})
	})
	b.annotate("small", fmt.Sprintf(task, 0.8))
	b.wait("all goes to the big ones", func() bool {
		return slices.Equal(weights("front"), []int64{0, 2, 3, 5, 2})
	})
	if w := weights("foreign"); w[0] != 7 {
		b.Errorf("a route without the annotation has the weight %d", w[0])
	}
}

// StatefulSets and LeaderWorkerSets are scaled as Deployments are; of a KServe InferenceService its Deployment is, if
// KServe leaves it to others.
func otherKinds(b *bench) {
	pod := func(name string, labels map[string]string) map[string]any {
		_ = name
		return map[string]any{"metadata": map[string]any{"labels": anyMap(labels)},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}}}
	}
	labels := map[string]string{"name": "set", "app": "set"}
	b.create(statefulSets, "set", map[string]any{Annotation: chat("set")[Annotation]}, map[string]any{
		"replicas": int64(1), "serviceName": "x", "selector": map[string]any{"matchLabels": anyMap(labels)},
		"template": pod("set", labels)})
	b.create(leaderWorkerSets, "groups", map[string]any{Annotation: chat("groups")[Annotation]}, map[string]any{
		"replicas": int64(1), "leaderWorkerTemplate": map[string]any{"workerTemplate": pod("x", nil)}})
	leader := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "groups-0", Labels: map[string]string{
		"leaderworkerset.sigs.k8s.io/name": "groups", "leaderworkerset.sigs.k8s.io/worker-index": "0"}}}
	b.server(leader, "groups")
	b.create(inferenceServices, "isvc", map[string]any{Annotation: chat("isvc")[Annotation]}, map[string]any{})
	b.create(inferenceServices, "own", map[string]any{Annotation: chat("own")[Annotation],
		"serving.kserve.io/autoscalerClass": "external"}, map[string]any{})
	b.deployment("isvc-predictor", "isvc", 1, nil)
	b.deployment("own-predictor", "own", 1, nil)
	for _, app := range []string{"set", "groups", "isvc", "own"} {
		b.load(app, 35)
	}
	b.run()
	b.wait("the StatefulSet is scaled", func() bool {
		s, err := b.c.AppsV1().StatefulSets("default").Get(b.ctx, "set", metav1.GetOptions{})
		return err == nil && *s.Spec.Replicas >= 4 && strings.Contains(s.Annotations[AnnotationStatus], scaling)
	})
	b.wait("the groups are scaled", func() bool {
		o, err := b.dyn.Resource(leaderWorkerSets.resourceIn("v1")).Namespace("default").Get(b.ctx, "groups",
			metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		return n >= 4
	})
	b.wait("the InferenceService's Deployment is scaled", func() bool { return b.replicas("own-predictor") >= 4 })
	b.event("isvc", "ServiceRefused", "KServe scales it")
	if n := b.replicas("isvc-predictor"); n != 1 {
		b.Errorf("the Deployment that KServe scales has %d replicas", n)
	}
}

func anyMap(m map[string]string) map[string]any {
	all := map[string]any{}
	for k, v := range m {
		all[k] = v
	}
	return all
}

// Nothing runs where that is allowed and what arrives in front is known; else one replica stays.
func zero(b *bench) {
	var rate atomic.Int64
	var broken atomic.Bool
	demand := func(_ context.Context, query string) (float64, error) {
		if query != "gateway" || broken.Load() {
			return 0, errors.New("no such series")
		}
		return float64(rate.Load()), nil
	}
	text := strings.NewReplacer("min: 1", "min: 0", "window=2s", "window=1s,idle=2s").Replace
	b.deployment("idle", "idle", 1, map[string]string{
		Annotation: text(chat("idle", "metrics: {demand: gateway}")[Annotation])})
	b.deployment("stays", "stays", 2, map[string]string{Annotation: text(chat("stays")[Annotation])})
	b.run(func(o *Options) { o.Demand = demand })
	b.wait("nothing runs", func() bool { return b.replicas("idle") == 0 })
	b.wait("one stays", func() bool { return b.replicas("stays") == 1 })
	b.event("stays", "ServiceScaling", "it keeps one replica")
	rate.Store(25)
	b.wait("three come", func() bool { return b.replicas("idle") >= 3 })
	broken.Store(true)
	b.event("idle", "ServiceBlind", "metrics: demand: no such series")
	rate.Store(0)
	time.Sleep(4 * time.Second)
	if n := b.replicas("idle"); n < 3 {
		b.Errorf("%d replicas, though nothing is known", n)
	}
}

// While some replicas do not say what they have to do, none is taken away.
func blinded(b *bench) {
	b.deployment("mute", "mute", 1, chat("mute"))
	b.load("mute", 35)
	b.run()
	b.wait("four serve", func() bool { return b.replicas("mute") >= 4 && b.ready("mute") >= 4 })
	b.mu.Lock()
	b.mute["mute"] = true
	b.mu.Unlock()
	b.load("mute", 1)
	b.event("mute", "ServiceBlind", "it answers 503")
	time.Sleep(4 * time.Second)
	if n := b.replicas("mute"); n < 4 {
		b.Errorf("%d replicas", n)
	}
	b.mu.Lock()
	delete(b.mute, "mute")
	b.mu.Unlock()
	b.wait("one is enough", func() bool { return b.replicas("mute") == 1 })
}

// A profile is measured from the pods' metrics: a server that answers more at a time gets no more replicas. The next
// scheduler knows it from the start.
func measured(b *bench) {
	text := strings.Replace(chat("seen")[Annotation], "[{batch: 1, latency: 100ms}]", "measure", 1)
	b.deployment("seen", "seen", 1, map[string]string{Annotation: strings.Replace(text, "max: 6", "max: 1", 1)})
	stop := b.run()
	b.event("seen", "ServiceScaling", "what a replica sustains is not measured yet")
	b.load("seen", 35)
	sizes := func() (list []int) {
		for _, x := range b.status("seen").Measured["seen"] {
			if x.Number < leastBatches {
				continue
			}
			if list = append(list, x.Batch); x.Seconds < 0.09 || x.Seconds > 0.11 {
				b.Errorf("%d at a time take %g s", x.Batch, x.Seconds)
			}
		}
		return list
	}
	b.wait("several at a time are measured", func() bool {
		return slices.ContainsFunc(sizes(), func(n int) bool { return n >= 3 })
	})
	b.annotate("seen", text)
	time.Sleep(3 * time.Second)
	if n := b.replicas("seen"); n > 2 {
		b.Errorf("%d replicas, of which one serves all", n)
	}
	was := sizes()
	stop()
	b.load("seen", 0)
	b.run()
	b.wait("a scheduler has written the status again", func() bool {
		f := b.status("seen").Figures
		return f != nil && f.PerSecond == 0
	})
	if now := sizes(); !slices.Equal(now, was) {
		b.Errorf("the next scheduler knows of %v, not %v", now, was)
	}
}

// Of a language model it is computed what a replica sustains on the slowest of the cluster's GPUs, for requests as long
// as those that are seen.
func language(b *bench) {
	text := `
name: llm
ttft: 500ms
tpot: 50ms
replicas: {min: 1, max: 8}
variants:
- {name: llm, model: {params: 8.03e9, weights: 16.06e9, layers: 32, heads: 32, kv_heads: 8, head_dim: 128}}
`
	s, err := read(text)
	if err != nil {
		b.Fatal(err)
	}
	each := s.Variants[0].Language.Sustained("H100-80GB", 1, s.Goal, promptTokens, answerTokens)
	if each < 1 {
		b.Fatalf("a replica sustains %g requests/s", each)
	}
	b.deployment("llm", "llm", 2, map[string]string{Annotation: text})
	b.run()
	b.event("llm", "ServiceScaling", "no node says of which model its GPUs are")
	if n := b.replicas("llm"); n != 2 {
		b.Errorf("%d replicas, though nothing is known", n)
	}
	if _, err := b.c.CoreV1().Nodes().Create(b.ctx, controlplane.Node("gpus", 8, nil),
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.event("llm", "ServiceScaling", "is not known before the first answer")
	b.load("llm", 3.2*each)
	b.wait("four or five serve what four sustain", func() bool {
		n := b.replicas("llm")
		return n >= 4 && n <= 6 && b.status("llm").Message == ""
	})
}
