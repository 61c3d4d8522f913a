package services

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/serving/scale"
)

// split is a service whose prompts and tokens are computed by different Deployments.
const split = `
name: split
ttft: 100ms
tpot: 40ms
percentile: 90
replicas: {min: 0, max: 40}
scaling: distserve:over=0,window=2s
variants:
- {name: pre, phase: prefill, gpu_types: [H100-80GB], gpus: 1, model: &m {params: 12.85e9, weights: 25.7e9, layers: 40, heads: 40, head_dim: 128}, engine: {link: 50e9}}
- {name: dec, phase: decode, gpu_types: [H100-80GB], gpus: 1, model: *m}
`

// phaseText is what vLLM publishes after n requests, of each of which it made so many tokens.
func phaseText(tokens int) func(n float64) string {
	return func(n float64) string {
		return strings.Replace(vllmText(n), fmt.Sprintf("m\"} %g\n# TYPE vllm:e2e", n*answerTokens),
			fmt.Sprintf("m\"} %g\n# TYPE vllm:e2e", n*float64(tokens)), 1)
	}
}

// Deployments for prompts and for tokens are scaled each as its phase needs it, by requests that both count; a route to
// them stays as its owner wrote it.
func bothPhased(b *bench) {
	const rate = 120
	s, err := read(split)
	if err != nil {
		b.Fatal(err)
	}
	policy, err := scale.Elsewhere(s.Scaling)
	if err != nil {
		b.Fatal(err)
	}
	want := policy.Decide(&scale.View{Service: &s, Period: time.Second, Arrived: rate, Ready: make([]int, 2),
		Coming: make([]int, 2), Prompt: promptTokens, Output: answerTokens})
	if want[0] < 3 || want[1] < 2 || want[0] == want[1] {
		b.Fatalf("the test is to need several replicas, and not as many of each: %v", want)
	}
	b.mu.Lock()
	b.text["split-pre"], b.text["split-dec"] = phaseText(1), phaseText(answerTokens)
	b.mu.Unlock()
	var backends []any
	for _, name := range []string{"pre", "dec"} {
		if _, err := b.c.CoreV1().Services("default").Create(b.ctx, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "split-" + name},
			Spec: v1.ServiceSpec{Selector: map[string]string{"name": name},
				Ports: []v1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		backends = append(backends, map[string]any{"name": "split-" + name, "port": int64(80), "weight": int64(7)})
	}
	b.create(routes, "split", map[string]any{Annotation: "split"}, map[string]any{
		"rules": []any{map[string]any{"backendRefs": backends}}})
	b.deployment("pre", "split-pre", 1, map[string]string{Annotation: split})
	b.run()
	b.event("pre", "ServiceRefused", "no object has replicas for decode; variant dec: there is no object of that name")
	b.deployment("dec", "split-dec", 1, map[string]string{AnnotationVariant: "split"})
	b.load("split-pre", rate)
	b.load("split-dec", rate)
	near := func(name string, n int) bool { k := b.replicas(name); return k >= n-1 && k <= n+2 }
	b.wait(fmt.Sprintf("there are %v replicas for %d requests/s", want, rate), func() bool {
		return near("pre", want[0]) && near("dec", want[1])
	})
	if st := b.status("pre"); st.State != scaling || !strings.Contains(st.Message, "one replica of each phase") {
		b.Errorf("its status is %+v", st)
	}
	b.load("split-pre", 0.5)
	b.load("split-dec", 0.5)
	b.wait("one of each is enough", func() bool { return b.replicas("pre") == 1 && b.replicas("dec") == 1 })
	o, err := b.dyn.Resource(routes.resourceIn("v1")).Namespace("default").Get(b.ctx, "split", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	if want := fmt.Sprint([]any{map[string]any{"backendRefs": backends}}); fmt.Sprint(rules) != want {
		b.Errorf("the route has the rules %v, not %s", rules, want)
	}
}
